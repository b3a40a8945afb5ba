/**
 * The store: each verb one call of a function for a whole batch, and `putIn` one inside the user's own transaction.
 * What is stored, and every decision about it, is in sql/records.sql.
 */
import type { Clock } from '../../core/clock.ts'
import type { Claim, EntryName } from '../../core/engine.ts'
import type { EngineError } from '../../core/errors.ts'
import {
  type Change,
  type Entered,
  type Entrance,
  type Got,
  type Leaving,
  type Put,
  type Store,
  type StoredSummary,
  type StoreTraits,
  VALUE_LIMIT_BYTES,
} from '../../core/store.ts'
import type { PoolAnswer, PoolStep } from '../../core/store-hold.ts'
import type { Draw, Drawn } from '../../core/store-take.ts'
import {
  askerOf,
  insideTransaction,
  type PostgresTransactionClient,
  refuseOutsideTransaction,
} from '../../transactions/postgres/client.ts'
import { notInTransaction } from '../../transactions/row-lock.ts'
import { drawArguments, drawnOf } from '../shared/draw-arguments.ts'
import { poolAnswersOf, poolsOf, textOfLines } from '../shared/pool-codec.ts'
import { RecordSweep } from '../shared/record-sweep.ts'
import { arrayOf, numbers, texts } from './codec.ts'
import { asEngineError, ENGINE, isMissing, isRowLocked } from './errors.ts'
import { callOf, type PostgresFunction } from './function-calls.ts'
import { type PostgresNames, renamed } from './names.ts'
import {
  type EnteredRow,
  enteredOf,
  type FoundRow,
  freeValuesOf,
  type PostgresRecordRow,
  type PutRow,
  putOf,
  recordSummaryOf,
  storedOf,
  valuesOf,
} from './record-codec.ts'

const traits: StoreTraits = {
  holding: true,
  valueLimitBytes: VALUE_LIMIT_BYTES,
  // Of the largest values: 13 MB, since a value is sent in hexadecimal digits.
  batchLimit: 100,
  // Two connections work on two halves. Draws do not wait for the disk, which would make both wait.
  splitDrawsFrom: 16,
  takesSignal: [],
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
  readonly lines: LinesBeside
}

/** What the engine has to know of lines that are entered and left by its store. */
export interface LinesBeside {
  /** Under which name this process hears of its entries. */
  readonly listensAs: () => string
  readonly entered: (claims: readonly Claim[]) => void
  readonly left: (places: readonly EntryName[]) => void
}

/** What a transaction of the user cannot see of a line, since it sees all as it was when it began. */
type LineFacts = readonly [holds: boolean, isEmpty: boolean, lowest: string]

export class PostgresStore implements Store {
  readonly traits: StoreTraits = traits
  readonly #call: PostgresStoreSetup['call']
  readonly #putIn: string
  readonly #table: string
  readonly #sweep: RecordSweep
  readonly #lines: LinesBeside
  /** A call has succeeded, so the tables are there. */
  #isReady = false

  constructor({ call, names, clock, lines }: PostgresStoreSetup) {
    this.#call = call
    this.#lines = lines
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
    return aroundLockedRecords(
      changes,
      ({ key }) => key,
      (some) => this.#put(some),
      failedPut,
    )
  }

  async putEntering(entrances: readonly Entrance[]): Promise<readonly Entered[]> {
    this.#lines.entered(entrances.map(({ claim }) => claim))
    return aroundLockedRecords(
      entrances,
      ({ claim }) => claim.key,
      (some) => this.#begin(some),
      failedEntrance,
    )
  }

  async putLeaving(leavings: readonly Leaving[]): Promise<readonly Put[]> {
    const puts = await aroundLockedRecords(
      leavings,
      ({ change }) => change.key,
      (some) => this.#end(some),
      failedPut,
    )
    const gone = leavings.filter((_, index) => puts[index]?.state === 'stored')
    this.#lines.left(gone.map(({ change, id }) => ({ key: change.key, id })))
    return puts
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

  async hold(steps: readonly PoolStep[]): Promise<readonly PoolAnswer[]> {
    const { keys, places } = poolsOf(steps)
    const values = [
      texts(keys),
      numbers(places),
      texts(steps.map(({ verb }) => verb)),
      texts(steps.map(({ id }) => id)),
      texts(steps.map(({ lines }) => textOfLines(lines))),
      numbers(steps.map(({ ms }) => Math.ceil(ms))),
      numbers(steps.map(({ wantMs }) => Math.ceil(wantMs))),
      numbers(steps.map(({ flag }) => Number(flag))),
      String(RECORD_WAIT_MS),
    ]
    const answers = arrayOf('hold', await this.#call('hold', values))
    this.#isReady = true
    const words = answers.map((answer) => String(answer).split('\t'))
    return poolAnswersOf(ENGINE, words, steps.length)
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
    const facts = arrayOf('put', await this.#call('facts', [key, when.holding ?? ''])) as unknown as LineFacts
    return (await this.#ask(client, change, facts)) as Put
  }

  async *list(prefix: string): AsyncGenerator<StoredSummary> {
    for (let [from, after] = [prefix, 'f']; ; after = 't') {
      const text = await this.#call('records', [from, after, String(PAGE)])
      const rows = arrayOf('list', text) as readonly PostgresRecordRow[]
      for (const row of rows) {
        const summary = recordSummaryOf(row)
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

  async #begin(entrances: readonly Entrance[]): Promise<readonly Entered[]> {
    const claims = entrances.map(({ claim }) => claim)
    const values = [
      ...freeValuesOf(entrances.map(({ change }) => change)),
      texts(claims.map(({ id }) => id)),
      texts(claims.map(({ holder }) => holder)),
      numbers(claims.map(({ ttlMs }) => ttlMs)),
      this.#lines.listensAs(),
      String(RECORD_WAIT_MS),
    ]
    const text = await this.#call('begin', values, Math.max(...claims.map(({ ttlMs }) => ttlMs)))
    this.#isReady = true
    this.#sweep.afterPut()
    const [serverTimeMs, rows] = arrayOf('put', text) as [number, readonly EnteredRow[]]
    return entrances.map((entrance, index) => enteredOf(entrance, rows[index] as EnteredRow, serverTimeMs))
  }

  async #end(leavings: readonly Leaving[]): Promise<readonly Put[]> {
    const values = [
      ...freeValuesOf(leavings.map(({ change }) => change)),
      texts(leavings.map(({ id }) => id)),
      this.#lines.listensAs(),
      String(RECORD_WAIT_MS),
    ]
    const [serverTimeMs, rows] = arrayOf('put', await this.#call('end', values)) as [number, readonly PutRow[]]
    this.#sweep.afterPut()
    return leavings.map(({ change }, index) => putOf(change.key, rows[index] as PutRow, serverTimeMs))
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
      throw isMissing(error) ? asEngineError('put', error, { outcome: 'not-applied' }) : error
    })
    const [serverTimeMs, [row]] = arrayOf('put', String(Object.values(rows[0] ?? {})[0])) as [number, [PutRow]]
    if (row[0] === 'strict') return undefined
    this.#sweep.afterPut()
    return putOf(key, row, serverTimeMs)
  }
}

function failedPut(error: EngineError): Put {
  return { state: 'failed', error }
}

function failedEntrance(error: EngineError): Entered {
  const failure = { state: 'failed', error } as const
  return { standing: failure, put: failure }
}

/** If one record is locked, by a transaction of the user, then what is asked for other keys is done without it. */
async function aroundLockedRecords<One, Answer>(
  items: readonly One[],
  keyOf: (item: One) => string,
  call: (items: readonly One[]) => Promise<readonly Answer[]>,
  failed: (error: EngineError) => Answer,
): Promise<readonly Answer[]> {
  try {
    return await call(items)
  } catch (error) {
    const keys = new Set(items.map(keyOf))
    if (!isRowLocked(error) || keys.size === 1) throw error
    const answers = new Map<One, Answer>()
    const callFor = async (key: string): Promise<void> => {
      const group = items.filter((item) => keyOf(item) === key)
      const some = await call(group).catch((why: EngineError) => group.map(() => failed(why)))
      for (const [index, item] of group.entries()) answers.set(item, some[index] as Answer)
    }
    await Promise.all([...keys].map(callFor))
    return items.map((item) => answers.get(item) as Answer)
  }
}
