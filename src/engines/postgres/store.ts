/**
 * The store: each verb one call of a function for a whole batch, and `putIn` one inside the user's own transaction.
 * What is stored, and every decision about it, is in sql/records.sql.
 */
import type { Clock } from '../../core/clock.ts'
import type { EngineError } from '../../core/errors.ts'
import {
  type Change,
  type Got,
  type Put,
  type Store,
  type StoredSummary,
  type StoreTraits,
  VALUE_LIMIT_BYTES,
} from '../../core/store.ts'
import type { Draw, Drawn } from '../../core/store-take.ts'
import {
  askerOf,
  insideTransaction,
  type PostgresTransactionClient,
  refuseOutsideTransaction,
} from '../../transactions/postgres/client.ts'
import { notInTransaction } from '../../transactions/row-lock.ts'
import { drawArguments, drawnOf } from '../shared/draw-arguments.ts'
import { RecordSweep } from '../shared/record-sweep.ts'
import { arrayOf, numbers, texts } from './codec.ts'
import { asEngineError, ENGINE, isMissing, isRowLocked } from './errors.ts'
import { callOf, type PostgresFunction } from './function-calls.ts'
import { type PostgresNames, renamed } from './names.ts'
import { type FoundRow, type PutRow, putOf, type RecordRow, storedOf, summaryOf, valuesOf } from './record-codec.ts'

const traits: StoreTraits = {
  holding: true,
  valueLimitBytes: VALUE_LIMIT_BYTES,
  // Of the largest values: 13 MB, since a value is sent in hexadecimal digits.
  batchLimit: 100,
  takesSignal: false,
  survives:
    'the death of any client, and a crash of the server; a fail-over loses records if the promoted replica has not got ' +
    'the last commits (synchronous replication prevents that)',
}

/** How long a call waits for a record that another transaction has locked; then it fails, and can be repeated. */
const RECORD_WAIT_MS = 250
const PAGE = 500
/** How many expired records one call removes. */
const SWEPT_AT_ONCE = 1000
/** How long that may take. */
const SWEEP_MS = 500

const OPEN_ONE = "Send 'BEGIN' on this client first, or use the sql that sql.begin() gives to its function."

export interface PostgresStoreSetup {
  /** What a function answers. Rejects with an `EngineError`. */
  readonly call: (name: PostgresFunction, values: readonly string[], limitMs?: number) => Promise<string>
  readonly names: PostgresNames
  readonly clock: Clock
}

/** What a transaction of the user cannot see of a line, since it sees all as it was when it began. */
type LineFacts = readonly [holds: boolean, isEmpty: boolean, lowest: string]

export class PostgresStore implements Store {
  readonly traits: StoreTraits = traits
  readonly #call: PostgresStoreSetup['call']
  readonly #putIn: string
  readonly #table: string
  readonly #sweep: RecordSweep
  /** The tables were there: a call has been answered. */
  #isReady = false

  constructor({ call, names, clock }: PostgresStoreSetup) {
    this.#call = call
    const types = 'text text bigint bigint text boolean bigint bigint boolean boolean bigint'
    this.#putIn = callOf('put_in', types.split(' '), names)
    this.#table = renamed('public.holdfast_record', names)
    this.#sweep = new RecordSweep(clock, SWEPT_AT_ONCE, async () =>
      Number(await call('forget', [String(SWEPT_AT_ONCE)], SWEEP_MS)),
    )
  }

  async get(keys: readonly string[]): Promise<readonly Got[]> {
    const text = await this.#call('get', [texts(keys)])
    this.#isReady = true
    const [serverTimeMs, rows] = arrayOf('get', text) as [number, readonly FoundRow[]]
    return keys.map((key, index) => ({ state: 'read', stored: storedOf(key, rows[index] ?? null), serverTimeMs }))
  }

  async put(changes: readonly Change[]): Promise<readonly Put[]> {
    try {
      return await this.#put(changes)
    } catch (error) {
      const keys = new Set(changes.map(({ key }) => key))
      if (!isRowLocked(error) || keys.size === 1) throw error
      return await this.#putEach(changes, keys)
    }
  }

  async take(draws: readonly Draw[]): Promise<readonly Drawn[]> {
    const { keys, rates, parts } = drawArguments(draws)
    const values = [
      texts(keys),
      numbers(parts.map(({ place }) => place)),
      numbers(parts.map(({ cost }) => cost)),
      numbers(parts.map(({ rate }) => rate)),
      numbers(draws.map((draw) => draw.parts.length)),
      numbers(draws.map(({ bookUs }) => bookUs)),
      numbers(rates.map(({ tokenUnits }) => tokenUnits)),
      numbers(rates.map(({ stepUnits }) => stepUnits)),
      numbers(rates.map(({ stepUs }) => stepUs)),
      numbers(rates.map(({ capacity }) => capacity)),
      String(RECORD_WAIT_MS),
    ]
    const [nowUs, answers] = arrayOf('take', await this.#call('take', values)) as [number, readonly string[]]
    this.#isReady = true
    this.#sweep.afterPut()
    return draws.map((draw, index) => drawnOf(ENGINE, draw, answers[index] ?? '', nowUs))
  }

  /** Clear away before the engine is closed. */
  finish(): Promise<void> {
    return this.#sweep.finish()
  }

  /**
   * One round trip. In `repeatable read` or `serializable` three, one of them on a connection of ours: a transaction
   * there does not see whether its entry still holds.
   */
  async putIn(transaction: unknown, change: Change): Promise<Put> {
    const client = transaction as PostgresTransactionClient
    const isInside = insideTransaction(client)
    if (isInside?.() === false) throw notInTransaction('putIn', OPEN_ONE)
    // A function that is not there would abort the transaction: it is made before, outside of it.
    if (!this.#isReady) await this.get([])
    if (isInside === undefined) await refuseOutsideTransaction(client, this.#table, 'putIn', OPEN_ONE)
    const put = await this.#ask(client, change)
    if (put !== undefined) return put
    const { key, when } = change
    const facts = arrayOf('facts', await this.#call('facts', [key, when.holding ?? ''])) as unknown as LineFacts
    return (await this.#ask(client, change, facts)) as Put
  }

  async *list(prefix: string): AsyncGenerator<StoredSummary> {
    for (let [from, after] = [prefix, 'f']; ; after = 't') {
      const text = await this.#call('records', [from, after, String(PAGE)])
      const rows = arrayOf('records', text) as readonly RecordRow[]
      for (const row of rows) {
        const summary = summaryOf(row)
        if (!row[0].startsWith(prefix)) return
        if (summary !== undefined) yield summary
      }
      const last = rows.at(-1)
      if (last === undefined || rows.length < PAGE) return
      from = last[0]
    }
  }

  async #put(changes: readonly Change[]): Promise<readonly Put[]> {
    const text = await this.#call('put', [...valuesOf(changes), String(RECORD_WAIT_MS)])
    this.#isReady = true
    this.#sweep.afterPut()
    const [serverTimeMs, rows] = arrayOf('put', text) as [number, readonly PutRow[]]
    return changes.map(({ key }, index) => putOf(key, rows[index] as PutRow, serverTimeMs))
  }

  /** One record is locked, by a transaction of the user: those of the other keys are put without it. */
  async #putEach(changes: readonly Change[], keys: ReadonlySet<string>): Promise<readonly Put[]> {
    const answers = new Map<Change, Put>()
    const putKey = async (key: string): Promise<void> => {
      const group = changes.filter((change) => change.key === key)
      const puts = await this.#put(group).catch((error: EngineError) =>
        group.map((): Put => ({ state: 'failed', error })),
      )
      for (const [index, change] of group.entries()) answers.set(change, puts[index] as Put)
    }
    await Promise.all([...keys].map(putKey))
    return changes.map((change) => answers.get(change) as Put)
  }

  /** Undefined: the transaction cannot see the line as it is. */
  async #ask(client: PostgresTransactionClient, change: Change, facts?: LineFacts): Promise<Put | undefined> {
    const { key, value, ttlMs, mark, when } = change
    const { holding, absent, version, markBelow } = when
    const hex = value === null ? null : Buffer.from(value).toString('hex')
    const asked = [key, hex, ttlMs, mark, holding, absent, version, markBelow, ...(facts ?? [null, null, null])]
    const values = asked.map((one) => (one === undefined || one === null ? null : String(one)))
    const { rows } = await askerOf(client)(this.#putIn, values, 'fixed').catch((error: unknown) => {
      // Whatever else the server says is for the user, whose transaction it is: 40001 means to begin again.
      throw isMissing(error) ? asEngineError(error, 'not-applied') : error
    })
    const [serverTimeMs, [row]] = arrayOf('put_in', String(Object.values(rows[0] ?? {})[0])) as [number, [PutRow]]
    if (row[0] === 'strict') return undefined
    this.#sweep.afterPut()
    return putOf(key, row, serverTimeMs)
  }
}
