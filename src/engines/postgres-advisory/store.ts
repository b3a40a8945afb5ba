/**
 * The store, on a connection of its own: a statement that fails on that of the locks would end the session, and with it
 * every lock. It cannot check who holds (record-sql.ts), so versions are all that protects.
 */
import { isRefusal } from '../../clients/postgres/errors.ts'
import { neverCrash } from '../../clients/shared/drivers.ts'
import type { Clock } from '../../core/clock.ts'
import type { EngineCall } from '../../core/failed-call.ts'
import {
  type Change,
  type Got,
  type Put,
  type Store,
  type Stored,
  type StoredSummary,
  type StoreTraits,
  VALUE_LIMIT_BYTES,
  type When,
} from '../../core/store.ts'
import { RecordSweep } from '../shared/record-sweep.ts'
import { asStoreError, closedError, noSession } from './errors.ts'
import { CREATE_RECORDS, FORGET, GET, LIST_RECORDS, PUT, RECORDS_EXIST } from './record-sql.ts'
import type { SessionClient, SessionRows } from './session.ts'
import { ADVANCE_TOKENS, CREATE_TABLES, SET_SETTINGS, TABLES_EXIST } from './sql.ts'

const traits: StoreTraits = {
  holding: false,
  valueLimitBytes: VALUE_LIMIT_BYTES,
  batchLimit: 100,
  takesSignal: [],
  survives:
    'the death of any client, and a crash of the server; a fail-over loses records if the promoted replica has not got ' +
    'the last commits (synchronous replication prevents that)',
}

const ANSWER_MS = 10_000
const SETTINGS: Readonly<Record<string, string>> = {
  default_transaction_isolation: 'read committed',
  // A statement that the server is still at when we have given it up.
  statement_timeout: String(ANSWER_MS),
  lock_timeout: '1000',
  idle_session_timeout: '0',
}
const PAGE = 500
const SWEPT_AT_ONCE = 1000

/** What it is, value in hexadecimal digits, version, mark, and for how long it lives. */
type AdvisoryRecordRow = readonly [string, string | null, string, string, number | null]

export class PostgresAdvisoryStore implements Store {
  readonly traits: StoreTraits = traits
  readonly #connect: () => Promise<SessionClient>
  readonly #clock: Clock
  readonly #sweep: RecordSweep
  #client: Promise<SessionClient> | undefined
  #turn: Promise<unknown> = Promise.resolve()
  #closed = false

  constructor(connect: () => Promise<SessionClient>, clock: Clock) {
    this.#connect = connect
    this.#clock = clock
    this.#sweep = new RecordSweep(clock, SWEPT_AT_ONCE, async () =>
      Number((await this.#ask('put', FORGET, [SWEPT_AT_ONCE]))[0]?.removed),
    )
  }

  async get(keys: readonly string[]): Promise<readonly Got[]> {
    const [serverTimeMs, rows] = answerOf(await this.#ask('get', GET, [keys]))
    return keys.map((key, index) => ({ state: 'read', stored: storedOf(key, rows[index] ?? null), serverTimeMs }))
  }

  async put(changes: readonly Change[]): Promise<readonly Put[]> {
    const [serverTimeMs, rows] = answerOf(await this.#ask('put', PUT, valuesOf(changes)))
    this.#sweep.afterPut()
    return changes.map(({ key }, index): Put => {
      const row = rows[index] as AdvisoryRecordRow
      const { version, mark } = storedOf(key, row)
      if (row[0] === 'stored') return { state: 'stored', version, mark, serverTimeMs }
      return { state: 'refused', by: row[0] as keyof When, stored: storedOf(key, row), serverTimeMs }
    })
  }

  async *list(prefix: string): AsyncGenerator<StoredSummary> {
    for (let after: string | null = null; ; ) {
      const rows: SessionRows = await this.#ask('list', LIST_RECORDS, [prefix, after, PAGE])
      for (const { key, bytes, version, mark, lives } of rows)
        yield {
          key: String(key),
          bytes: Number(bytes),
          version: BigInt(String(version)),
          mark: BigInt(String(mark)),
          livesForMs: lives === null ? null : Number(lives),
        }
      if (rows.length < PAGE) return
      after = String(rows.at(-1)?.key)
    }
  }

  async close(): Promise<void> {
    if (this.#client !== undefined) await this.#sweep.finish()
    this.#closed = true
    const client = await this.#client?.catch(() => undefined)
    this.#client = undefined
    await client?.end().catch(() => undefined)
  }

  /** One statement at a time, as pg wants it. Rejects with an `EngineError`. */
  #ask(call: EngineCall, text: string, values: readonly unknown[] = []): Promise<SessionRows> {
    const asking = this.#turn.then(() => this.#askNow(call, text, values))
    this.#turn = asking.catch(() => undefined)
    return asking
  }

  async #askNow(call: EngineCall, text: string, values: readonly unknown[]): Promise<SessionRows> {
    if (this.#closed) throw closedError(call)
    this.#client ??= this.#open()
    const opening = this.#client
    const client = await opening.catch((error: unknown) => {
      this.#drop(opening)
      throw noSession(call, error)
    })
    const alive = this.#clock.stayAlive()
    try {
      return (await this.#withinAnswerTime(client, () => client.query(text, [...values]))).rows
    } catch (error) {
      // The server said no, and is there. After anything else the connection is not to be trusted.
      if (!isRefusal(error as Error)) this.#drop(opening, client)
      throw asStoreError(call, error)
    } finally {
      alive.cancel()
    }
  }

  /** The connection is ended if this takes longer: then it fails. */
  async #withinAnswerTime<Answer>(client: SessionClient, work: () => Promise<Answer>): Promise<Answer> {
    const silent = this.#clock.timer(ANSWER_MS, () => client.connection?.stream?.destroy())
    try {
      return await work()
    } finally {
      silent.cancel()
    }
  }

  async #open(): Promise<SessionClient> {
    const client = await this.#connect()
    neverCrash(client)
    try {
      // Calls wait for the opening one after the other: a silent server must not hold up all that follow.
      await this.#withinAnswerTime(client, () => prepare(client))
    } catch (error) {
      // The server may have said no, and is connected still: the next call opens another one.
      client.connection?.stream?.destroy()
      throw error
    }
    client.connection?.stream?.unref?.()
    return client
  }

  #drop(opening: Promise<SessionClient>, client?: SessionClient): void {
    if (this.#client === opening) this.#client = undefined
    client?.connection?.stream?.destroy()
  }
}

async function prepare(client: SessionClient): Promise<void> {
  await client.query(SET_SETTINGS, [Object.keys(SETTINGS), JSON.stringify(SETTINGS)])
  if ((await client.query(TABLES_EXIST)).rows[0]?.made !== true) await client.query(CREATE_TABLES)
  if ((await client.query(RECORDS_EXIST)).rows[0]?.made !== true) await client.query(CREATE_RECORDS)
  await client.query(ADVANCE_TOKENS)
}

function answerOf([row]: SessionRows): [number, readonly (AdvisoryRecordRow | null)[]] {
  const [time, rows] = JSON.parse(String(row?.answer)) as [number, readonly (AdvisoryRecordRow | null)[] | null]
  return [time, rows ?? []]
}

function storedOf(key: string, row: AdvisoryRecordRow | null): Stored {
  if (row === null) return { key, value: null, version: 0n, mark: 0n, livesForMs: null }
  const [, hex, version, mark, livesForMs] = row
  const value = hex === null ? null : Buffer.from(hex, 'hex')
  return { key, value, version: BigInt(version), mark: BigInt(mark), livesForMs }
}

/** So long a ttl is as good as none: the server knows no later times. */
const LONGEST_TTL_MS = 100 * 31_557_600_000

/** One array for each parameter of `PUT`. */
function valuesOf(changes: readonly Change[]): unknown[] {
  const numbers = (given: (change: Change) => bigint | number | boolean | null | undefined): string =>
    `{${changes.map((change) => given(change) ?? 'NULL').join(',')}}`
  return [
    changes.map(({ key }) => key),
    changes.map(({ value }) => (value === null ? null : Buffer.from(value).toString('hex'))),
    numbers(({ ttlMs }) => (ttlMs === null ? null : Math.min(ttlMs, LONGEST_TTL_MS))),
    numbers(({ mark }) => mark),
    numbers(({ when }) => when.absent),
    numbers(({ when }) => when.version),
    numbers(({ when }) => when.markBelow),
  ]
}
