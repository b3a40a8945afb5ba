/**
 * A call that failed, as the error that users read. It says which engine, which call, and what went wrong, in this
 * order, whatever the server: `etcd: enter: no leader`. What a server means by its own errors is known beside its
 * engine or its client, where `asEngineError` is made of it.
 */
import { type CallOutcome, EngineError } from './errors.ts'
import { thrownText } from './thrown.ts'

/**
 * What was called: a verb of the engine, of its store (`take` and `hold` are of rate limits and stocks), or of a guard.
 * A batch of claims is one `enter`, and a change of a record is a `put`, also where an entry enters or leaves with it.
 */
export type EngineCall =
  | 'enter'
  | 'renew'
  | 'leave'
  | 'evict'
  | 'inspect'
  | 'list'
  | 'subscribe'
  | 'watch'
  | 'diagnose'
  | 'get'
  | 'put'
  | 'take'
  | 'hold'
  | 'migrate'
  | `guard ${'read' | 'write' | 'list' | 'reset' | 'setup' | 'forget'}`

/** What was called where a server runs `name` of ours for it: that of the table, or else the call of this name. */
export function calledFor<Name extends string>(
  table: Readonly<Record<Exclude<Name, EngineCall>, EngineCall>>,
  name: Name,
): EngineCall {
  return name in table ? table[name as Exclude<Name, EngineCall>] : (name as EngineCall & Name)
}

/** What the caller knows of a failed call besides the error. */
export interface CallFacts {
  /** What became of the call, whatever the error says of that. */
  readonly outcome?: CallOutcome
}

/** What an error of the client means. */
export interface FailureMeaning {
  /** In words; what the error itself says unless given. */
  readonly message?: string
  readonly outcome: CallOutcome
  readonly transient: boolean
  /** What users are shown of the error; all of it unless given. */
  readonly cause?: unknown
}

/** The error of a call. An `EngineError` is passed on as it is: it says already what failed. */
export type AsEngineError<Facts extends CallFacts = CallFacts> = (
  call: EngineCall,
  error: unknown,
  facts?: Facts,
) => EngineError

/** `meaningOf` knows the errors of the client. */
export function engineErrors<Facts extends CallFacts = CallFacts>(
  engine: string,
  meaningOf: (error: unknown, facts: Facts | undefined) => FailureMeaning,
): AsEngineError<Facts> {
  return (call, error, facts) => {
    if (error instanceof EngineError) return error
    const { message = thrownText(error), outcome, transient, cause } = { cause: error, ...meaningOf(error, facts) }
    return new EngineError(engine, `${call}: ${message}`, { outcome: facts?.outcome ?? outcome, transient, cause })
  }
}

/** The same answer; or, if there is none, the error of this call. */
export async function failingAs<Answer, Facts extends CallFacts = CallFacts>(
  asEngineError: AsEngineError<Facts>,
  call: EngineCall,
  answer: Promise<Answer>,
  facts?: Facts,
): Promise<Answer> {
  try {
    return await answer
  } catch (error) {
    throw asEngineError(call, error, facts)
  }
}

/** The error of what an engine has thrown. If that is no `EngineError`, nothing is known of the call. */
export function failureOf(engine: string, call: EngineCall, error: unknown): EngineError {
  return engineErrors(engine, () => ({ outcome: 'unknown', transient: true }))(call, error)
}

/** Given up: what became of it is not known. */
export function noAnswer(engine: string, call: EngineCall, ms: number): EngineError {
  return new EngineError(engine, `${call}: no answer within ${Math.round(ms)} ms`, { outcome: 'unknown' })
}

/**
 * The answer is none that the engine's own scripts or statements give: a proxy has changed it, or other code has their
 * name. What it did is not known.
 */
export function unexpectedAnswer(engine: string, call: EngineCall, problem: string): EngineError {
  return new EngineError(engine, `${call}: ${problem}`, { outcome: 'unknown', transient: false })
}

/** The same failure, where more is known of what became of the call. */
export function withOutcome(error: EngineError, outcome: CallOutcome): EngineError {
  const { engine, transient, cause } = error
  if (outcome === error.outcome) return error
  return new EngineError(engine, withoutEngine(error), { outcome, transient, cause })
}

/** The message of an error, for a sentence that names its engine before. */
export function withoutEngine({ engine, message }: EngineError): string {
  return message.replace(`${engine}: `, '')
}
