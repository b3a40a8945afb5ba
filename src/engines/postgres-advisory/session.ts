/**
 * One session on the server, on a connection of its own: what it locks is locked until it unlocks it, or ends. A
 * statement that fails, or is not answered for as long as a session may be silent, ends it: then this process need not
 * guess what it still holds.
 *
 * The server is told to give up a peer that is silent for a little longer than a lease lives without renewal, so that a
 * holder that is cut off has lost its lease by its own clock before the server frees the lock.
 */
import { randomBytes } from 'node:crypto'
import { hasMethods, neverCrash } from '../../clients/shared/drivers.ts'
import type { Clock } from '../../core/clock.ts'
import { EngineError } from '../../core/errors.ts'
import { rejectAfter } from '../../core/time-limit.ts'
import { ENGINE } from './errors.ts'
import { ADVANCE_TOKENS, BEGIN_SESSION, CHANNEL, CREATE_TABLES, SET_SETTINGS, TABLES_EXIST } from './sql.ts'

/** How long a session, and so a lease, lives in silence. */
export const SESSION_TTL_MS = 30_000

/** How long the user may take to connect a client. */
const CONNECT_LIMIT_MS = 10_000

/** How long an end in good order may take. */
export const CLOSE_LIMIT_MS = 2_000

/** Idle, then probes: 20 s + 3 of 5 s is more than 30 s. While a statement runs the server looks too. */
const SETTINGS: Readonly<Record<string, string>> = {
  tcp_keepalives_idle: '20',
  tcp_keepalives_interval: '5',
  tcp_keepalives_count: '3',
  // The same where something was sent to it, and probes are not: TCP alone would go on for a quarter of an hour.
  tcp_user_timeout: '35s',
  client_connection_check_interval: '5s',
  // What we write is for people to look at, and what the sequence loses in a crash it makes up for (sql.ts): a commit
  // need not wait for the disk.
  synchronous_commit: 'off',
  // Ours alone, and idle for as long as this process asks for nothing.
  idle_session_timeout: '0',
  statement_timeout: '0',
  lock_timeout: '0',
}

/** A connected Client of pg that is for nothing else. */
export interface SessionClient {
  /** As the server said when the connection was made. */
  readonly processID?: number | null
  query(text: string, values?: unknown[]): Promise<{ readonly rows: readonly Record<string, unknown>[] }>
  on(event: 'notification', listener: (message: { readonly payload?: string | undefined }) => void): unknown
  on(event: 'error' | 'end', listener: () => void): unknown
  end(): Promise<void>
  /** Where pg has its socket: to end a connection that answers nothing. */
  readonly connection?: { readonly stream?: { destroy(): unknown; ref?(): unknown; unref?(): unknown } }
}

export type SessionRows = readonly Readonly<Record<string, unknown>>[]

export interface AdvisorySessionEvents {
  message(payload: string): void
  lost(session: AdvisorySession): void
}

/** A client of the user's. Calls wait for it one after the other; one that comes too late for them is ended. */
export async function connectInTime(connect: () => Promise<SessionClient>, clock: Clock): Promise<SessionClient> {
  // In JavaScript it may well answer the client itself.
  const connecting = Promise.resolve(connect())
  const client = await rejectAfter(clock, CONNECT_LIMIT_MS, connecting, () => {
    // What comes late need not be a client.
    connecting.then(endLate).catch(() => undefined)
    return new Error(`connect() has not settled within ${CONNECT_LIMIT_MS} ms`)
  })
  if (hasMethods(client, 'query', 'on', 'end')) return client
  throw noClient(client)
}

function endLate(client: SessionClient): void {
  neverCrash(client)
  client.connection?.stream?.destroy()
}

export class AdvisorySession {
  readonly number: bigint = randomBytes(8).readBigInt64BE()
  readonly #client: SessionClient
  readonly #clock: Clock
  readonly #events: AdvisorySessionEvents
  #over = false

  static async begin(
    client: SessionClient,
    clock: Clock,
    events: AdvisorySessionEvents,
    sessionPooler: boolean,
  ): Promise<AdvisorySession> {
    const session = new AdvisorySession(client, clock, events)
    try {
      await session.#begin(sessionPooler)
    } catch (error) {
      session.end()
      throw error
    }
    return session
  }

  private constructor(client: SessionClient, clock: Clock, events: AdvisorySessionEvents) {
    this.#client = client
    this.#clock = clock
    this.#events = events
    // Without a listener the first blip would end the process.
    client.on('error', () => this.#lose())
    client.on('end', () => this.#lose())
    client.on('notification', ({ payload = '' }) => events.message(payload))
  }

  async #begin(sessionPooler: boolean): Promise<void> {
    await this.ask(SET_SETTINGS, [Object.keys(SETTINGS), JSON.stringify(SETTINGS)])
    const [there] = await this.ask(TABLES_EXIST)
    if (there?.made !== true) await this.ask(CREATE_TABLES)
    await this.ask(ADVANCE_TOKENS)
    const [begun] = await this.ask(BEGIN_SESSION, [String(this.number)])
    // A pooler invents the number it says at the beginning: it does not know yet which of its connections we shall
    // have.
    if (!sessionPooler && typeof this.#client.processID === 'number' && begun?.pid !== this.#client.processID)
      throw pooled()
    await this.ask(`LISTEN ${CHANNEL}`)
    // A call that is under way keeps the process alive; a connection that rests does not.
    this.#client.connection?.stream?.unref?.()
  }

  /** Nothing can be asked of it any more. */
  get over(): boolean {
    return this.#over
  }

  /**
   * The rows. One statement at a time: the engine takes turns. Where the answer and the end of the session arrive
   * together, pg tells the end first: then what the answer grants is gone already, and this rejects.
   */
  async ask(text: string, values: readonly unknown[] = []): Promise<SessionRows> {
    this.#refuseIfOver()
    const alive = this.#clock.stayAlive()
    const silent = this.#clock.timer(SESSION_TTL_MS, () => this.#lose())
    try {
      const { rows } = await this.#client.query(text, [...values])
      this.#refuseIfOver()
      return rows
    } catch (error) {
      this.#lose()
      throw error
    } finally {
      silent.cancel()
      alive.cancel()
    }
  }

  #refuseIfOver(): void {
    if (this.#over) throw new Error('the session has ended')
  }

  /** In good order if the server answers; its locks are free when this resolves. */
  async close(): Promise<void> {
    this.#over = true
    const alive = this.#clock.stayAlive()
    const insist = this.#clock.timer(CLOSE_LIMIT_MS, () => this.end())
    await this.#client.end().catch(() => undefined)
    insist.cancel()
    alive.cancel()
  }

  end(): void {
    this.#over = true
    this.#client.connection?.stream?.destroy()
  }

  #lose(): void {
    if (this.#over) return
    this.end()
    this.#events.lost(this)
  }
}

function noClient(answer: unknown): EngineError {
  const got = answer === null ? 'null' : typeof answer
  const why = `connect() must return a connected Client of pg; it returned ${got}`
  return new EngineError(ENGINE, why, { outcome: 'not-applied', transient: false })
}

function pooled(): EngineError {
  const why =
    'this connection goes through a pooler, which may give our session to another client between two statements, ' +
    'with its locks'
  const remedy =
    'Connect to the server itself; or, if the pooler is surely in session mode, say so: ' +
    "{ pooler: 'session' }, or ?pooler=session in the URL"
  return new EngineError(ENGINE, `${why}. ${remedy}`, { outcome: 'not-applied', transient: false })
}
