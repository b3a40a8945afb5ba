/**
 * The rule of the line, against code that does it the obvious way: a granter that remembers whom it let in, and lets
 * in the next one that fits.
 */
import { ok } from 'node:assert/strict'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { UNLIMITED } from '../../src/core/engine.ts'
import { HeldPrefix, heldCount, type Weighted } from '../../src/core/line.ts'

interface Entry extends Weighted {
  readonly id: number
}

/** First come, first served, with a memory: no holder is ever asked again. */
class Granter {
  readonly line: Entry[] = []
  readonly granted = new Set<Entry>()

  enter(entry: Entry): void {
    this.line.push(entry)
    this.#grant()
  }

  leave(entry: Entry): void {
    this.line.splice(this.line.indexOf(entry), 1)
    this.granted.delete(entry)
    this.#grant()
  }

  #grant(): void {
    for (const entry of this.line) {
      if (this.granted.has(entry)) continue
      const together = [...this.granted, entry]
      const weight = together.reduce((sum, each) => sum + each.weight, 0)
      if (weight > Math.min(...together.map(({ limit }) => limit))) return
      this.granted.add(entry)
    }
  }
}

/** A mutex, a reader, or part of a semaphore. Sizes are small, so that callers often disagree. */
const claim: fc.Arbitrary<Weighted> = fc.oneof(
  fc.constant({ weight: 1, limit: 1 }),
  fc.constant({ weight: 1, limit: UNLIMITED }),
  fc
    .integer({ min: 2, max: 6 })
    .chain((limit) => fc.record({ weight: fc.integer({ min: 1, max: limit }), limit: fc.constant(limit) })),
)

/** Enter with a claim, or let the one at this place (of those who are there) leave. */
const step = fc.oneof({ weight: 5, arbitrary: claim }, { weight: 4, arbitrary: fc.nat() })
const steps: fc.Arbitrary<readonly (Weighted | number)[]> = fc.array(step, { minLength: 20, maxLength: 120 })

/** Run the steps, and look after each of them. */
function play(all: readonly (Weighted | number)[], look: (granter: Granter, left: Entry | undefined) => void): void {
  const granter = new Granter()
  let id = 0
  for (const each of all) {
    let left: Entry | undefined
    if (typeof each === 'number') {
      left = granter.line[each % granter.line.length]
      if (left === undefined) continue
      granter.leave(left)
    } else {
      id += 1
      granter.enter({ ...each, id })
    }
    look(granter, left)
  }
}

const RUNS = { numRuns: 2000 }

describe('the rule', () => {
  test('says who holds just as a granter with a memory would, over many random steps', () => {
    fc.assert(
      fc.property(steps, (all) =>
        play(all, ({ line, granted }) => {
          const count = heldCount(line)
          ok(line.every((entry, place) => granted.has(entry) === place < count))
        }),
      ),
      RUNS,
    )
  })

  test('a holder goes on holding when others leave', () => {
    fc.assert(
      fc.property(steps, (all) => {
        let before: readonly Entry[] = []
        play(all, ({ line }, left) => {
          const holders = line.slice(0, heldCount(line))
          ok(before.every((entry) => entry === left || holders.includes(entry)))
          before = holders
        })
      }),
      RUNS,
    )
  })

  test('no entry behind the first waiter holds: readers do not starve a writer', () => {
    const [read, write] = [
      { weight: 1, limit: UNLIMITED },
      { weight: 1, limit: 1 },
    ]
    expect(heldCount([read, read, write, read, read])).toBe(2)
    expect(heldCount([write, read])).toBe(1)
    expect(heldCount([read, read, read])).toBe(3)
  })

  test('callers who disagree on a limit get the stricter one, in whatever order they came', () => {
    const of = (limit: number): Weighted => ({ weight: 1, limit })
    expect(heldCount([of(5), of(5), of(2), of(5)])).toBe(2)
    expect(heldCount([of(2), of(5), of(5)])).toBe(2)
    expect(heldCount([of(5), of(2), of(5)])).toBe(2)
  })

  test('never is more held than the smallest limit of those who hold', () => {
    fc.assert(
      fc.property(fc.array(claim), (line) => {
        const holders = line.slice(0, heldCount(line))
        const weight = holders.reduce((sum, each) => sum + each.weight, 0)
        ok(holders.every(({ limit }) => weight <= limit))
      }),
      RUNS,
    )
  })

  test('an empty line has no holder, and a single entry holds', () => {
    expect(heldCount([])).toBe(0)
    fc.assert(fc.property(claim, (only) => heldCount([only]) === 1))
  })
})

describe('the held prefix, kept up to date', () => {
  test('admits the first waiter exactly when the rule lets it hold, over many random steps', () => {
    fc.assert(
      fc.property(steps, (all) => {
        const prefix = new HeldPrefix()
        const counted = new Set<Entry>()
        play(all, ({ line }, left) => {
          if (left !== undefined && counted.delete(left)) prefix.remove(left)
          for (const entry of line) {
            if (counted.has(entry)) continue
            if (!prefix.admits(entry)) break
            prefix.add(entry)
            counted.add(entry)
          }
          ok(prefix.count === heldCount(line))
          ok(line.every((entry, place) => counted.has(entry) === place < prefix.count))
        })
      }),
      RUNS,
    )
  })

  test('forgets a strict limit when the last who asked for it leaves', () => {
    const prefix = new HeldPrefix()
    const strict = { weight: 1, limit: 2 }
    const wide = { weight: 1, limit: 10 }
    for (const entry of [wide, strict]) prefix.add(entry)
    expect(prefix.admits(wide)).toBe(false)
    prefix.remove(strict)
    expect(prefix.admits(wide)).toBe(true)
    prefix.remove(wide)
    expect(prefix.count).toBe(0)
    expect(prefix.admits({ weight: 10, limit: 10 })).toBe(true)
  })
})
