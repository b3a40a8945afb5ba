/**
 * What the codes and errors of MongoDB and of its driver mean: whether anything can have been applied, and whether
 * trying again can help.
 *
 * A write whose confirmation failed (`MongoWriteConcernError`) has an answer in which the entry holds. It is not
 * believed: a new primary may not have it, or may have it later. The driver repeats a write by itself where the server
 * can tell a repetition (`retryWrites`), so an error of the second attempt says nothing about the first, not even one
 * that is a refusal: the first may have been done, and only its answer lost. Only where no connection was used since
 * the call began is it certain that nothing was sent, and only where one was used once, that nothing was repeated.
 */
import { type AsEngineError, engineErrors, type FailureMeaning } from '../../core/failed-call.ts'
import { NoAnswer, NotSent } from '../shared/driver-errors.ts'

export const ENGINE = 'mongodb'

export const MONGODB_CODE = {
  failedToParse: 9,
  unauthorized: 13,
  typeMismatch: 14,
  authenticationFailed: 18,
  namespaceExists: 48,
  maxTimeExpired: 50,
  commandNotFound: 59,
  indexOptionsConflict: 85,
  invalidNamespace: 73,
  writeConflict: 112,
  documentValidation: 121,
  atlas: 8000,
  duplicateKey: 11000,
  invalidPipelineOperator: 168,
  unknownStage: 40324,
  conversionFailure: 241,
  noChangeStreams: 40573,
  commandNotSupported: 115,
} as const

/** There are no change streams here, or not for this user: a stand-alone server, a service of another maker. */
export const NO_CHANGE_STREAMS: ReadonlySet<number> = new Set([
  MONGODB_CODE.noChangeStreams,
  MONGODB_CODE.unauthorized,
  MONGODB_CODE.commandNotFound,
  MONGODB_CODE.commandNotSupported,
  MONGODB_CODE.unknownStage,
  MONGODB_CODE.failedToParse,
])

/** Refused before anything was written, whatever is tried again. */
const LASTING: ReadonlySet<number> = new Set([
  MONGODB_CODE.failedToParse,
  MONGODB_CODE.unauthorized,
  MONGODB_CODE.typeMismatch,
  MONGODB_CODE.authenticationFailed,
  MONGODB_CODE.commandNotFound,
  MONGODB_CODE.invalidNamespace,
  MONGODB_CODE.documentValidation,
  MONGODB_CODE.invalidPipelineOperator,
  MONGODB_CODE.unknownStage,
  MONGODB_CODE.atlas,
])

/** The server has not done it, and may do it when it is asked again. */
const REFUSED: ReadonlySet<number> = new Set([MONGODB_CODE.duplicateKey, MONGODB_CODE.writeConflict])

/** A server that does not know update pipelines on `$$NOW` says so in one of these ways. */
const TOO_OLD: ReadonlySet<number> = new Set([
  MONGODB_CODE.failedToParse,
  MONGODB_CODE.invalidPipelineOperator,
  MONGODB_CODE.unknownStage,
])

/** Connections were used more than once since the call began: this may be the error of a second attempt. */
export class PerhapsRepeated extends Error {
  override readonly name = 'PerhapsRepeated'

  constructor(cause: unknown) {
    super(cause instanceof Error ? cause.message : String(cause), { cause })
  }
}

/** The code that the server answered with; undefined for an error of the driver. */
export function mongodbCodeOf(error: unknown): number | undefined {
  const { code } = (error instanceof PerhapsRepeated ? error.cause : (error ?? {})) as { code?: unknown }
  return typeof code === 'number' ? code : undefined
}

/** The write was done, and not confirmed by a majority. */
export function isUnconfirmed(error: unknown): boolean {
  const { name, result } = (error ?? {}) as { name?: unknown; result?: { getWriteConcernError?: () => unknown } }
  return name === 'MongoWriteConcernError' || result?.getWriteConcernError?.() !== undefined
}

/** Whether trying again cannot help. */
export function isLasting(error: unknown): boolean {
  const { name } = (error ?? {}) as { name?: unknown }
  const isWrongUse = name === 'MongoParseError' || name === 'MongoInvalidArgumentError' || name === 'MongoAPIError'
  return isWrongUse || (LASTING.has(mongodbCodeOf(error) ?? 0) && !isUnconfirmed(error))
}

/** What the driver threw, as the core wants it. */
export const asEngineError: AsEngineError = engineErrors(ENGINE, meaningOf)

/** What an error of the driver means. */
function meaningOf(error: unknown): FailureMeaning {
  const cause = error instanceof NotSent || error instanceof PerhapsRepeated ? error.cause : error
  const lasting = isLasting(cause)
  // A write that the server knows to be done is not done again, so these two say that none of the attempts was.
  const isUndone = REFUSED.has(mongodbCodeOf(cause) ?? 0) && !isUnconfirmed(cause)
  const refused = (lasting && !(error instanceof PerhapsRepeated)) || isUndone
  const mayBeApplied = !(error instanceof NotSent) && !refused
  return {
    message: messageOf(cause),
    outcome: mayBeApplied ? 'unknown' : 'not-applied',
    transient: !lasting,
    cause: withoutCommand(cause),
  }
}

function messageOf(error: unknown): string {
  if (error instanceof NoAnswer) return error.message
  const code = mongodbCodeOf(error)
  if (isUnconfirmed(error))
    return `the write was not confirmed by a majority${code === undefined ? '' : ` (code ${code})`}`
  const text = withoutCommand(error).message
  if (code === MONGODB_CODE.unauthorized)
    return `${text}; this user needs find, insert, update, remove and createCollection on it, and for locks createIndex and changeStream`
  if (TOO_OLD.has(code ?? 0))
    return `${text}; locks and guards need update pipelines and $$NOW: MongoDB 5.0 or newer, or a service that has them`
  return text
}

/** The server repeats a command that it refuses, with its keys and holders; the driver keeps all that it answered. */
function withoutCommand(error: unknown): Error {
  if (!(error instanceof Error)) return new Error(String(error))
  const isVerbose = /to execute command/.test(error.message)
  if (!isVerbose && !('result' in error) && !('errorResponse' in error)) return error
  const plain = new Error(error.message.replace(/ to execute command.*$/s, ''))
  plain.name = error.name
  const { code, codeName } = error as { code?: unknown; codeName?: unknown }
  return Object.assign(plain, code === undefined ? {} : { code }, codeName === undefined ? {} : { codeName })
}
