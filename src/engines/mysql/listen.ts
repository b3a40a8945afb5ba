/**
 * How a waiter hears that it holds: one connection of this process sleeps in the server, and the process that lets the
 * waiter hold ends that sleep.
 *
 * MySQL has no notifications. So the connection takes a named lock, `holdfast.<engineId>`, by which other processes
 * find it. Then it calls the procedure `listen`, which looks for news and sleeps if there is none. A process that lets
 * one of our waiters hold, or evicts it, first commits that; then, in the same call, it ends our sleep with KILL QUERY.
 * We call `listen` again, and it answers with the news. A wake-up that comes between two calls is lost, but not its
 * news: the next call looks before it sleeps.
 *
 * News is not a message that is taken away by reading it. It is a mark (`news_at`, the time it was made) on our entry,
 * and stays until we renew the entry or it leaves the line. So that `listen` does not answer with the same news for
 * ever, each call tells it what we have heard already: the time of the newest news, and the names of all news that were
 * made within a margin before that. What is older than the margin counts as heard.
 */

import { ERRNO, errnoOf, isMissing } from '../../clients/mysql/errors.ts'
import type { OwnMysqlConnection, ResultRows } from '../../clients/mysql/wire.ts'
import { RetryPause } from '../../clients/shared/retry-pause.ts'
import type { Clock, Timer } from '../../core/clock.ts'
import type { News } from '../../core/engine.ts'
import { unhex } from './codec.ts'
import { isCrowded } from './errors.ts'
import { type MysqlNames, renamed } from './names.ts'

/**
 * Of all connections that listen, one sleeps and the others wait for its named lock: see sql/call.sql. This limits the
 * wait for the lock, and again the sleep after it.
 */
const SLEEP_S = 300
/** A call may last twice as long as `SLEEP_S`. One that lasts this much longer hangs on a dead connection. */
const OVERSLEPT_MS = 10_000
/** News older than the newest by more than this are not told by the server: the waiter's next renewal finds them. */
const MARGIN_US = 5_000_000
/** A server may end a sleep for reasons of its own, and at once: then this long is waited before the next call. */
const PAUSE_MS = 100
/** How long it may take until this process is woken by itself. */
const WAKE_MS = 2000
/** How long it may take until a connection is ready to listen. */
const SET_UP_MS = 5000
/** As in sql/user_code.sql. */
const USER_CODE = `LOWER(HEX(CRC32(SUBSTRING_INDEX(USER(), '@', 1))))`

export interface MysqlListenerSetup {
  readonly connect: () => Promise<OwnMysqlConnection>
  readonly clock: Clock
  readonly names: MysqlNames
  /** What the tables call this engine object. */
  readonly engineId: string
  /** Make the procedures, if they are missing. */
  make(): Promise<void>
  /** Wake this connection, as another process would. */
  wake(): Promise<unknown>
  news(news: News): void
}

export class MysqlListener {
  readonly #options: MysqlListenerSetup
  /** The news that were heard: by their names (see sql/call.sql), when they were made. */
  readonly #heard = new Map<string, number>()
  readonly #retryPause = new RetryPause({ firstMs: 50, longestMs: 2000 })
  #connection: OwnMysqlConnection | undefined
  #newestUs = 0
  #timer: Timer | undefined
  #checking: Timer | undefined
  #closed = false
  /** There is no connection that another process could wake. */
  deaf = true
  /** How often a sleep has ended before its time. */
  wakes = 0

  constructor(options: MysqlListenerSetup) {
    this.#options = options
  }

  /** Rejects if the server cannot be reached. If it has no connection to spare, waiters poll until it has. */
  async open(): Promise<void> {
    try {
      await this.#connect()
    } catch (error) {
      if (!isCrowded(error)) throw error
      this.#tryAgain()
    }
  }

  /**
   * Another process may have tried to wake us in vain: a connection can be dead without a sign of it. So this process
   * wakes itself. If that fails, the connection is dead, and is made anew.
   */
  check(): void {
    const connection = this.#connection
    if (connection === undefined || this.#checking !== undefined) return
    this.#checking = this.#options.clock.timer(WAKE_MS, () => {
      this.#checking = undefined
      connection.cut()
    })
    this.#options.wake().catch(() => this.#checked())
  }

  /** The server has no connection to spare for a call, which needs it more: give up this one. */
  makeRoom(): void {
    this.#retryPause.skipToLongest()
    this.#connection?.cut()
  }

  /** Whether there was a connection to end. */
  close(): boolean {
    this.#closed = true
    this.#timer?.cancel()
    this.#checked()
    const connection = this.#connection
    this.#connection = undefined
    connection?.cut()
    return connection !== undefined
  }

  async #connect(): Promise<void> {
    const connection = await this.#options.connect()
    const name = `holdfast.${this.#options.engineId}`
    const limit = this.#options.clock.timer(SET_UP_MS, () => connection.cut())
    try {
      await connection.ask('SET autocommit = 1')
      // What is asked has to mean the same everywhere: there is a mode in which an empty text is null.
      await connection.ask(`SET SESSION sql_mode = 'STRICT_ALL_TABLES'`)
      // MySQL has no such setting, and no limit for procedures either.
      await connection.ask('SET max_statement_time = 0').catch(() => undefined)
      await connection.ask('SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED')
      await this.#takeName(connection, name)
    } catch (error) {
      connection.cut()
      throw error
    } finally {
      limit.cancel()
    }
    if (this.#closed) {
      connection.cut()
      return
    }
    this.#connection = connection
    this.#retryPause.reset()
    this.deaf = false
    connection.onEnd(() => this.#lost(connection))
    void this.#listen(connection)
  }

  /**
   * No other process uses this name. A connection that has it is an earlier one of this process, of whose end the
   * server does not know yet.
   */
  async #takeName(connection: OwnMysqlConnection, name: string): Promise<void> {
    const [[had] = []] = await connection.ask(`SELECT IS_USED_LOCK('${name}')`)
    if (had !== null && had !== undefined) await connection.ask(`KILL CONNECTION ${Number(had)}`).catch(() => undefined)
    const [[taken] = []] = await connection.ask(`SELECT GET_LOCK('${name}', 3)`)
    if (Number(taken) !== 1) throw new Error(`listen: the named lock '${name}' cannot be had`)
    // By this one, waiters of other processes know whether this process may wake them: see sql/line.sql.
    await connection.ask(`SELECT GET_LOCK(CONCAT('${name}.', ${USER_CODE}), 3)`)
  }

  /** Call `listen` again and again, until the connection ends. */
  async #listen(connection: OwnMysqlConnection): Promise<void> {
    while (this.#connection === connection) {
      const calledAt = this.#options.clock.now()
      const limit = this.#options.clock.timer(2 * SLEEP_S * 1000 + OVERSLEPT_MS, () => connection.cut())
      let woken = false
      try {
        woken = this.#hear(await connection.ask(this.#call())) > 0
      } catch (error) {
        woken = errnoOf(error) === ERRNO.queryInterrupted
        if (isMissing(error)) await this.#options.make().catch(() => undefined)
        // After anything else, the connection is not to be trusted.
        else if (!woken) connection.cut()
      } finally {
        limit.cancel()
        this.#checked()
        this.wakes += 1
      }
      if (!woken && this.#options.clock.now() - calledAt < PAUSE_MS) await this.#pause()
    }
  }

  #checked(): void {
    this.#checking?.cancel()
    this.#checking = undefined
  }

  #call(): string {
    const heard = [...this.#heard.keys()].join(',')
    return renamed(
      `CALL \`holdfast_listen\`(x'${this.#options.engineId}', ${this.#newestUs}, ${MARGIN_US}, '${heard}', ${SLEEP_S})`,
      this.#options.names,
    )
  }

  #hear(rows: ResultRows): number {
    for (const [key, id, token, expiresAtUs, name, newsAtUs, nowUs] of rows) {
      this.#heard.set(String(name), Number(newsAtUs))
      // The server's clock may have been set back: then all news from now on would seem old.
      this.#newestUs = Math.min(Math.max(this.#newestUs, Number(newsAtUs)), Number(nowUs))
      const named = { key: unhex(key), id: String(id) }
      const heldForMs = (Number(expiresAtUs) - Number(nowUs)) / 1000
      if (String(name).startsWith('~')) this.#options.news(named)
      else if (String(name).startsWith('-'))
        this.#options.news({ ...named, standing: { state: 'gone', why: 'evicted' } })
      else if (heldForMs > 0)
        this.#options.news({ ...named, standing: { state: 'held', token: BigInt(String(token)), heldForMs } })
    }
    for (const [id, at] of this.#heard) if (at <= this.#newestUs - MARGIN_US) this.#heard.delete(id)
    return rows.length
  }

  #pause(): Promise<void> {
    return new Promise((resolve) => {
      this.#options.clock.timer(PAUSE_MS, resolve)
    })
  }

  #lost(connection: OwnMysqlConnection): void {
    if (this.#connection !== connection) return
    this.#connection = undefined
    this.deaf = true
    this.#options.news({ gap: true })
    this.#tryAgain()
  }

  #tryAgain(): void {
    if (this.#closed) return
    this.#timer = this.#options.clock.timer(this.#retryPause.next() * (0.75 + Math.random() / 2), () => {
      this.#connect().then(
        () => this.#options.news({ gap: true }),
        () => this.#tryAgain(),
      )
    })
  }
}
