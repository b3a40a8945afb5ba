/**
 * The door: which requests have a key, and what becomes of each. The handler of a framework is the work of `once`. Its
 * response is held back until it is stored: what a client has been told is what its retries are told.
 */
import type { Clock, Timer } from '../../core/clock.ts'
import { type Duration, formatDuration, parseDuration } from '../../core/duration.ts'
import type { EntryLease } from '../../core/entry-lease.ts'
import { LeaseLostError } from '../../core/errors.ts'
import type { OptionNames } from '../../core/options.ts'
import type { Locks } from '../../locks.ts'
import type { Attempt, OnceAttempt } from '../once/attempt.ts'
import { OnceRunner } from '../once/once.ts'
import { ONCE_OPTIONS, type OnceOptions, type OnceResult } from '../once/options.ts'
import {
  answerOf,
  bodyNotRead,
  inProgress,
  isStoredResponse,
  KEY_HEADER,
  keyMissing,
  keyOf,
  type MadeResponse,
  problemOf,
  ResponseNotStored,
  responseNotKept,
  type StoredResponse,
  storedResponse,
} from './exchange.ts'
import type { HoldBounds } from './held-response.ts'
import { filesOf } from './uploads.ts'

/** A request, alike in every framework. */
export interface IdempotentRequest {
  readonly method: string
  /** Path and query. */
  readonly url: string
  header(name: string): string | undefined
  /**
   * What the framework has read of the body: parsed, as text or as bytes. Undefined where nothing was read: with
   * `node:http`, and in Express before a body parser.
   */
  readonly body: unknown
  /** The request of the framework itself; of Hono, its context. */
  readonly raw: unknown
}

/** What the door itself has to know of it. */
export interface DoorRequest extends IdempotentRequest {
  /** Whether its client sends a body. Asked where none was read. */
  hasBody(): boolean | Promise<boolean>
}

/** Options of `idempotency()`: those of `once()`, and these. */
export interface IdempotencyOptions extends OnceOptions {
  /**
   * Whose request it is: the tenant, or the user, whom you have authenticated before. The keys of two scopes never
   * meet. `''` where there is one tenant; what is no string is refused, and the request is not handled (500).
   */
  scope(request: IdempotentRequest): string
  /** Whether a request needs a key: false unless given. Without one it is refused (400) then. */
  readonly required?: boolean
  /** Which methods are looked at: POST and PATCH unless given. The others are idempotent by themselves. */
  readonly methods?: readonly string[]
  /**
   * What makes the request what it is: method, URL, body, and the files of a form unless given. A request whose body or
   * files were not read into memory before is refused then (415): others under its key could not be told apart.
   */
  fingerprint?(request: IdempotentRequest): unknown
  /**
   * Which headers of the response are stored, besides its status and body. Never `set-cookie` unless you name it. Those
   * that say how it is sent (`content-length`, `connection`) are refused.
   */
  readonly headers?: readonly string[]
  /** How large a body is stored, in bytes: 32,768 unless given, 45,000 at most. */
  readonly maxBody?: number
  /**
   * How long a handler may take to end its response: 1 h unless given. After that it has failed: the next request with
   * the key is handled anew. A handler that never ends would keep its key in progress for as long as its process lives.
   */
  readonly handlerTimeout?: Duration
}

/** What a framework is told to do with a request. */
export type DoorVerdict =
  /** It has no key: handle it. */
  | { readonly state: 'pass' }
  /** Answer this. */
  | { readonly state: 'answer'; readonly response: StoredResponse; readonly replayed: boolean }
  /** It was handled: let the response of the handler go. */
  | { readonly state: 'handled' }

/** Let the handler of the framework run, and answer what it has made. */
export type Handle = () => Promise<MadeResponse>

export const IDEMPOTENCY_OPTIONS: OptionNames<IdempotencyOptions> = {
  ...ONCE_OPTIONS,
  scope: true,
  required: true,
  methods: true,
  fingerprint: true,
  headers: true,
  maxBody: true,
  handlerTimeout: true,
}

const DEFAULT_METHODS = ['POST', 'PATCH']
const DEFAULT_HEADERS = ['content-type', 'content-encoding', 'content-language', 'etag', 'link', 'location']
/** They say how one response goes over one connection. Of a replay, they would be wrong. */
const HEADERS_OF_SENDING = ['connection', 'content-length', 'keep-alive', 'trailer', 'transfer-encoding', 'upgrade']
const DEFAULT_BODY = 32_768
const DEFAULT_HANDLER_TIMEOUT = '1h'
/** In base64, and with all that belongs to it, it has to fit into a record. */
const LARGEST_BODY = 45_000

const BODY_NOT_READ =
  'idempotency() has refused a request (415) whose body was not read: ' +
  'two bodies under one key would be the same to it. Put the body parser before this middleware, or give fingerprint'
const FILES_NOT_READ =
  'idempotency() has refused a request (415) with files that are not in memory: ' +
  'two files under one key would be the same to it. Have the parser keep them in memory, or give fingerprint'

/** The response was told to the client, and the request is to be handled again. */
class NotKept {}

/** Its response was begun before its handler could be. Nothing was done, so that is never kept. */
export class NotBegun extends Error {
  constructor() {
    super('the response to this request was begun before idempotency() has let its handler run')
  }
}

/** Timed out, too early, too many: these ask the client to come again, and have done nothing. */
const COME_AGAIN: ReadonlySet<number> = new Set([408, 425, 429])

/** A client that comes again must not be told the same for as long as records are kept. */
function isToBeRetried(status: number): boolean {
  return status >= 500 || COME_AGAIN.has(status)
}

export class IdempotencyDoor {
  readonly attempts: WeakMap<object, Attempt> = new WeakMap()
  readonly maxBody: number
  readonly #once: OnceRunner
  readonly #options: IdempotencyOptions
  readonly #methods: ReadonlySet<string>
  readonly #headers: ReadonlySet<string>
  readonly #keepErrors: boolean
  readonly #clock: Clock
  readonly #handlerTimeoutMs: number
  #hasWarned = false

  constructor(locks: Locks, options: IdempotencyOptions) {
    const { scope, required: _, methods, fingerprint, headers, maxBody, handlerTimeout, ...rest } = options
    if (typeof scope !== 'function')
      throw new TypeError(`scope must be a function that says whose request it is; got ${typeof scope}`)
    if (fingerprint !== undefined && typeof fingerprint !== 'function')
      throw new TypeError(`fingerprint must be a function of the request; got ${typeof fingerprint}`)
    const refused = headers?.find((name) => HEADERS_OF_SENDING.includes(name.toLowerCase()))
    if (refused !== undefined)
      throw new TypeError(`headers must not name '${refused}': it is set anew for each response`)
    this.maxBody = maxBody ?? DEFAULT_BODY
    if (!Number.isSafeInteger(this.maxBody) || this.maxBody < 0 || this.maxBody > LARGEST_BODY)
      throw new RangeError(`maxBody must be a whole number from 0 to ${LARGEST_BODY}; got ${this.maxBody}`)
    this.#clock = locks.keeper.clock
    this.#handlerTimeoutMs = parseDuration(handlerTimeout ?? DEFAULT_HANDLER_TIMEOUT, 'handlerTimeout')
    // Which failures are kept is decided here: a handler that has not begun has not failed.
    const failures = rest.failures === 'keep' ? 'retry' : (rest.failures ?? 'retry')
    this.#once = new OnceRunner(locks, { name: 'http', ...rest, failures })
    this.#options = options
    this.#methods = new Set((methods ?? DEFAULT_METHODS).map((method) => method.toUpperCase()))
    this.#headers = new Set((headers ?? DEFAULT_HEADERS).map((name) => name.toLowerCase()))
    this.#keepErrors = rest.failures === 'keep'
  }

  /** Whether it is looked at: what was not read of its body has to be read then. */
  hasKey({ method, header }: Pick<IdempotentRequest, 'method' | 'header'>): boolean {
    return this.#methods.has(method.toUpperCase()) && header(KEY_HEADER.toLowerCase()) !== undefined
  }

  /** How far the response to a request is held back while its handler works. */
  boundsOf(raw: object): HoldBounds {
    return { most: this.maxBody, hasLost: () => this.attempts.get(raw)?.signal.aborted === true }
  }

  /** Handle a request: `handle` is called at most once. Rejects with what is no business of HTTP. */
  async judge(request: DoorRequest, handle: Handle): Promise<DoorVerdict> {
    const { method, raw } = request
    // It came to this door before, for the application or for an outer route: it would wait for itself.
    if (this.attempts.has(raw as object)) return { state: 'pass' }
    const key = this.#methods.has(method.toUpperCase()) ? keyOf(request.header(KEY_HEADER.toLowerCase())) : undefined
    if (key === undefined) {
      const refused = this.#options.required === true && this.#methods.has(method.toUpperCase())
      return refused ? { state: 'answer', response: answerOf(keyMissing()), replayed: false } : { state: 'pass' }
    }
    if (typeof key === 'object') return { state: 'answer', response: answerOf(key), replayed: false }
    if (await this.#lacksBody(request)) return { state: 'answer', response: answerOf(bodyNotRead()), replayed: false }
    let made: MadeResponse | undefined
    let thrown: unknown
    const work = async (attempt: Attempt): Promise<StoredResponse> => {
      this.attempts.set(raw as object, attempt)
      made = await this.#inTime(handle, (attempt as OnceAttempt).lease).catch((error: unknown) => {
        thrown = error
        // What a handler throws because it was told to stop is no answer.
        const keeps = this.#keepErrors && !(error instanceof NotBegun) && !attempt.signal.aborted
        throw keeps ? attempt.final(error) : error
      })
      const { status, body } = made
      if (isToBeRetried(status) && !this.#keepErrors) throw new NotKept()
      if (body === undefined) throw attempt.final(new ResponseNotStored(status, this.maxBody))
      const response = storedResponse(made, body, this.#headers)
      await (attempt as OnceAttempt).replaceCommitted(response)
      return response
    }
    try {
      const run = { scope: this.#scope(request), fingerprint: this.#fingerprint(request) }
      let result: OnceResult<unknown> = await this.#once.run(key, run, work)
      if (isWithoutResponse(result)) {
        if (await this.#once.isRunning(key, run))
          return { state: 'answer', response: answerOf(inProgress()), replayed: false }
        // It may have ended just now.
        result = await this.#once.run(key, run, work)
      }
      const { value, replayed } = result
      // It has committed, and then thrown, or taken too long: the request is done, and there is no response to let go.
      if (!replayed && made === undefined) throw thrown
      if (!replayed) return { state: 'handled' }
      const isResponse = isStoredResponse(value)
      return { state: 'answer', response: isResponse ? value : answerOf(responseNotKept()), replayed: isResponse }
    } catch (error) {
      // What the handler has thrown is about something else, like a lock or a key inside of it.
      const isInner = error === thrown && !isLossOf(this.attempts.get(raw as object), error)
      const about = isInner ? undefined : problemOf(error)
      // What the handler has made is the truth, also where it could not be stored, unless another one takes its place.
      if (made !== undefined && (about === undefined || about.status === 503)) return { state: 'handled' }
      if (about === undefined) throw error
      return { state: 'answer', response: answerOf(about), replayed: false }
    }
  }

  /** Whether there is a body that was not read: its client has sent what no parser reads, or a parser is missing. */
  async #lacksBody({ body, hasBody, header, raw }: DoorRequest): Promise<boolean> {
    if (this.#options.fingerprint !== undefined) return false
    const isKnown = body !== undefined || !(await hasBody())
    if (isKnown && filesOf(header('content-type'), raw) !== undefined) return false
    const why = isKnown ? FILES_NOT_READ : BODY_NOT_READ
    if (!this.#hasWarned) process.emitWarning(why, { code: 'HOLDFAST_BODY_NOT_READ' })
    this.#hasWarned = true
    return true
  }

  /**
   * The process is not kept alive for it, as for the work of other recipes: its server does that, and a handler that
   * never ends must not, when that has closed.
   */
  async #inTime(handle: Handle, { keeper }: EntryLease): Promise<MadeResponse> {
    const ms = this.#handlerTimeoutMs
    let timer: Timer | undefined
    const late = new Promise<never>((_, reject) => {
      const message = `the handler of a request with an Idempotency-Key has not ended its response within ${formatDuration(ms)}`
      timer = this.#clock.timer(ms, () => reject(new Error(message)))
    })
    keeper.keepAlive.end()
    try {
      return await Promise.race([handle(), late])
    } finally {
      keeper.keepAlive.begin()
      timer?.cancel()
    }
  }

  /** A request of an unknown user would be answered with what is stored for another. */
  #scope(request: IdempotentRequest): string {
    const scope: unknown = this.#options.scope(request)
    if (typeof scope === 'string') return scope
    // If it rejects, that is told by nothing else, and would end the process.
    if (scope instanceof Promise) scope.catch(() => {})
    const got = scope instanceof Promise ? 'a promise' : scope === null ? 'null' : typeof scope
    throw new TypeError(
      `scope must answer whose request it is, as a string; got ${got}. Let authentication come before this middleware`,
    )
  }

  #fingerprint(request: IdempotentRequest): unknown {
    const { fingerprint } = this.#options
    if (fingerprint !== undefined) return refusePromise('fingerprint', fingerprint(request))
    const { method, url, body, header, raw } = request
    const files = filesOf(header('content-type'), raw) ?? []
    return [method, url, body instanceof Uint8Array ? Buffer.from(body).toString('base64') : body, ...files]
  }
}

/** Its transaction was committed by `attempt.commit()`. Its response takes the place of that value, if it comes. */
function isWithoutResponse({ value, replayed }: OnceResult<unknown>): boolean {
  return replayed && !isStoredResponse(value)
}

/** Whether it tells that the request was taken over. The work hears of that, and may throw it. */
function isLossOf(attempt: Attempt | undefined, error: unknown): boolean {
  return error instanceof LeaseLostError && error.key === (attempt as OnceAttempt | undefined)?.lease.key
}

/** As JSON, every promise is the same: all requests would be one. */
function refusePromise(name: string, value: unknown): unknown {
  if (typeof (value as { then?: unknown } | null | undefined)?.then !== 'function') return value
  // If it rejects, that is told by nothing else, and would end the process.
  if (value instanceof Promise) value.catch(() => {})
  throw new TypeError(
    `${name} must be answered at once, and not as a promise: read what it needs before this middleware`,
  )
}
