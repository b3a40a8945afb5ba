/**
 * How a waiter hears: one connection that sleeps in the server, and is woken by whoever lets one of ours hold.
 *
 * MySQL has no notifications. So the connection takes a named lock, by which others find it, and calls a procedure that
 * looks for news and, if there is none, sleeps. Whoever has news for us commits it, and then ends that sleep with KILL
 * QUERY, in the same call. Between two calls nobody can be woken, and need not be: the next call looks first.
 *
 * Entries that are marked as news stay so until they are renewed or leave. Which of them have been told is remembered
 * here, for a while: news older than what we have seen by a margin is old.
 */

import { isCrowded, isInterrupted, isMissing } from '../../clients/mysql/errors.ts'
import type { OwnConnection, Rows } from '../../clients/mysql/wire.ts'
import type { Clock, Timer } from '../../core/clock.ts'
import type { News } from '../../core/engine.ts'
import { type Names, renamed } from './names.ts'
import { unhex } from './replies.ts'

/** How long to wait for the watch to end, at most, and then to sleep as the watch. */
const SLEEP_S = 300
/** What lasts this much longer than both is no sleep: the connection is dead. */
const OVERSLEPT_MS = 10_000
/** News that were made this much earlier than others, and come later, are left to the next renewal. */
const MARGIN_US = 5_000_000
/** A server may end a sleep for reasons of its own, and at once. */
const BREATH_MS = 100
/** How long it may take to wake us. */
const WAKE_MS = 2000
/** How long it may take until a connection is ready to sleep. */
const SET_UP_MS = 5000
const RETRY_FIRST_MS = 50
const RETRY_LONGEST_MS = 2000

export interface EarOptions {
  readonly connect: () => Promise<OwnConnection>
  readonly clock: Clock
  readonly names: Names
  /** Our name in the tables. */
  readonly client: string
  /** Make the procedures, if they are missing. */
  make(): Promise<void>
  /** Wake ourselves. */
  wake(): Promise<unknown>
  news(news: News): void
}

export class Ear {
  readonly #options: EarOptions
  /**
   * Which news, by the id of their entry, with a minus if it was evicted; and when they were made. Tokens will not do:
   * two lines can have the same.
   */
  readonly #told = new Map<string, number>()
  #connection: OwnConnection | undefined
  #newestUs = 0
  #retryMs = RETRY_FIRST_MS
  #timer: Timer | undefined
  #checking: Timer | undefined
  #closed = false
  /** Nobody can wake us at the moment. */
  deaf = true
  /** How often a sleep has ended before its time. */
  wakes = 0

  constructor(options: EarOptions) {
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
   * Somebody may have tried to wake us in vain: a connection can be dead without anybody noticing. If we cannot wake
   * ourselves, it is, and is made anew.
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

  /** Somebody needs the connection more than we do. */
  makeRoom(): void {
    this.#retryMs = RETRY_LONGEST_MS
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
    const name = `holdfast.${this.#options.client}`
    const limit = this.#options.clock.timer(SET_UP_MS, () => connection.cut())
    try {
      await connection.ask('SET autocommit = 1')
      // Of MariaDB; MySQL has none, and no limit for procedures either.
      await connection.ask('SET max_statement_time = 0').catch(() => undefined)
      await connection.ask('SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED')
      await this.#succeed(connection, name)
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
    this.#retryMs = RETRY_FIRST_MS
    this.deaf = false
    connection.onEnd(() => this.#lost(connection))
    void this.#listen(connection)
  }

  /**
   * The name is ours alone. If somebody has it, that is an earlier connection of ours, of whose end the server does not
   * know yet.
   */
  async #succeed(connection: OwnConnection, name: string): Promise<void> {
    const [[had] = []] = await connection.ask(`SELECT IS_USED_LOCK('${name}')`)
    if (had !== null && had !== undefined) await connection.ask(`KILL CONNECTION ${Number(had)}`).catch(() => undefined)
    const [[taken] = []] = await connection.ask(`SELECT GET_LOCK('${name}', 3)`)
    if (Number(taken) !== 1) throw new Error(`the name '${name}' cannot be had`)
  }

  /** Until the connection ends. */
  async #listen(connection: OwnConnection): Promise<void> {
    while (this.#connection === connection) {
      const calledAt = this.#options.clock.now()
      const limit = this.#options.clock.timer(2 * SLEEP_S * 1000 + OVERSLEPT_MS, () => connection.cut())
      let woken = false
      try {
        woken = this.#hear(await connection.ask(this.#call())) > 0
      } catch (error) {
        woken = isInterrupted(error)
        if (isMissing(error)) await this.#options.make().catch(() => undefined)
        // After anything else, the connection is not to be trusted.
        else if (!woken) connection.cut()
      } finally {
        limit.cancel()
        this.#checked()
        this.wakes += 1
      }
      if (!woken && this.#options.clock.now() - calledAt < BREATH_MS) await this.#breath()
    }
  }

  #checked(): void {
    this.#checking?.cancel()
    this.#checking = undefined
  }

  #call(): string {
    const told = [...this.#told.keys()].join(',')
    return renamed(
      `CALL \`holdfast_listen\`(x'${this.#options.client}', ${this.#newestUs}, ${MARGIN_US}, '${told}', ${SLEEP_S})`,
      this.#options.names,
    )
  }

  #hear(rows: Rows): number {
    for (const [key, id, token, removed, expiresAtUs, newsAtUs, nowUs] of rows) {
      const evicted = Number(removed) === 1
      this.#told.set(`${evicted ? '-' : ''}${String(id)}`, Number(newsAtUs))
      // The clock may have been set back: then nothing that is told from now on would be new.
      this.#newestUs = Math.min(Math.max(this.#newestUs, Number(newsAtUs)), Number(nowUs))
      const named = { key: unhex(key), id: String(id) }
      const heldForMs = (Number(expiresAtUs) - Number(nowUs)) / 1000
      if (evicted) this.#options.news({ ...named, standing: { state: 'gone', why: 'evicted' } })
      else if (heldForMs > 0)
        this.#options.news({ ...named, standing: { state: 'held', token: BigInt(String(token)), heldForMs } })
    }
    for (const [told, at] of this.#told) if (at <= this.#newestUs - MARGIN_US) this.#told.delete(told)
    return rows.length
  }

  #breath(): Promise<void> {
    return new Promise((resolve) => {
      this.#options.clock.timer(BREATH_MS, resolve)
    })
  }

  #lost(connection: OwnConnection): void {
    if (this.#connection !== connection) return
    this.#connection = undefined
    this.deaf = true
    this.#options.news({ gap: true })
    this.#tryAgain()
  }

  #tryAgain(): void {
    if (this.#closed) return
    this.#timer = this.#options.clock.timer(this.#retryMs * (0.75 + Math.random() / 2), () => {
      this.#connect().then(
        () => this.#options.news({ gap: true }),
        () => this.#tryAgain(),
      )
    })
    this.#retryMs = Math.min(this.#retryMs * 2, RETRY_LONGEST_MS)
  }
}
