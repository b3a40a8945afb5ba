/**
 * The connection of a session: the one that is in use, or the next one. When it fails, the session is taken up again at
 * another server, by its id and password.
 *
 * A call that was under way then is of unknown outcome, and is never sent again: its caller decides. A call that was
 * not sent yet waits for the next connection, for a while. A call keeps the process alive until it is answered.
 */
import type { Clock } from '../../core/clock.ts'
import { KeepAlive } from '../../core/keep-alive.ts'
import type { Endpoint, TlsCertificates } from '../shared/endpoint.ts'
import { type RequestPlan, ZooKeeperConnection } from './connection.ts'
import { answeredError, connectionLost, hasCode, sessionExpired, wasDecided, ZooKeeperError } from './errors.ts'
import type { NodeEvent } from './messages.ts'
import { SessionLife } from './session-life.ts'

/** Who a client says it is. */
export interface ZooKeeperAuth {
  /** `digest`, as a rule. */
  readonly scheme: string
  /** For `digest`: `user:password`. */
  readonly credentials: string
}

export interface ZooKeeperServers {
  readonly endpoints: readonly Endpoint[]
  readonly tls?: TlsCertificates | undefined
  readonly auth?: ZooKeeperAuth | undefined
  /** The node that counts as `/` for this client: `/app`. Empty: the root of the server. */
  readonly chroot: string
}

export interface SessionConnectionOptions {
  readonly servers: ZooKeeperServers
  readonly clock: Clock
  readonly timeoutMs: number
  event(event: NodeEvent): void
  /** The messages that set the watches again. */
  watches(lastZxid: bigint): readonly Buffer[]
  reconnected(): void
  ended(error: ZooKeeperError): void
}

/** `writes`: its answer proves that the session lives. See session-life.ts. */
export type CallPlan<Answer> = RequestPlan<Answer> & { readonly writes: boolean }

const LAST_XID = 2 ** 31 - 1
const NO_SESSION = 0n
const NO_PASSWORD = Buffer.alloc(16)
/** How long a call waits for a connection. */
const CALL_LIMIT_MS = 2_500
/**
 * How long one server has for the handshake: for a new session the longest; else so much of the session time, within
 * these limits.
 */
const HANDSHAKE_SHARE = 1 / 6
const HANDSHAKE_SHORTEST_MS = 400
const HANDSHAKE_LONGEST_MS = 2_000
/**
 * How long to pause after all servers have failed: doubled each time, up to so much of the session time. And never for
 * long against the limit of a call: one that is made just after an outage has to find a connection in time.
 */
const PAUSE_FIRST_MS = 50
const PAUSE_LONGEST_SHARE = 1 / 16
const PAUSE_LONGEST_MS = 500
/**
 * After how many session times without a server a session is given up. It has ended by then, unless no server served:
 * and for no caller it counts any more. Servers whose data were lost, or set back, would never take it up again: they
 * refuse a client that has seen a later transaction than theirs.
 */
const GIVEN_UP_AFTER = 2
/** How long a server has to end a session that is closed. */
const CLOSE_LIMIT_MS = 1_000

export class SessionConnection {
  readonly life: SessionLife = new SessionLife()
  readonly #options: SessionConnectionOptions
  readonly #clock: Clock
  readonly #keepAlive: KeepAlive
  readonly #endpoints: readonly Endpoint[]
  #id = NO_SESSION
  #password: Buffer = NO_PASSWORD
  #timeoutMs: number
  #zxid = 0n
  /**
   * The number of the newest request. It goes on over all connections of the session: a server knows requests by their
   * session and number, wherever they came in. If a late request of an earlier connection had the number of a new one,
   * the new one would get the answer to the late one.
   */
  #xid = 0
  #nextEndpoint = 0
  #connection: ZooKeeperConnection | undefined
  /** The connection whose handshake is under way. */
  #attempt: ZooKeeperConnection | undefined
  #connecting: Promise<ZooKeeperConnection> | undefined
  /** Why the last attempt failed. */
  #lastFailure: ZooKeeperError | undefined
  #end: ZooKeeperError | undefined
  #wakePause: (() => void) | undefined

  constructor(options: SessionConnectionOptions) {
    this.#options = options
    this.#clock = options.clock
    this.#keepAlive = new KeepAlive(options.clock)
    this.#timeoutMs = options.timeoutMs
    this.#endpoints = shuffled(options.servers.endpoints)
  }

  /** The id of the session; 0 before the first connection. */
  get id(): bigint {
    return this.#id
  }

  /** The session time, as the server has granted it. */
  get timeoutMs(): number {
    return this.#timeoutMs
  }

  /** Why the session has ended, if it has. */
  get end(): ZooKeeperError | undefined {
    return this.#end
  }

  get endpoint(): Endpoint | undefined {
    return this.#connection?.endpoint
  }

  async connect(): Promise<void> {
    this.#keepAlive.begin()
    try {
      await this.#connected()
    } finally {
      this.#keepAlive.end()
    }
  }

  /** End the session, with all its ephemeral nodes. */
  async close(): Promise<void> {
    const connection = this.#connection
    this.#finish(new ZooKeeperError(-4, 'the session was closed', { refused: true, lasting: true }))
    if (connection?.usable !== true) return
    this.#keepAlive.begin()
    const limit = this.#clock.timer(CLOSE_LIMIT_MS, () => connection.close())
    await connection.closeSession()
    limit.cancel()
    this.#keepAlive.end()
  }

  /** Close the connection, and leave the session to run out. */
  abandon(): void {
    const connection = this.#connection
    this.#finish(new ZooKeeperError(-4, 'the session was abandoned', { refused: true, lasting: true }))
    connection?.close()
  }

  async call<Answer>(plan: CallPlan<Answer>): Promise<Answer> {
    this.#keepAlive.begin()
    try {
      const connection = this.#connection?.usable === true ? this.#connection : await this.#connected()
      return await connection.request(plan, (sentAt, code) => {
        if (plan.writes && wasDecided(code) && connection === this.#connection) this.life.written(sentAt)
      })
    } catch (error) {
      if (hasCode(error, 'sessionExpired')) this.#expire()
      else if (hasCode(error, 'sessionMoved')) this.#connection?.close()
      throw error
    } finally {
      this.#keepAlive.end()
    }
  }

  /** The connection in use, or the next one. Rejects if none is had within the limit, or the session has ended. */
  #connected(): Promise<ZooKeeperConnection> {
    if (this.#end !== undefined) return Promise.reject(this.#ended())
    if (this.#connection?.usable === true) return Promise.resolve(this.#connection)
    this.#connecting ??= this.#reconnect().finally(() => {
      this.#connecting = undefined
    })
    const connecting = this.#connecting
    return new Promise((resolve, reject) => {
      const limit = this.#clock.timer(CALL_LIMIT_MS, () => {
        const why = this.#lastFailure?.message ?? `no server has answered within ${CALL_LIMIT_MS} ms`
        reject(connectionLost(why, { refused: true, cause: this.#lastFailure }))
      })
      connecting.then(resolve, reject).finally(() => limit.cancel())
    })
  }

  /**
   * Try one server after the other, again and again. It ends with a connection, with the end of the session, or, if
   * every server has refused for good, with that. For a new session each server is tried once.
   */
  async #reconnect(): Promise<ZooKeeperConnection> {
    const giveUpAt = this.#clock.now() + this.#timeoutMs * GIVEN_UP_AFTER
    const longestMs = Math.min(Math.max(this.#timeoutMs * PAUSE_LONGEST_SHARE, PAUSE_FIRST_MS), PAUSE_LONGEST_MS)
    for (let pauseMs = PAUSE_FIRST_MS; ; pauseMs = Math.min(2 * pauseMs, longestMs)) {
      let lasting = 0
      for (let tried = 0; tried < this.#endpoints.length; tried += 1) {
        if (this.#end !== undefined) throw this.#ended()
        const connection = await this.#tryNextEndpoint()
        if (connection !== undefined) return connection
        if (this.#lastFailure?.lasting === true) lasting += 1
      }
      // A session that has not begun has nothing to lose: its caller is told at once.
      if (lasting === this.#endpoints.length || this.#id === NO_SESSION) throw this.#lastFailure as ZooKeeperError
      if (this.#clock.now() > giveUpAt) this.#expire()
      else await this.#pause(pauseMs * (0.5 + Math.random() / 2))
    }
  }

  async #tryNextEndpoint(): Promise<ZooKeeperConnection | undefined> {
    const endpoint = this.#endpoints[this.#nextEndpoint % this.#endpoints.length] as Endpoint
    this.#nextEndpoint += 1
    const { servers, timeoutMs } = this.#options
    const sentAt = this.#clock.now()
    const isNew = this.#id === NO_SESSION
    const connection = new ZooKeeperConnection({
      endpoint,
      tls: servers.tls,
      clock: this.#clock,
      request: { lastZxid: this.#zxid, timeoutMs, sessionId: this.#id, password: this.#password },
      limitMs: isNew ? HANDSHAKE_LONGEST_MS : this.#handshakeMs(),
      nextXid: () => this.#nextXid(),
      sent: (at) => this.#connection === connection && this.life.sent(at),
      event: (event) => this.#options.event(event),
      zxid: (zxid) => {
        if (zxid > this.#zxid) this.#zxid = zxid
      },
    })
    this.#attempt = connection
    try {
      const response = await connection.ready
      if (this.#end !== undefined) {
        connection.close()
        throw this.#ended()
      }
      if (response.timeoutMs <= 0) {
        connection.close()
        this.#expire()
        throw this.#ended()
      }
      this.#id = response.sessionId
      this.#password = response.password
      this.#timeoutMs = response.timeoutMs
      if (isNew) this.life.begun(response.timeoutMs, sentAt)
      else this.life.attached(response.timeoutMs, sentAt)
      this.#use(connection, isNew)
      return connection
    } catch (error) {
      if (this.#end !== undefined) throw error
      this.#lastFailure = error as ZooKeeperError
      return undefined
    } finally {
      this.#attempt = undefined
    }
  }

  #nextXid(): number {
    this.#xid = this.#xid === LAST_XID ? 1 : this.#xid + 1
    return this.#xid
  }

  #handshakeMs(): number {
    return Math.min(Math.max(this.#timeoutMs * HANDSHAKE_SHARE, HANDSHAKE_SHORTEST_MS), HANDSHAKE_LONGEST_MS)
  }

  #use(connection: ZooKeeperConnection, isNew: boolean): void {
    this.#connection = connection
    const { auth } = this.#options.servers
    if (auth !== undefined) connection.authenticate(auth.scheme, auth.credentials)
    connection.setWatches(this.#options.watches(this.#zxid))
    void connection.closed.then((error) => this.#lost(connection, error))
    if (!isNew) queueMicrotask(() => this.#end === undefined && this.#options.reconnected())
  }

  #lost(connection: ZooKeeperConnection, error: ZooKeeperError): void {
    if (this.#connection !== connection) return
    this.#connection = undefined
    this.#lastFailure = error
    if (this.#end !== undefined) return
    if (hasCode(error, 'authFailed')) {
      this.#finish(error)
      this.#options.ended(error)
      return
    }
    // At once, whether or not a call waits for it: the session must not run out.
    this.#connected().catch(() => {})
  }

  #expire(): void {
    if (this.#end !== undefined) return
    const error = sessionExpired({ refused: true })
    const connection = this.#connection
    this.#finish(error)
    connection?.close()
    this.#options.ended(error)
  }

  #finish(error: ZooKeeperError): void {
    this.#end ??= error
    this.#attempt?.close()
    this.#connection = undefined
    this.#wakePause?.()
  }

  /** A new error for each caller, so that each has its own stack. */
  #ended(): ZooKeeperError {
    const { code, message, lasting } = this.#end ?? answeredError(-4, 'ended')
    return new ZooKeeperError(code, message, { refused: true, lasting, cause: this.#end })
  }

  #pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const end = (): void => {
        timer.cancel()
        this.#wakePause = undefined
        resolve()
      }
      const timer = this.#clock.timer(ms, end)
      this.#wakePause = end
    })
  }
}

function shuffled<Item>(items: readonly Item[]): readonly Item[] {
  const all = [...items]
  for (let left = all.length - 1; left > 0; left -= 1) {
    const other = Math.floor(Math.random() * (left + 1))
    ;[all[left], all[other]] = [all[other] as Item, all[left] as Item]
  }
  return all
}
