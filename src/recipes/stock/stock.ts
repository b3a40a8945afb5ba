/** A stock on a pool: what users ask becomes steps, and answers become holds, words and errors. */
import { randomBytes } from 'node:crypto'
import { type Duration, parseDuration } from '../../core/duration.ts'
import { StockError } from '../../core/errors.ts'
import { compareKeys } from '../../core/keys.ts'
import { checkOptions } from '../../core/options.ts'
import { showAs } from '../../core/show.ts'
import type { PoolLine } from '../../core/store-hold.ts'
import type { PoolReply } from '../../core/store-requests.ts'
import type { Locks } from '../../locks.ts'
import { type AskedStep, PoolStore } from '../../store/pool-store.ts'
import { StockHold } from './hold.ts'
import { checkHoldId, checkStockName, itemsOf, linesToAdd, linesToReserve, linesToSet } from './items.ts'
import {
  CHANGE_OPTIONS,
  type ChangeOptions,
  CONFIRM_BY_ID_OPTIONS,
  type ConfirmByIdOptions,
  type Hold,
  type Items,
  RESERVE_OPTIONS,
  type ReserveOptions,
  STOCK_OPTIONS,
  type Stock,
  type StockOptions,
  type StockView,
} from './options.ts'
import { WaitingList } from './waiting-list.ts'

const DEFAULT_HOLD: Duration = '10m'
const DEFAULT_KEEP: Duration = '24h'
/** How long the id of a change of the stock is remembered: for longer than the change is tried. */
const CHANGE_KEPT_MS = 600_000
const LONGEST_MS = 366 * 24 * 3_600_000

export class StockOnPool implements Stock {
  readonly name: string
  readonly #pool: PoolStore
  readonly #waiting: WaitingList
  readonly #now: () => number
  readonly #holdMs: number
  readonly #keepMs: number

  static {
    showAs('Stock', StockOnPool)
  }

  constructor(locks: Locks, name: string, options: StockOptions) {
    checkOptions('stock()', options, STOCK_OPTIONS)
    checkStockName(name)
    const { hold = DEFAULT_HOLD, keep = DEFAULT_KEEP, store = locks } = options
    this.name = name
    this.#pool = new PoolStore('stock', store, `stock:${name}`)
    this.#waiting = new WaitingList(locks, this.#pool)
    this.#now = () => locks.keeper.clock.now()
    this.#holdMs = lifeMsOf(hold, 'hold')
    this.#keepMs = lifeMsOf(keep, 'keep')
  }

  async reserve(id: string, items: Items, options: ReserveOptions = {}): Promise<Hold | undefined> {
    checkHoldId(id)
    checkOptions('reserve()', options, RESERVE_OPTIONS)
    const { wait = 0, signal } = options
    const lines = linesToReserve(items)
    const ms = options.hold === undefined ? this.#holdMs : lifeMsOf(options.hold, 'hold')
    const waitMs = parseDuration(wait, 'wait')
    if (signal !== undefined && !(signal instanceof AbortSignal))
      throw new TypeError(`signal must be an AbortSignal; got ${typeof signal}`)
    signal?.throwIfAborted()
    const step: AskedStep = { verb: 'reserve', id, lines, ms }
    const sentAt = this.#now()
    const reply = await this.#pool.step(step)
    if (reply.state !== 'short') return this.#holdOf(id, reply, sentAt)
    const waited = waitMs > 0 ? await this.#waiting.reserve(step, sentAt + waitMs, signal) : undefined
    return waited === undefined ? undefined : this.#holdOf(id, waited.reply, waited.sentAt)
  }

  async find(id: string): Promise<Hold | undefined> {
    checkHoldId(id)
    const sentAt = this.#now()
    const reply = await this.#pool.step({ verb: 'find', id })
    return reply.state === 'lapsed' ? undefined : this.#holdOf(id, reply, sentAt)
  }

  async extend(id: string, duration?: Duration): Promise<'held' | 'sold' | 'lapsed'> {
    const { state } = await this.extendStep(id, duration)
    return state === 'held' || state === 'sold' ? state : 'lapsed'
  }

  /** For a hold, which remembers for how long it lives. */
  extendStep(id: string, duration?: Duration): Promise<PoolReply> {
    checkHoldId(id)
    const ms = duration === undefined ? this.#holdMs : lifeMsOf(duration, 'extend')
    return this.#pool.step({ verb: 'extend', id, ms })
  }

  async confirm(id: string, options: ConfirmByIdOptions = {}): Promise<'sold' | 'lapsed'> {
    checkHoldId(id)
    checkOptions('confirm()', options, CONFIRM_BY_ID_OPTIONS)
    const { late = 'refuse', items } = options
    if (late !== 'refuse' && late !== 'if-available')
      throw new TypeError(`late must be refuse or if-available; got '${String(late)}'`)
    if (late === 'if-available' && items === undefined)
      throw new TypeError("late: 'if-available' needs items: a hold that has lapsed is not remembered")
    const lines = items === undefined ? [] : linesToReserve(items)
    const ms = this.#keepMs
    const { state } = await this.#pool.step({ verb: 'confirm', id, lines, ms, flag: late === 'if-available' })
    return state === 'sold' ? 'sold' : 'lapsed'
  }

  async cancel(id: string): Promise<'cancelled' | 'sold' | 'lapsed'> {
    checkHoldId(id)
    const reply = await this.#pool.step({ verb: 'cancel', id })
    if (reply.state === 'cancelled' && reply.wanted) this.#waiting.ring()
    return reply.state === 'cancelled' || reply.state === 'sold' ? reply.state : 'lapsed'
  }

  set(items: Items, options: ChangeOptions = {}): Promise<void> {
    return this.#change('set', () => linesToSet(items), options)
  }

  add(items: Items): Promise<void> {
    return this.#change('add', () => linesToAdd(items, 1), {})
  }

  remove(items: Items, options: ChangeOptions = {}): Promise<void> {
    return this.#change('add', () => linesToAdd(items, -1), options)
  }

  async show(): Promise<StockView> {
    const reply = await this.#pool.step({ verb: 'show', id: '' })
    const { items, holds, nextMs } = reply as Extract<PoolReply, { readonly state: 'pool' }>
    const shown = items.map(({ item, stock, sold, held }) => ({ item, stock, sold, held, left: stock - sold - held }))
    shown.sort((a, b) => compareKeys(a.item, b.item))
    return { name: this.name, items: shown, holds, nextLapseMs: nextMs }
  }

  toJSON(): object {
    return { name: this.name }
  }

  async #change(verb: 'set' | 'add', linesOf: () => readonly PoolLine[], options: ChangeOptions): Promise<void> {
    checkOptions(verb === 'set' ? 'set()' : 'remove()', options, CHANGE_OPTIONS)
    const { force = false } = options
    if (typeof force !== 'boolean') throw new TypeError(`force must be true or false; got ${typeof force}`)
    // An id that no user can give: it has a control character.
    const id = `\t${randomBytes(16).toString('hex')}`
    const reply = await this.#pool.step({ verb, id, lines: linesOf(), ms: CHANGE_KEPT_MS, flag: force })
    if (reply.state === 'changed' && reply.wanted) this.#waiting.ring()
    if (reply.state !== 'short') return
    const message = `it would have less of '${reply.item}' than is sold and held; { force: true } does it all the same, down to 0`
    throw new StockError(this.name, 'below', message)
  }

  #holdOf(id: string, reply: PoolReply, sentAt: number): Hold {
    if (reply.state === 'held')
      return new StockHold(this, this.#now, id, reply.lines, 'held', sentAt + reply.livesForMs)
    if (reply.state === 'sold') return new StockHold(this, this.#now, id, reply.lines, 'sold', 0)
    if (reply.state === 'unknown')
      throw new StockError(
        this.name,
        'unknown',
        `it has no item '${reply.item}': say how many there are, with set({ '${reply.item}': 10 })`,
      )
    const has = reply.state === 'differs' ? JSON.stringify(itemsOf(reply.lines)) : 'nothing'
    throw new StockError(this.name, 'differs', `the id '${id}' holds ${has}: another cart needs another id`)
  }
}

function lifeMsOf(duration: Duration, what: string): number {
  const ms = parseDuration(duration, what)
  if (ms >= 1 && ms <= LONGEST_MS) return Math.ceil(ms)
  throw new RangeError(`${what} must be from 1ms to ${LONGEST_MS / 3_600_000}h; got ${duration}`)
}
