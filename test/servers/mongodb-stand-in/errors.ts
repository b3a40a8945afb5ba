/** What the stand-in answers when a command fails: the code, its name, the message and the labels of a real server. */
import type { Document } from 'bson'

/** The names of the codes that are used here. A code without a name is called `Location` and its number. */
const NAMES: Readonly<Record<number, string>> = {
  2: 'BadValue',
  9: 'FailedToParse',
  13: 'Unauthorized',
  14: 'TypeMismatch',
  18: 'AuthenticationFailed',
  20: 'IllegalOperation',
  26: 'NamespaceNotFound',
  43: 'CursorNotFound',
  48: 'NamespaceExists',
  50: 'MaxTimeMSExpired',
  59: 'CommandNotFound',
  64: 'WriteConcernFailed',
  66: 'ImmutableField',
  72: 'InvalidOptions',
  85: 'IndexOptionsConflict',
  91: 'ShutdownInProgress',
  100: 'UnsatisfiableWriteConcern',
  112: 'WriteConflict',
  168: 'InvalidPipelineOperator',
  189: 'PrimarySteppedDown',
  225: 'TransactionTooOld',
  251: 'NoSuchTransaction',
  256: 'TransactionCommitted',
  263: 'OperationNotSupportedInTransaction',
  286: 'ChangeStreamHistoryLost',
  10107: 'NotWritablePrimary',
  11000: 'DuplicateKey',
  11602: 'InterruptedDueToReplStateChange',
}

export function nameOfCode(code: number): string {
  return NAMES[code] ?? `Location${code}`
}

export class CommandError extends Error {
  readonly code: number
  /** Further fields of the answer, such as `keyPattern` of a duplicate key. */
  readonly details: Document
  readonly labels: readonly string[]

  constructor(code: number, message: string, details: Document = {}, labels: readonly string[] = []) {
    super(message)
    this.code = code
    this.details = details
    this.labels = labels
  }

  get codeName(): string {
    return nameOfCode(this.code)
  }

  /** The same failure, with the words that the server puts before it. */
  within(where: string): CommandError {
    return new CommandError(this.code, `${where} :: caused by :: ${this.message}`, this.details, this.labels)
  }
}

/** A failure of mingo has no code. The words of two of them are those of the server's parser. */
export function asCommandError(error: unknown): CommandError {
  if (error instanceof CommandError) return error
  const { message } = error as Error
  const unknownOperator = /'?(\$\w+)'? is not registered/.exec(message)?.[1]
  if (unknownOperator !== undefined) return new CommandError(168, `Unrecognized expression '${unknownOperator}'`)
  if (message.startsWith('Use of undefined variable')) return new CommandError(17276, message)
  return new CommandError(2, message)
}
