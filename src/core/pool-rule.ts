/**
 * The rule of a pool (core/store-hold.ts): what each step does to the rows of a pool, and what it answers. Without I/O
 * and without a clock. The engines that keep pools in this process, or in its transaction, use it as it is (memory,
 * SQLite); the others have it in the language of their server, and are compared with it.
 *
 * For each item there is a counter of what is held, lapsed holds that were not taken back included. So no step has to
 * look through the holds: it takes back some that have lapsed, and then believes the counters. If that is not enough
 * for what is asked, then it takes back more, for as long as there are any.
 */
import { LONGEST_WANT_MS, type PoolAnswer, type PoolItemView, type PoolLine, type PoolStep } from './store-hold.ts'

/** How many lapsed holds a step takes back before it looks whether that was enough. As in all other engines. */
export const TAKEN_BACK_AT_ONCE = 100
/** How many ids that are to be forgotten a step forgets: more than it can remember. */
export const FORGOTTEN_AT_ONCE = 10

export interface PoolItem extends PoolItemView {
  /** The id of the first in line, that wants this item until `wantedUntil`. '': none does. */
  readonly wantedBy: string
  readonly wantedUntil: number
}

/** `changed`: not a hold, but the id of a change of the stock. */
export interface PoolHold {
  readonly id: string
  readonly state: 'held' | 'sold' | 'changed'
  readonly lines: readonly PoolLine[]
  /** When it lapses, or is forgotten. At that instant it is gone. */
  readonly at: number
}

/** Where the rows of one pool are. */
export interface PoolRows {
  item(name: string): PoolItem | undefined
  saveItem(item: PoolItem): void
  items(): Iterable<PoolItem>
  hold(id: string): PoolHold | undefined
  /** `before` is what is there under that id. */
  saveHold(hold: PoolHold, before: PoolHold | undefined): void
  removeHold(hold: PoolHold): void
  /** Held until `now` at most, the earliest first. */
  lapsed(now: number, atMost: number): readonly PoolHold[]
  /** Remembered until `now` at most. */
  forgettable(now: number, atMost: number): readonly PoolHold[]
  /** When the earliest hold lapses. */
  nextLapse(): number | undefined
  heldCount(): number
}

export function poolAnswer(rows: PoolRows, step: PoolStep, now: number): PoolAnswer {
  for (const hold of rows.forgettable(now, FORGOTTEN_AT_ONCE)) rows.removeHold(hold)
  return new PoolStepRule(rows, step, now).answer()
}

class PoolStepRule {
  readonly #rows: PoolRows
  readonly #step: PoolStep
  readonly #now: number

  constructor(rows: PoolRows, step: PoolStep, now: number) {
    this.#rows = rows
    this.#step = step
    this.#now = now
  }

  answer(): PoolAnswer {
    const { verb, id } = this.#step
    if (verb === 'show') return this.#show()
    if (verb === 'unwant') return this.#unwant()
    const known = this.#live(this.#rows.hold(id))
    switch (verb) {
      case 'reserve':
        return this.#reserve(known)
      case 'extend':
        return known?.state === 'held' ? this.#extend(known) : this.#standing(known)
      case 'confirm':
        return this.#confirm(known)
      case 'cancel':
        return known?.state === 'held' ? this.#cancel(known) : this.#standing(known)
      case 'find':
        return this.#standing(known)
      default:
        return this.#change(known)
    }
  }

  /** What is due is gone, and given back if it was held. */
  #live(hold: PoolHold | undefined): PoolHold | undefined {
    if (hold === undefined || hold.at > this.#now) return hold
    this.#remove(hold)
    return undefined
  }

  #standing(known: PoolHold | undefined): PoolAnswer {
    if (known?.state === 'sold') return { state: 'sold', lines: known.lines }
    if (known?.state === 'held') return { state: 'held', lines: known.lines, livesForMs: known.at - this.#now }
    return { state: 'lapsed' }
  }

  #reserve(known: PoolHold | undefined): PoolAnswer {
    const { id, lines, ms, wantMs } = this.#step
    if (known !== undefined) return sameLines(known.lines, lines) ? this.#standing(known) : differs(known)
    const isFirst = wantMs > 0
    const lacking = this.#lacking(
      (item, { quantity }) => leftOf(item) < quantity || (!isFirst && this.#isWanted(item, id)),
    )
    if (lacking !== undefined) {
      if (isFirst) this.#want(this.#now + wantMs)
      return lacking
    }
    for (const { item, quantity } of lines) {
      const row = this.#rows.item(item) as PoolItem
      const unwanted = isFirst || row.wantedBy === id ? { wantedBy: '', wantedUntil: 0 } : {}
      this.#rows.saveItem({ ...row, ...unwanted, held: row.held + quantity })
    }
    this.#rows.saveHold({ id, state: 'held', lines, at: this.#now + ms }, undefined)
    return { state: 'held', lines, livesForMs: ms }
  }

  #extend(known: PoolHold): PoolAnswer {
    const hold = { ...known, at: Math.max(known.at, this.#now + this.#step.ms) }
    this.#rows.saveHold(hold, known)
    return this.#standing(hold)
  }

  #confirm(known: PoolHold | undefined): PoolAnswer {
    const { id, ms, flag: late } = this.#step
    if (known?.state === 'sold') return this.#standing(known)
    if (known === undefined && !late) return { state: 'lapsed' }
    // The buyer has paid: it goes before those that wait.
    if (known === undefined && this.#lacking((item, { quantity }) => leftOf(item) < quantity) !== undefined)
      return { state: 'lapsed' }
    const lines = known?.lines ?? this.#step.lines
    for (const { item, quantity } of lines) {
      const row = this.#rows.item(item) as PoolItem
      const held = known === undefined ? row.held : row.held - quantity
      this.#rows.saveItem({ ...row, held, sold: row.sold + quantity })
    }
    const sold: PoolHold = { id, state: 'sold', lines, at: this.#now + ms }
    this.#rows.saveHold(sold, known)
    return this.#standing(sold)
  }

  #cancel(known: PoolHold): PoolAnswer {
    this.#remove(known)
    return { state: 'cancelled', wanted: this.#anyWanted(known.lines) }
  }

  #change(known: PoolHold | undefined): PoolAnswer {
    const { id, verb, lines, ms, flag: force } = this.#step
    if (known === undefined) {
      const stockOf = ({ stock }: PoolItem, quantity: number): number => (verb === 'set' ? quantity : stock + quantity)
      const lacking = this.#lacking((item, { quantity }) => {
        const stock = stockOf(item, quantity)
        return stock < 0 || (!force && stock < item.sold + item.held)
      })
      if (lacking !== undefined) return lacking
      for (const { item, quantity } of lines) {
        const row = this.#rows.item(item) ?? newItem(item)
        this.#rows.saveItem({ ...row, stock: stockOf(row, quantity) })
      }
      this.#rows.saveHold({ id, state: 'changed', lines, at: this.#now + ms }, undefined)
    }
    return { state: 'changed', wanted: this.#anyWanted(lines) }
  }

  #unwant(): PoolAnswer {
    const { id, lines } = this.#step
    for (const { item } of lines) {
      const row = this.#rows.item(item)
      if (row?.wantedBy === id) this.#rows.saveItem({ ...row, wantedBy: '', wantedUntil: 0 })
    }
    return { state: 'lapsed' }
  }

  #show(): PoolAnswer {
    while (this.#takeBack()) {}
    const items = [...this.#rows.items()].map(({ item, stock, sold, held }) => ({ item, stock, sold, held }))
    return { state: 'pool', items, holds: this.#rows.heldCount(), nextMs: this.#nextMs() }
  }

  /** The first line that lacks, when all that could help was taken back. */
  #lacking(lacks: (item: PoolItem, line: PoolLine) => boolean): PoolAnswer | undefined {
    const { verb, lines } = this.#step
    const mayBeNew = verb === 'set' || verb === 'add'
    for (let more = this.#takeBack(); ; more = this.#takeBack()) {
      const line = lines.find((one) => {
        const item = this.#rows.item(one.item)
        return item === undefined && !mayBeNew ? true : lacks(item ?? newItem(one.item), one)
      })
      if (line === undefined) return undefined
      const { item } = line
      if (!mayBeNew && this.#rows.item(item) === undefined) return { state: 'unknown', item }
      if (!more) return { state: 'short', item, nextMs: this.#nextMs() }
    }
  }

  /** Take back some holds that have lapsed. True: there may be more. */
  #takeBack(): boolean {
    const lapsed = this.#rows.lapsed(this.#now, TAKEN_BACK_AT_ONCE)
    for (const hold of lapsed) this.#remove(hold)
    return lapsed.length === TAKEN_BACK_AT_ONCE
  }

  /** Its units are there again, if it held any. */
  #remove(hold: PoolHold): void {
    this.#rows.removeHold(hold)
    if (hold.state !== 'held') return
    for (const { item, quantity } of hold.lines) {
      const row = this.#rows.item(item) as PoolItem
      this.#rows.saveItem({ ...row, held: row.held - quantity })
    }
  }

  #want(until: number): void {
    const { id, lines } = this.#step
    for (const { item } of lines) {
      const row = this.#rows.item(item)
      if (row !== undefined) this.#rows.saveItem({ ...row, wantedBy: id, wantedUntil: until })
    }
  }

  #isWanted({ wantedBy, wantedUntil }: PoolItem, exceptBy: string): boolean {
    const wantedForMs = wantedUntil - this.#now
    return wantedBy !== '' && wantedBy !== exceptBy && wantedForMs > 0 && wantedForMs <= LONGEST_WANT_MS
  }

  #anyWanted(lines: readonly PoolLine[]): boolean {
    return lines.some(({ item }) => {
      const row = this.#rows.item(item)
      return row !== undefined && this.#isWanted(row, '')
    })
  }

  #nextMs(): number | null {
    const next = this.#rows.nextLapse()
    return next === undefined ? null : Math.max(0, next - this.#now)
  }
}

function newItem(item: string): PoolItem {
  return { item, stock: 0, sold: 0, held: 0, wantedBy: '', wantedUntil: 0 }
}

/** Below 0 where a person has forced the stock down. */
function leftOf({ stock, sold, held }: PoolItem): number {
  return stock - sold - held
}

function differs({ lines }: PoolHold): PoolAnswer {
  return { state: 'differs', lines }
}

function sameLines(a: readonly PoolLine[], b: readonly PoolLine[]): boolean {
  return (
    a.length === b.length &&
    a.every(({ item, quantity }, index) => item === b[index]?.item && quantity === b[index]?.quantity)
  )
}
