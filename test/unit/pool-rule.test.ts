/** The rule of pools against a model without counters and without clearing away, by random steps; and its mutants. */
import { describe, expect, test } from 'vitest'
import { comparable, PoolTrace, stepOf } from '../../conformance/pool-trace.ts'
import type { PoolHold, PoolRows } from '../../src/core/pool-rule.ts'
import type { PoolAnswer, PoolLine, PoolStep } from '../../src/core/store-hold.ts'
import { MemoryPools } from '../../src/engines/memory/pools.ts'

const SEEDS = 60
const CALLS = 250

interface Memory {
  readonly id: string
  readonly lines: readonly PoolLine[]
  at: number
}

/** What the contract says, in the plainest words: lists that are looked through, and sums that are added up anew. */
class NaivePool {
  readonly stock = new Map<string, number>()
  readonly holds: Memory[] = []
  readonly sales: Memory[] = []
  readonly changes: Memory[] = []
  readonly wants = new Map<string, { id: string; until: number }>()

  answer(step: PoolStep, now: number): PoolAnswer {
    const { verb, id, lines, ms, wantMs, flag } = step
    const live = (list: readonly Memory[]): Memory[] => list.filter(({ at }) => at > now)
    const held = live(this.holds).find((one) => one.id === id)
    const sold = live(this.sales).find((one) => one.id === id)
    const nextAt = Math.min(...live(this.holds).map(({ at }) => at))
    const nextMs = Number.isFinite(nextAt) ? nextAt - now : null
    const heldOf = (item: string): number => sum(live(this.holds), item)
    const left = (item: string): number => (this.stock.get(item) ?? 0) - sum(this.sales, item) - heldOf(item)
    const wanted = (item: string): boolean => (this.wants.get(item)?.until ?? 0) > now
    const lacking = (lacks: (line: PoolLine) => boolean): PoolAnswer | undefined => {
      for (const line of lines) {
        const isNew = !this.stock.has(line.item) && verb !== 'set' && verb !== 'add'
        if (isNew) return { state: 'unknown', item: line.item }
        if (lacks(line)) return { state: 'short', item: line.item, nextMs }
      }
      return undefined
    }
    switch (verb) {
      case 'show': {
        const items = [...this.stock].map(([item, stock]) => ({
          item,
          stock,
          sold: sum(this.sales, item),
          held: heldOf(item),
        }))
        return { state: 'pool', items, holds: live(this.holds).length, nextMs }
      }
      case 'unwant':
        for (const { item } of lines) if (this.wants.get(item)?.id === id) this.wants.delete(item)
        return { state: 'lapsed' }
      case 'find':
      case 'extend':
        if (sold !== undefined) return { state: 'sold', lines: sold.lines }
        if (held === undefined) return { state: 'lapsed' }
        if (verb === 'extend') held.at = Math.max(held.at, now + ms)
        return { state: 'held', lines: held.lines, livesForMs: held.at - now }
      case 'cancel':
        if (sold !== undefined) return { state: 'sold', lines: sold.lines }
        if (held === undefined) return { state: 'lapsed' }
        held.at = now
        return { state: 'cancelled', wanted: held.lines.some(({ item }) => wanted(item)) }
      case 'confirm': {
        if (sold !== undefined) return { state: 'sold', lines: sold.lines }
        if (held === undefined && !flag) return { state: 'lapsed' }
        if (held === undefined && lacking(({ item, quantity }) => left(item) < quantity)) return { state: 'lapsed' }
        const sale = { id, lines: held?.lines ?? lines, at: now + ms }
        if (held !== undefined) held.at = now
        this.sales.push(sale)
        return { state: 'sold', lines: sale.lines }
      }
      case 'reserve': {
        const known = held ?? sold
        if (known !== undefined && JSON.stringify(known.lines) !== JSON.stringify(lines))
          return { state: 'differs', lines: known.lines }
        if (sold !== undefined) return { state: 'sold', lines }
        if (held !== undefined) return { state: 'held', lines, livesForMs: held.at - now }
        const refusal = lacking(
          ({ item, quantity }) =>
            left(item) < quantity || (wantMs === 0 && wanted(item) && this.wants.get(item)?.id !== id),
        )
        for (const { item } of lines) {
          if (refusal !== undefined && wantMs > 0 && this.stock.has(item))
            this.wants.set(item, { id, until: now + wantMs })
          if (refusal === undefined && (wantMs > 0 || this.wants.get(item)?.id === id)) this.wants.delete(item)
        }
        if (refusal !== undefined) return refusal
        this.holds.push({ id, lines, at: now + ms })
        return { state: 'held', lines, livesForMs: ms }
      }
      default: {
        if (!live(this.changes).some((one) => one.id === id)) {
          const stockOf = ({ item, quantity }: PoolLine): number =>
            verb === 'set' ? quantity : (this.stock.get(item) ?? 0) + quantity
          const refusal = lacking(
            (line) => stockOf(line) < 0 || (!flag && stockOf(line) < sum(this.sales, line.item) + heldOf(line.item)),
          )
          if (refusal !== undefined) return refusal
          for (const line of lines) this.stock.set(line.item, stockOf(line))
          this.changes.push({ id, lines, at: now + ms })
        }
        return { state: 'changed', wanted: lines.some(({ item }) => wanted(item)) }
      }
    }
  }
}

function sum(list: readonly Memory[], item: string): number {
  let units = 0
  for (const { lines } of list) for (const line of lines) if (line.item === item) units += line.quantity
  return units
}

/** The first step that was answered otherwise than by the model, if any. */
function difference(seed: number, pools: MemoryPools): string | undefined {
  const trace = new PoolTrace(seed)
  const naive = new Map<string, NaivePool>()
  let now = 1_000
  for (let call = 0; call < CALLS; call += 1) {
    const next = trace.next()
    if (typeof next === 'number') {
      now += next
      continue
    }
    for (const step of next) {
      const model = naive.get(step.key) ?? new NaivePool()
      naive.set(step.key, model)
      const expected = JSON.stringify(comparable(model.answer(step, now)))
      const found = JSON.stringify(comparable(pools.step(step, now)))
      if (found !== expected)
        return `seed ${seed}, call ${call}, ${JSON.stringify(step)}: ${found} instead of ${expected}`
    }
  }
  return undefined
}

/** Pools of which some rows lie. */
function broken(lie: (rows: PoolRows) => Partial<PoolRows>): MemoryPools {
  return new MemoryPools((rows) => Object.assign(Object.create(rows) as PoolRows, bound(rows), lie(rows)))
}

/** Private members are those of the object itself. */
function bound(rows: PoolRows): PoolRows {
  return {
    item: (name) => rows.item(name),
    saveItem: (item) => rows.saveItem(item),
    items: () => rows.items(),
    hold: (id) => rows.hold(id),
    saveHold: (hold, before) => rows.saveHold(hold, before),
    removeHold: (hold) => rows.removeHold(hold),
    lapsed: (now, atMost) => rows.lapsed(now, atMost),
    forgettable: (now, atMost) => rows.forgettable(now, atMost),
    nextLapse: () => rows.nextLapse(),
    heldCount: () => rows.heldCount(),
  }
}

const seeds = Array.from({ length: SEEDS }, (_, index) => index + 1)

test('every step is answered as by a model that counts nothing and forgets nothing', () => {
  for (const seed of seeds) expect(difference(seed, new MemoryPools())).toBeUndefined()
})

describe('is told from', () => {
  /** Items are reserved one by one, each checked by itself: a cart that is refused keeps the first ones. */
  class Separately extends MemoryPools {
    override step(step: PoolStep, now: number): PoolAnswer {
      if (step.verb !== 'reserve') return super.step(step, now)
      for (const line of step.lines) {
        const one = super.step({ ...step, id: `${step.id} ${line.item}`, lines: [line] }, now)
        if (one.state === 'short' || one.state === 'unknown') return one
      }
      return super.step(step, now)
    }
  }

  /** Two lines of one cart with the same item are each compared with what is left. */
  class NotAdded extends MemoryPools {
    override step(step: PoolStep, now: number): PoolAnswer {
      if (step.verb !== 'reserve') return super.step(step, now)
      return super.step({ ...step, lines: step.lines.map((line) => ({ ...line, quantity: 1 })) }, now)
    }
  }

  const held = (hold: PoolHold | undefined): PoolHold | undefined => (hold?.state === 'held' ? hold : undefined)
  test.each<[string, () => MemoryPools]>([
    ['one that ignores expiry', () => broken(() => ({ lapsed: () => [] }))],
    [
      'one that takes back some of what has lapsed',
      () => broken((rows) => ({ lapsed: (now) => rows.lapsed(now, 99) })),
    ],
    ['one that does not know ids again', () => broken(() => ({ hold: () => undefined }))],
    ['one that forgets what was confirmed', () => broken((rows) => ({ hold: (id) => held(rows.hold(id)) }))],
    [
      'one that confirms what has lapsed',
      () =>
        broken((rows) => ({
          hold: (id) => {
            const hold = rows.hold(id)
            return hold?.state === 'held' ? { ...hold, at: Number.POSITIVE_INFINITY } : hold
          },
        })),
    ],
    [
      'one that does not keep items for the first in line',
      () => broken((rows) => ({ saveItem: (item) => rows.saveItem({ ...item, wantedBy: '' }) })),
    ],
    ['one that checks items separately', () => new Separately()],
    ['one that does not count quantities', () => new NotAdded()],
  ])('%s', (_, make) => {
    expect(seeds.some((seed) => difference(seed, make()) !== undefined)).toBe(true)
  })
})

test('a step takes back what has lapsed a hundred at a time, and more only where its answer depends on it', () => {
  const asked: number[] = []
  const pools = broken((rows) => ({
    lapsed: (now, atMost) => {
      asked.push(atMost)
      return rows.lapsed(now, atMost)
    },
  }))
  const lines = [{ item: 'A', quantity: 1 }]
  pools.step(stepOf('k', 'set', { id: '\t', lines: [{ item: 'A', quantity: 1_010 }], ms: 1 }), 0)
  for (let index = 0; index < 1_000; index += 1)
    pools.step(stepOf('k', 'reserve', { id: `${index}`, lines, ms: 100 }), 0)
  asked.length = 0
  expect(pools.step(stepOf('k', 'reserve', { id: 'few', lines, ms: 100 }), 200)).toMatchObject({ state: 'held' })
  expect(asked).toEqual([100])
  const many = [{ item: 'A', quantity: 900 }]
  expect(pools.step(stepOf('k', 'reserve', { id: 'many', lines: many, ms: 100 }), 200)).toMatchObject({ state: 'held' })
  expect(asked.length).toBe(1 + 8)
})

test('an item that was kept for the first in line before the clock was set back is not kept until it has caught up', () => {
  const pools = new MemoryPools()
  const [hour, lines] = [3_600_000, [{ item: 'A', quantity: 1 }]]
  pools.step(stepOf('k', 'set', { id: '\t', lines, ms: 1 }), hour)
  const many = [{ item: 'A', quantity: 2 }]
  pools.step(stepOf('k', 'reserve', { id: 'first', lines: many, ms: 1, wantMs: 20_000 }), hour)
  const other = stepOf('k', 'reserve', { id: 'other', lines, ms: 100 })
  expect(pools.step(other, hour)).toMatchObject({ state: 'short' })
  expect(pools.step(other, 0)).toMatchObject({ state: 'held' })
})
