/**
 * The store: each verb one call of a procedure for a whole batch, and `putIn` inside the user's own transaction. Every
 * decision about records is in sql/records.sql.
 */
import { isMissing } from '../../clients/mysql/errors.ts'
import type { Clock } from '../../core/clock.ts'
import type { EngineError } from '../../core/errors.ts'
import { unexpectedAnswer, withOutcome } from '../../core/failed-call.ts'
import {
  type Change,
  type Got,
  type Put,
  type Store,
  type StoredSummary,
  type StoreTraits,
  VALUE_LIMIT_BYTES,
} from '../../core/store.ts'
import type { PoolAnswer, PoolStep } from '../../core/store-hold.ts'
import type { Draw, Drawn, DrawPart } from '../../core/store-take.ts'
import { checkClient, type MysqlTransactionClient, resultOfCall } from '../../transactions/mysql/client.ts'
import { notInTransaction } from '../../transactions/row-lock.ts'
import { drawArguments, drawnOf } from '../shared/draw-arguments.ts'
import { poolAnswersOf } from '../shared/pool-codec.ts'
import { RecordSweep } from '../shared/record-sweep.ts'
import { endOf, hex } from './codec.ts'
import { ENGINE, isRowLocked } from './errors.ts'
import { type MysqlNames, renamed } from './names.ts'
import type { MysqlCaller, MysqlCallOptions } from './procedure-calls.ts'
import {
  getArgument,
  gotOf,
  holdArguments,
  type MysqlRecordRow,
  putArguments,
  putInArguments,
  putOf,
  recordSummaryOf,
  rowsOf,
} from './record-codec.ts'

const traits: StoreTraits = {
  holding: true,
  valueLimitBytes: VALUE_LIMIT_BYTES,
  batchLimit: 100,
  takesSignal: ['get', 'put', 'take', 'hold'],
  survives:
    'the death of any client, and with innodb_flush_log_at_trx_commit = 1, the default, a crash of the server; a ' +
    'fail-over loses records if the promoted replica has not got the last commits',
}

/** Large values go in several calls: a server takes no statement above max_allowed_packet, 4 MB with some. */
const CALL_BYTES = 1_000_000
const PAGE = 500
/** How many expired records one call removes. Each is two statements of the procedure. */
const SWEPT_AT_ONCE = 200
const SWEEP_MS = 1000

export class MysqlStore implements Store {
  readonly traits: StoreTraits = traits
  readonly #caller: MysqlCaller
  readonly #names: MysqlNames
  readonly #sweep: RecordSweep

  constructor(caller: MysqlCaller, names: MysqlNames, clock: Clock) {
    this.#caller = caller
    this.#names = names
    this.#sweep = new RecordSweep(clock, SWEPT_AT_ONCE, async () => {
      const sets = await caller.call('forget', [String(SWEPT_AT_ONCE)], { limitMs: SWEEP_MS })
      return Number(sets[0]?.[0]?.[0])
    })
  }

  async get(keys: readonly string[], signal?: AbortSignal): Promise<readonly Got[]> {
    const sets = await this.#caller.call('get', [getArgument(keys)], { signal })
    const rows = rowsOf('get', sets, keys.length)
    return keys.map((key, index) => gotOf(key, rows[index] as MysqlRecordRow))
  }

  async put(changes: readonly Change[], signal?: AbortSignal): Promise<readonly Put[]> {
    const puts: Put[] = []
    for (const part of inParts(changes)) {
      try {
        puts.push(...(await this.#put(part, { signal })))
      } catch (error) {
        throw puts.length === 0 ? error : withOutcome(error as EngineError, 'unknown')
      }
    }
    this.#sweep.afterPut()
    return puts
  }

  async take(draws: readonly Draw[], signal?: AbortSignal): Promise<readonly Drawn[]> {
    const { keys } = drawArguments(draws)
    const batch = draws.map(({ parts, bookUs }) => `${bookUs} ${parts.map(packDrawPart).join('')};`)
    const args = [`'${keys.map((key) => `${hex(key)};`).join('')}'`, `'${batch.join('')}'`]
    const [[[nowUs, answers] = []] = []] = await this.#caller.call('take', args, { signal })
    this.#sweep.afterPut()
    const words = String(answers).split(';')
    return draws.map((draw, index) => drawnOf(ENGINE, draw, words[index] ?? '', Number(nowUs)))
  }

  async hold(steps: readonly PoolStep[], signal?: AbortSignal): Promise<readonly PoolAnswer[]> {
    const [[[answer] = []] = []] = await this.#caller.call('hold', holdArguments(steps), { signal })
    const answers = String(answer).split(';').slice(0, -1)
    const words = answers.map((one) => {
      const [state = '', text = '', ...numbers] = one.split(' ')
      return [state, Buffer.from(text, 'hex').toString(), ...numbers]
    })
    return poolAnswersOf(ENGINE, words, steps.length)
  }

  /** Clear away before the engine is closed. */
  finish(): Promise<void> {
    return this.#sweep.finish()
  }

  /**
   * Three round trips, one of them on a connection of ours: a transaction may not see who holds a line now. Without the
   * condition `version` one more. See sql/records.sql.
   */
  async putIn(transaction: unknown, change: Change): Promise<Put> {
    const client = transaction as MysqlTransactionClient
    checkClient(client)
    const key = `x'${hex(change.key)}'`
    const { holding } = change.when
    const facts = (needsRow: string): Promise<readonly (readonly MysqlRecordRow[])[]> =>
      this.#caller.call('facts', [key, holding === undefined ? 'NULL' : `x'${holding}'`, needsRow])
    // What has a version has a row, unless it was swept since; then the version is refused.
    const hasRow = (change.when.version ?? 0n) > 0n
    if (!hasRow) await facts('TRUE')
    const isLocked = await this.#lockIn(client, key)
    if (!hasRow && !isLocked) throw unexpectedAnswer(ENGINE, 'put', `the record of '${change.key}' has no row to lock`)
    const [[[holds, isEmpty] = []] = []] = await facts('FALSE')
    const values = putInArguments(change, holding === undefined || String(holds) === '1', String(isEmpty) === '1')
    const [row] = await this.#inside(client, 'put_in', values)
    this.#sweep.afterPut()
    return putOf(change.key, row as MysqlRecordRow)
  }

  async *list(prefix: string): AsyncGenerator<StoredSummary> {
    for (let [from, after] = [hex(prefix), 'FALSE']; ; after = 'TRUE') {
      const args = [`x'${from}'`, after, endOf(prefix), String(PAGE)]
      const [rows = []] = await this.#caller.call('records', args)
      for (const row of rows) {
        const summary = recordSummaryOf(row)
        if (summary !== undefined) yield summary
      }
      if (rows.length < PAGE) return
      from = String(rows.at(-1)?.[0])
    }
  }

  /** If a record is locked for long, by a transaction of the user, then the others are put without it. */
  async #put(changes: readonly Change[], options: MysqlCallOptions): Promise<readonly Put[]> {
    const args = putArguments(changes)
    const call = async (patient: string): Promise<readonly Put[]> => {
      const rows = rowsOf('put', await this.#caller.call('put', [...args, patient], options), changes.length)
      return changes.map(({ key }, index) => putOf(key, rows[index] as MysqlRecordRow))
    }
    return await call('TRUE').catch(async (error: unknown) => {
      if (!isRowLocked(error) || changes.length === 1) throw error
      return await call('FALSE')
    })
  }

  /** Whether the record has a row, which is locked now. */
  async #lockIn(client: MysqlTransactionClient, key: string): Promise<boolean> {
    const lock = (): Promise<MysqlRecordRow[]> => this.#inside(client, 'lock_in', [key])
    const [row] = await lock().catch(async (error: unknown) => {
      if (!isMissing(error)) throw error
      await this.#caller.make('put')
      return await lock()
    })
    return String(row?.[0]) === '1'
  }

  /** The rows that a procedure answers in the transaction of the user. */
  async #inside(client: MysqlTransactionClient, procedure: string, args: readonly string[]): Promise<MysqlRecordRow[]> {
    const sql = renamed(`CALL \`holdfast_${procedure}\`(${args.join(', ')})`, this.#names)
    const { rows, inTransaction } = await resultOfCall(client, sql)
    // The first call, which only locks, finds out.
    if (!inTransaction) throw notInTransaction('putIn', 'Call beginTransaction() on this connection first.')
    return rows.map((row) => (Array.isArray(row) ? row : Object.values(row)))
  }
}

function packDrawPart({ key, rate, cost }: DrawPart): string {
  const { tokenUnits, stepUnits, stepUs, capacity } = rate
  return `${[hex(key), cost, tokenUnits, stepUnits, stepUs, capacity].join(' ')},`
}

/** Each as large as one call may be, in the order of the changes. */
function inParts(changes: readonly Change[]): readonly (readonly Change[])[] {
  const parts: Change[][] = [[]]
  let bytes = 0
  for (const change of changes) {
    bytes += 2 * (change.value?.length ?? 0)
    if (bytes > CALL_BYTES) {
      parts.push([])
      bytes = 2 * (change.value?.length ?? 0)
    }
    ;(parts.at(-1) as Change[]).push(change)
  }
  return parts.filter((part) => part.length > 0)
}
