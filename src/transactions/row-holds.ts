/**
 * Holding units of a row of the caller's own table for a while, inside of the caller's own transaction: what is asked
 * and answered, and every decision. How a server is asked is in postgres/, mysql/ and sqlite/.
 *
 * The column `left` of the row is what is neither sold nor held. A hold takes its units out of it, and is remembered
 * in a table of ours. Every call locks the caller's row first, and then gives back what has lapsed: so it is the clock
 * of the database that decides, at the call that wants the units, and no sweeper does. Code that knows nothing of holds
 * and sells by `left = left - 1 WHERE left >= 1` sells nothing that is held.
 *
 * The decisions are generators: they yield statements and are given rows. So they are written once for drivers that
 * answer at once (SQLite), and for those that answer later.
 */
import { createHash } from 'node:crypto'
import { type Duration, parseDuration } from '../core/duration.ts'
import type { Row } from './optimistic-row.ts'
import type {
  CancelRowResult,
  ConfirmRowOptions,
  ConfirmRowResult,
  ExtendRowResult,
  ReserveRowResult,
  RowHoldOptions,
  RowNotHad,
} from './row-hold-options.ts'
import { type ClientTurn, inTurn, type RowLockOptions, type RowLockResult, sameTurn } from './row-lock.ts'
import { type Dialect, describeRow, type Statement, type Table, tableName, update, type Where } from './statements.ts'

export const ROW_HOLDS_TABLE = 'holdfast_row_holds'
const DEFAULT_HOLD: Duration = '10m'
const DEFAULT_KEEP: Duration = '24h'
const LONGEST_ID_BYTES = 256

/** What a server is called with, and the rows it answers. */
export type Steps<Result> = Generator<Statement, Result, readonly Row[]>

/** What differs between the servers, besides how a row is locked. */
export interface RowHoldsDialect extends Dialect {
  /** SQL: now, in milliseconds since 1970. */
  readonly nowMs: string
  /** SQL: what ends a SELECT so that it reads what is there now, and not what was when the transaction began. */
  readonly current: string
}

/** How PostgreSQL and MySQL are asked: their drivers answer by promises, that of SQLite at once. */
export interface RowHoldsServer<Client extends object> {
  readonly dialect: RowHoldsDialect
  lockRows(client: Client, options: RowLockOptions, turn: ClientTurn): Promise<RowLockResult<Row>>
  /** What a statement without rows answers is not looked at. */
  ask(client: Client, statement: Statement): Promise<readonly Row[]>
}

/** Lock the row, and take the steps of `work` under that lock. */
export async function withLockedRow<Client extends object, Result>(
  server: RowHoldsServer<Client>,
  client: Client,
  options: RowHoldOptions,
  work: (holds: RowHolds, rows: readonly Row[]) => Steps<Result>,
): Promise<Result | RowNotHad> {
  const { table, where, left, wait } = options
  const holds = new RowHolds(server.dialect, options)
  const row = { table, where, columns: [left], ...(wait === undefined ? {} : { wait }) }
  // The lock and what is done under it are one turn: else two calls at once, on one connection, would read one number.
  return await inTurn(client, async () => {
    const locked = await server.lockRows(client, row, sameTurn)
    if (locked.state !== 'locked') return locked
    const steps = work(holds, locked.rows)
    for (let step = steps.next(); ; ) {
      if (step.done === true) return step.value
      step = steps.next(await server.ask(client, step.value))
    }
  })
}

/** One hold of one row, which is locked. */
export class RowHolds {
  readonly #dialect: RowHoldsDialect
  readonly #options: RowHoldOptions
  readonly #holds: string
  readonly #key: string

  /** Throws a `TypeError` or a `RangeError` if the options cannot be meant. */
  constructor(dialect: RowHoldsDialect, options: RowHoldOptions) {
    const { id, left, table, where, holds = ROW_HOLDS_TABLE } = options
    if (typeof id !== 'string' || id === '' || id.includes('\0') || !id.isWellFormed())
      throw new TypeError(
        `id must be a string of at least one character, well-formed and without NUL; got ${typeof id}`,
      )
    if (Buffer.byteLength(id) > LONGEST_ID_BYTES)
      throw new RangeError(`id must have at most ${LONGEST_ID_BYTES} bytes of UTF-8; got ${Buffer.byteLength(id)}`)
    if (typeof left !== 'string') throw new TypeError(`left must be the name of a column; got ${typeof left}`)
    this.#dialect = dialect
    this.#options = options
    this.#holds = tableName(dialect, holds)
    this.#key = keyOf(table, where)
  }

  *reserve(rows: readonly Row[], quantity: number, life: Duration = DEFAULT_HOLD): Steps<ReserveRowResult> {
    checkQuantity(quantity)
    const lifeMs = lifeMsOf(life, 'hold')
    const { left, known } = yield* this.#look(rows)
    if (known !== undefined)
      return known.quantity === quantity ? standing(known) : { state: 'differs', quantity: known.quantity }
    if (left < quantity) return { state: 'short', left }
    yield this.#setLeft(left - quantity)
    yield this.#insert('held', quantity, lifeMs)
    return { state: 'held', quantity, remainingMs: lifeMs }
  }

  *extend(rows: readonly Row[], life: Duration = DEFAULT_HOLD): Steps<ExtendRowResult> {
    const lifeMs = lifeMsOf(life, 'hold')
    const { known } = yield* this.#look(rows)
    if (known === undefined) return { state: 'lapsed' }
    if (known.state === 'held' && known.remainingMs < lifeMs) {
      yield this.#save('held', lifeMs)
      return { state: 'held', quantity: known.quantity, remainingMs: lifeMs }
    }
    return standing(known)
  }

  *confirm(rows: readonly Row[], options: ConfirmRowOptions): Steps<ConfirmRowResult> {
    const { keep = DEFAULT_KEEP, late: how = 'refuse', quantity = 0 } = options
    const keepMs = lifeMsOf(keep, 'keep')
    if (how !== 'refuse' && how !== 'if-available')
      throw new TypeError(`late must be refuse or if-available; got '${String(how)}'`)
    const late = how === 'refuse' ? undefined : quantity
    if (late !== undefined) checkQuantity(late)
    const { left, known } = yield* this.#look(rows)
    if (known?.state === 'held') yield this.#save('sold', keepMs)
    if (known !== undefined) return { state: 'sold', quantity: known.quantity }
    if (late === undefined || left < late) return { state: 'lapsed' }
    yield this.#setLeft(left - late)
    yield this.#insert('sold', late, keepMs)
    return { state: 'sold', quantity: late }
  }

  *cancel(rows: readonly Row[]): Steps<CancelRowResult> {
    const { left, known } = yield* this.#look(rows)
    if (known === undefined) return { state: 'lapsed' }
    if (known.state === 'sold') return { state: 'sold', quantity: known.quantity }
    yield this.#delete('id =', this.#options.id)
    yield this.#setLeft(left + known.quantity)
    return { state: 'cancelled', quantity: known.quantity }
  }

  /** What is left when all that has lapsed was given back, and what is known of the id. */
  *#look(rows: readonly Row[]): Generator<Statement, { left: number; known: KnownHold | undefined }, readonly Row[]> {
    const { table, where, id } = this.#options
    if (rows.length > 1)
      throw new RangeError(`${describeRow(table, where)} is more than one row: where must name a unique key`)
    const before = wholeNumber(rows[0]?.[this.#options.left], this.#options.left)
    const found = yield this.#find()
    const holds = found.map(holdOf)
    const due = holds.filter(({ remainingMs }) => remainingMs <= 0)
    const back = due.reduce((sum, { state, quantity }) => (state === 'held' ? sum + quantity : sum), 0)
    // Not as arguments of a call: a day of sales may be more than the stack has room for.
    const latest = due.reduce((last, { dueAt }) => Math.max(last, dueAt), 0)
    if (due.length > 0) yield this.#delete('due_at <=', latest)
    if (back > 0) yield this.#setLeft(before + back)
    return { left: before + back, known: holds.find((hold) => hold.id === id && hold.remainingMs > 0) }
  }

  /** What is known of the id, and what is due. */
  #find(): Statement {
    const { nowMs, parameter, current } = this.#dialect
    const text =
      `SELECT id, state, quantity, due_at, due_at - ${nowMs} AS lives FROM ${this.#holds} ` +
      `WHERE row_key = ${parameter(1)} AND (id = ${parameter(2)} OR due_at <= ${nowMs}) ${current}`
    return { text, values: [this.#key, this.#options.id] }
  }

  #insert(state: 'held' | 'sold', quantity: number, lifeMs: number): Statement {
    const { table, where, id } = this.#options
    const p = this.#dialect.parameter
    const text =
      `INSERT INTO ${this.#holds} (row_key, id, state, quantity, due_at, row_of) ` +
      `VALUES (${p(1)}, ${p(2)}, ${p(3)}, ${p(4)}, ${this.#dialect.nowMs} + ${lifeMs}, ${p(5)})`
    return { text, values: [this.#key, id, state, quantity, describeRow(table, where).slice(0, 200)] }
  }

  #save(state: 'held' | 'sold', lifeMs: number): Statement {
    const p = this.#dialect.parameter
    const text =
      `UPDATE ${this.#holds} SET state = ${p(1)}, due_at = ${this.#dialect.nowMs} + ${lifeMs} ` +
      `WHERE row_key = ${p(2)} AND id = ${p(3)}`
    return { text, values: [state, this.#key, this.#options.id] }
  }

  #delete(which: 'id =' | 'due_at <=', value: string | number): Statement {
    const p = this.#dialect.parameter
    return {
      text: `DELETE FROM ${this.#holds} WHERE row_key = ${p(1)} AND ${which} ${p(2)}`,
      values: [this.#key, value],
    }
  }

  #setLeft(left: number): Statement {
    const { table, where, left: column } = this.#options
    return update(this.#dialect, table, { [column]: left }, where, {})
  }
}

interface KnownHold {
  readonly id: string
  readonly state: 'held' | 'sold'
  readonly quantity: number
  readonly dueAt: number
  readonly remainingMs: number
}

function holdOf({ id, state, quantity, due_at, lives }: Row): KnownHold {
  return {
    // mysql2 reads VARBINARY as bytes.
    id: id instanceof Uint8Array ? Buffer.from(id).toString() : String(id),
    state: String(state) as KnownHold['state'],
    quantity: Number(quantity),
    dueAt: Number(due_at),
    remainingMs: Number(lives),
  }
}

function standing({ state, quantity, remainingMs }: KnownHold): Extract<ReserveRowResult, { state: 'held' | 'sold' }> {
  return state === 'held' ? { state, quantity, remainingMs } : { state, quantity }
}

/** A hash, since columns and values may be long. */
function keyOf(table: Table, where: Where): string {
  const columns = Object.keys(where).sort()
  const words = columns.map((column) => [column, wordOf(where[column])])
  const parts = typeof table === 'string' ? table.split('.') : table
  return createHash('sha256')
    .update(JSON.stringify([parts, words]))
    .digest('hex')
}

/** 7, 7n and '7' are the same row. Two objects would have one word, and so two rows would share their holds. */
function wordOf(value: unknown): string | null {
  if (value === null) return null
  if (value instanceof Date) return value.toISOString()
  if (value instanceof Uint8Array) return Buffer.from(value).toString('hex')
  if (typeof value === 'string' || typeof value === 'number' || typeof value === 'bigint' || typeof value === 'boolean')
    return String(value)
  throw new TypeError(`where takes strings, numbers, booleans, dates, bytes and null; got ${typeof value}`)
}

function wholeNumber(value: unknown, column: string): number {
  const number = typeof value === 'string' || typeof value === 'bigint' ? Number(value) : value
  if (typeof number === 'number' && Number.isSafeInteger(number)) return number
  throw new TypeError(`the column '${column}' must be a whole number; got ${String(value)}`)
}

function checkQuantity(quantity: number): void {
  if (Number.isSafeInteger(quantity) && quantity >= 1) return
  throw new RangeError(`quantity must be a whole number, at least 1; got ${quantity}`)
}

function lifeMsOf(life: Duration, what: string): number {
  const ms = Math.ceil(parseDuration(life, what))
  if (ms >= 1) return ms
  throw new RangeError(`${what} must be at least 1ms; got ${life}`)
}
