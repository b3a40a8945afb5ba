/**
 * Everything Holdfast throws besides `TypeError` and `RangeError` for wrong arguments. One class and one code each;
 * docs/errors.md has the same rows, and a test keeps them equal.
 *
 * `instanceof` works across two installed copies of the package: it looks for a registered symbol, not for the
 * prototype.
 */
import { formatDuration } from './duration.ts'
import { holdInWords } from './holder.ts'
import type { LineEntry } from './line-view.ts'
import { plainJson } from './plain-json.ts'
import { thrownText } from './thrown.ts'

/** What `error.code` can be. Each has a row in docs/errors.md. */
export type ErrorCode =
  | 'ACQUIRE_TIMEOUT'
  | 'LEASE_LOST'
  | 'STALE_TOKEN'
  | 'ENGINE'
  | 'CLOSED'
  | 'DEADLOCK'
  | 'LINE_FULL'
  | 'UNSUPPORTED'
  | 'CONFLICT'
  | 'KEY_REUSED'
  | 'IN_PROGRESS'
  | 'UNKNOWN_OUTCOME'
  | 'REPLAYED_FAILURE'
  | 'SUPERSEDED'
  | 'CACHED_FAILURE'
  | 'STOCK'

const brandOf = (code: ErrorCode): symbol => Symbol.for(`holdfast.error.${code}`)

/** The common parent: `error instanceof HoldfastError` is true for all of them. */
export abstract class HoldfastError extends Error {
  abstract readonly code: ErrorCode
  static readonly code: ErrorCode | undefined = undefined

  static override [Symbol.hasInstance](value: unknown): boolean {
    if (typeof value !== 'object' || value === null) return false
    // biome-ignore lint/complexity/noThisInStatic: the subclass that `instanceof` names is the point.
    const { code } = this
    if (code !== undefined) return brandOf(code) in value
    return 'code' in value && typeof value.code === 'string' && brandOf(value.code as ErrorCode) in value
  }

  constructor(code: ErrorCode, message: string, options?: ErrorOptions) {
    super(message, options)
    this.name = new.target.name
    Object.defineProperty(this, brandOf(code), { value: true })
  }

  /** For logs: name, code, message and fields. Tokens are decimal strings, and of `cause` there is the message. */
  toJSON(): Record<string, unknown> {
    const { name, code, message, cause, ...fields } = this
    const told = { name, code, message, ...(plainJson(fields) as object) }
    return cause === undefined ? told : { ...told, cause: thrownText(cause) }
  }
}

/**
 * `wait` ran out before the lock was held. Nothing of the attempt remains in the line. `cause` is there if the engine
 * could not be reached when it ran out.
 */
export class AcquireTimeoutError extends HoldfastError {
  static override readonly code = 'ACQUIRE_TIMEOUT'
  override readonly code = 'ACQUIRE_TIMEOUT'
  readonly key: string
  readonly waitedMs: number
  /** How many entries were ahead when last heard of; null where the engine does not count. */
  readonly ahead: number | null
  /** Who held it when the wait ran out, as far as could be learned in a moment. */
  readonly holders: readonly LineEntry[]

  constructor(
    key: string,
    waitedMs: number,
    ahead: number | null,
    holders: readonly LineEntry[],
    options?: ErrorOptions,
  ) {
    const by = holders.length === 0 ? '' : `; held by ${holders.map(holdInWords).join(', ')}`
    const line = ahead === null || ahead < 1 ? '' : `, ${ahead} ahead in line`
    super('ACQUIRE_TIMEOUT', `did not get '${key}' within ${formatDuration(waitedMs)}${line}${by}`, options)
    this.key = key
    this.waitedMs = waitedMs
    this.ahead = ahead
    this.holders = holders
  }
}

/**
 * Why a lease is over before its release. `deadline`: no renewal was confirmed in time. `expired`: the engine does not
 * have it any more, because it has expired there, or because the server has forgotten it. `evicted`: a person removed
 * it. `maxHold`: it was held for as long as you allowed. `closed`: `locks.close()` gave it back. `released`: you did,
 * before asking whether it is held.
 */
export type LossReason = 'deadline' | 'expired' | 'evicted' | 'maxHold' | 'closed' | 'released'

const LOSS: Readonly<Record<LossReason, string>> = {
  deadline: 'no renewal was confirmed before its deadline',
  expired: 'the engine does not have it any more: it has expired there, or was forgotten',
  evicted: 'it was evicted',
  maxHold: 'it was held for all of its maxHold',
  closed: 'this process has closed or drained its locks',
  released: 'it was released',
}

/**
 * The lease ended before the work did. Whatever the work did after that moment may have met another holder: check
 * tokens at the resource.
 */
export class LeaseLostError extends HoldfastError {
  static override readonly code = 'LEASE_LOST'
  override readonly code = 'LEASE_LOST'
  readonly key: string
  readonly token: bigint | null
  readonly why: LossReason

  constructor(key: string, token: bigint | null, why: LossReason, options?: ErrorOptions) {
    super('LEASE_LOST', `lost '${key}'${token === null ? '' : ` (token ${token})`}: ${LOSS[why]}`, options)
    this.key = key
    this.token = token
    this.why = why
  }
}

/** A guard saw a higher token before: the holder that offered this one has been replaced. */
export class StaleTokenError extends HoldfastError {
  static override readonly code = 'STALE_TOKEN'
  override readonly code = 'STALE_TOKEN'
  readonly resource: string
  readonly offered: bigint
  readonly seen: bigint

  constructor(resource: string, offered: bigint, seen: bigint) {
    super('STALE_TOKEN', `token ${offered} for '${resource}' is stale: ${seen} was seen before`)
    this.resource = resource
    this.offered = offered
    this.seen = seen
  }
}

/** Whether a failed call changed anything: surely not, or that is unknown. */
export type CallOutcome = 'not-applied' | 'unknown'

/** The engine, or the way to it, failed. `cause` has what the client said. */
export class EngineError extends HoldfastError {
  static override readonly code: 'ENGINE' | 'CLOSED' = 'ENGINE'
  override readonly code: 'ENGINE' | 'CLOSED' = 'ENGINE'
  readonly engine: string
  readonly outcome: CallOutcome
  /**
   * Whether the same call may succeed later. False: a wrong password, a file from a newer version; the core does not
   * try again.
   */
  readonly transient: boolean

  constructor(
    engine: string,
    message: string,
    options: { outcome: CallOutcome; transient?: boolean; cause?: unknown },
  ) {
    super('ENGINE', `${engine}: ${message}`, 'cause' in options ? { cause: options.cause } : undefined)
    this.engine = engine
    this.outcome = options.outcome
    this.transient = options.transient ?? true
  }
}

/**
 * These locks grant nothing any more: `drain()` or `close()` was called, in this process. It is an `EngineError`, too,
 * with a code of its own: nothing is wrong with the engine.
 */
export class ClosedError extends EngineError {
  static override readonly code = 'CLOSED'
  override readonly code = 'CLOSED'

  constructor(engine: string, message: string, outcome: CallOutcome) {
    super(engine, message, { outcome, transient: false })
    Object.defineProperty(this, brandOf('CLOSED'), { value: true })
  }
}

/** What was asked for can never be granted, because the asker itself stands in the way. */
export class DeadlockError extends HoldfastError {
  static override readonly code = 'DEADLOCK'
  override readonly code = 'DEADLOCK'
  readonly key: string

  constructor(key: string, message: string) {
    super('DEADLOCK', message)
    this.key = key
  }
}

/** The line has as many entries as the engine takes. */
export class LineFullError extends HoldfastError {
  static override readonly code = 'LINE_FULL'
  override readonly code = 'LINE_FULL'
  readonly key: string
  readonly bound: number

  constructor(key: string, bound: number) {
    super('LINE_FULL', `the line of '${key}' is full: ${bound} entries`)
    this.key = key
    this.bound = bound
  }
}

/**
 * This engine cannot serve this lock; the message names engines that can. Thrown when the lock is created, not when it
 * is used; and by `release({ after })`, where no key can stay busy behind its process, or not for so long.
 */
export class UnsupportedError extends HoldfastError {
  static override readonly code = 'UNSUPPORTED'
  override readonly code = 'UNSUPPORTED'
  readonly engine: string

  constructor(engine: string, message: string) {
    super('UNSUPPORTED', message)
    this.engine = engine
  }
}

/**
 * An optimistic change, or a guarded statement, was given up: another writer came first, as often as was tried. Nothing
 * of it was written.
 */
export class ConflictError extends HoldfastError {
  static override readonly code = 'CONFLICT'
  override readonly code = 'CONFLICT'
  readonly target: string
  /** How often it was tried, the first time included. */
  readonly tries: number

  constructor(target: string, tries: number, why: string) {
    super('CONFLICT', `gave up changing ${target} after ${tries === 1 ? '1 try' : `${tries} tries`}: ${why}`)
    this.target = target
    this.tries = tries
  }
}

/** The fingerprint of a request is not that of the first one with its key: the client has used the key twice. */
export class KeyReusedError extends HoldfastError {
  static override readonly code = 'KEY_REUSED'
  override readonly code = 'KEY_REUSED'
  readonly key: string

  constructor(key: string) {
    super('KEY_REUSED', `'${key}' was used before with another fingerprint: a key is for one request and its retries`)
    this.key = key
  }
}

/** Which execution of an idempotent request. */
export interface AttemptName {
  /** The same for all executions of one request. */
  readonly id: string
  /** 1 for the first execution; higher for each one after it. */
  readonly number: number
}

/** The request is being worked on, and the wait of this duplicate is over. */
export class InProgressError extends HoldfastError {
  static override readonly code = 'IN_PROGRESS'
  override readonly code = 'IN_PROGRESS'
  readonly key: string
  /**
   * When to ask again: after as long as the execution has taken until now, but not later than its lease runs out if its
   * process has died; 1 s or more.
   */
  readonly retryAfterMs: number
  /** The execution that is going on; undefined if it has not begun yet. */
  readonly attempt: AttemptName | undefined

  constructor(key: string, retryAfterMs: number, attempt: AttemptName | undefined, options?: ErrorOptions) {
    const which = attempt === undefined ? '' : ` (attempt ${attempt.number})`
    super('IN_PROGRESS', `'${key}' is in progress${which}: ask again in ${formatDuration(retryAfterMs)}`, options)
    this.key = key
    this.retryAfterMs = retryAfterMs
    this.attempt = attempt
  }
}

/** An execution has ended without a trace, and `crashed: 'ask'` leaves it to you whether it is run again. */
export class UnknownOutcomeError extends HoldfastError {
  static override readonly code = 'UNKNOWN_OUTCOME'
  override readonly code = 'UNKNOWN_OUTCOME'
  readonly key: string
  /** The execution that has ended: ask for its id where it may have had an effect. */
  readonly attempt: AttemptName

  constructor(key: string, attempt: AttemptName) {
    super(
      'UNKNOWN_OUTCOME',
      `attempt ${attempt.number} of '${key}' (id ${attempt.id}) ended without a result: ` +
        `find out what it did, then run it with { crashed: 'retry' }`,
    )
    this.key = key
    this.attempt = attempt
  }
}

/** What is stored of an error: what JSON keeps of it. */
export interface StoredFailure {
  readonly name: string
  readonly message: string
  /** Its own fields, `code` for example, as far as they can be stored. */
  readonly fields: Readonly<Record<string, unknown>>
}

/** The request has failed for good, in an execution before this one. `failure` is what was thrown there. */
export class ReplayedFailureError extends HoldfastError {
  static override readonly code = 'REPLAYED_FAILURE'
  override readonly code = 'REPLAYED_FAILURE'
  readonly key: string
  readonly attempt: AttemptName
  readonly failure: StoredFailure

  constructor(key: string, attempt: AttemptName, failure: StoredFailure) {
    super('REPLAYED_FAILURE', `'${key}' has failed for good before: ${failure.name}: ${failure.message}`)
    this.key = key
    this.attempt = attempt
    this.failure = failure
  }
}

/** The fill of a cached value has failed a short while ago, in this process or another. `failure` is what it threw. */
export class CachedFailureError extends HoldfastError {
  static override readonly code = 'CACHED_FAILURE'
  override readonly code = 'CACHED_FAILURE'
  readonly key: string
  readonly failure: StoredFailure

  constructor(key: string, failure: StoredFailure) {
    super('CACHED_FAILURE', `the fill of '${key}' has failed before: ${failure.name}: ${failure.message}`)
    this.key = key
    this.failure = failure
  }
}

/**
 * A stock was asked for what it cannot mean. `differs`: the id of a hold was used with other quantities. `unknown`: it
 * has no such item. `below`: it would have less of an item than is sold and held.
 */
export class StockError extends HoldfastError {
  static override readonly code = 'STOCK'
  override readonly code = 'STOCK'
  /** The name of the stock. */
  readonly stock: string
  readonly why: 'differs' | 'unknown' | 'below'

  constructor(stock: string, why: 'differs' | 'unknown' | 'below', message: string) {
    super('STOCK', `stock '${stock}': ${message}`)
    this.stock = stock
    this.why = why
  }
}

/** Which upload of a list. */
export interface UploadName {
  /** What its rows carry: higher than that of every upload accepted before it. */
  readonly generation: number
  /** The id that the user has given it. */
  readonly upload?: string | undefined
  /** The number that the user has given it. */
  readonly order?: number | undefined
}

/** A newer upload was accepted. This one cannot write any more, and nothing of it is what readers see. */
export class SupersededError extends HoldfastError {
  static override readonly code = 'SUPERSEDED'
  override readonly code = 'SUPERSEDED'
  readonly key: string
  /** The generation of this upload; undefined if it was never accepted. */
  readonly generation: number | undefined
  /** The newer upload; undefined if this one was told to go before that was known. */
  readonly by: UploadName | undefined

  constructor(key: string, generation: number | undefined, by: UploadName | undefined, options?: ErrorOptions) {
    const what = generation === undefined ? 'an upload' : `generation ${generation}`
    super(
      'SUPERSEDED',
      `${what} of '${key}' was superseded by ${by === undefined ? 'a newer one' : named(by)}`,
      options,
    )
    this.key = key
    this.generation = generation
    this.by = by
  }
}

function named({ generation, upload, order }: UploadName): string {
  const names = [
    ...(upload === undefined ? [] : [`upload '${upload}'`]),
    ...(order === undefined ? [] : [`order ${order}`]),
  ]
  return `generation ${generation}${names.length === 0 ? '' : ` (${names.join(', ')})`}`
}
