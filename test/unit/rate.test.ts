/** The rule of rate limits, against a model that remembers each token and when it was taken. */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import {
  CLOCK_JITTER_US,
  delayUs,
  drain,
  draw,
  givenBack,
  longestBookUs,
  type Rate,
  type RateState,
  rateOf,
  rateText,
  readRate,
  remainingOf,
  resetUs,
  retryAfterUs,
} from '../../src/core/rate.ts'

const RUNS = 500 * Number(process.env.HOLDFAST_ROUNDS ?? 1)
const NOON_US = Date.parse('2026-11-16T12:00:00Z') * 1000

/** What was let through: at which time, how many tokens. */
interface Accepted {
  readonly atUs: number
  readonly cost: number
}

/** One limit, as its users see it. `rule`: that of core/rate.ts, or a broken one. */
class Limited {
  readonly rate: Rate
  readonly accepted: Accepted[] = []
  readonly #rule: typeof draw
  #state: RateState | undefined

  constructor(rate: Rate, rule: typeof draw = draw) {
    this.rate = rate
    this.#rule = rule
  }

  take(nowUs: number, cost: number, bookUs = 0): { taken: boolean; debt: number } {
    const { taken, debts, states } = this.#rule([{ state: this.#state, rate: this.rate, cost }], nowUs, bookUs)
    const [debt = 0] = debts
    this.#state = states[0]
    if (taken) this.accepted.push({ atUs: nowUs + delayUs(this.rate, debt), cost })
    return { taken, debt }
  }
}

/**
 * In every window no more than its share of the limit and the burst. In whole numbers, as large as they come: a window
 * of t us lets `limit · t / period` through.
 */
function worstWindow(accepted: readonly Accepted[], limit: number, periodUs: number): bigint {
  const sorted = accepted.toSorted((a, b) => a.atUs - b.atUs)
  const [l, p] = [BigInt(limit), BigInt(periodUs)]
  // The sum up to j and before i, less the time between: the largest difference, in units of 1/period of a token.
  let [sum, least, worst] = [0n, 0n, 0n]
  for (const { atUs, cost } of sorted) {
    const drained = BigInt(atUs - NOON_US) * l
    const before = sum * p - drained
    if (before < least || sum === 0n) least = before
    sum += BigInt(cost)
    const owed = sum * p - drained - least
    if (owed > worst) worst = owed
  }
  return worst
}

const limits = fc.record({
  limit: fc.oneof(fc.integer({ min: 1, max: 20 }), fc.constantFrom(997, 50_000, 300_000, 999_983)),
  periodUs: fc.constantFrom(1_000, 10_000, 1_000_000, 7_777_777, 60_000_000, 86_400_000_000),
  burst: fc.integer({ min: 1, max: 50 }),
})

/** Steps whose pauses are about as long as the interval between two tokens. */
const steps = fc.array(
  fc.record({
    pause: fc.oneof(fc.constant(0), fc.integer({ min: 0, max: 3000 })),
    cost: fc.integer({ min: 1, max: 60 }),
    book: fc.oneof(fc.constant(0), fc.integer({ min: 0, max: 5000 })),
  }),
  { minLength: 1, maxLength: 60 },
)

function play(
  rule: typeof draw,
  { limit, periodUs, burst }: { limit: number; periodUs: number; burst: number },
  trace: readonly { pause: number; cost: number; book: number }[],
): void {
  const limited = new Limited(rateOf(limit, periodUs, burst), rule)
  const intervalUs = periodUs / limit
  let nowUs = NOON_US
  for (const { pause, cost: wanted, book } of trace) {
    nowUs += Math.round((pause / 1000) * intervalUs)
    const cost = Math.min(wanted, burst)
    const bookUs = Math.round((book / 1000) * intervalUs)
    const { taken, debt } = limited.take(nowUs, cost, bookUs)
    if (taken) {
      expect(delayUs(limited.rate, debt)).toBeLessThanOrEqual(bookUs)
      continue
    }
    // It was right to refuse: as late as may be booked it would have come before another turn, or one window would
    // have had too many.
    const atUs = nowUs + bookUs
    if (limited.accepted.some((turn) => turn.atUs > atUs)) continue
    const all = [...limited.accepted, { atUs, cost }]
    expect(worstWindow(all, limit, periodUs) > BigInt(burst) * BigInt(periodUs)).toBe(true)
  }
  // A turn ahead is told in whole steps, rounded up: two turns may be nearer to each other by less than one.
  const rounded = trace.some(({ book }) => book > 0) ? limit * limited.rate.stepUs : 0
  const most = BigInt(burst) * BigInt(periodUs) + BigInt(rounded)
  expect(worstWindow(limited.accepted, limit, periodUs) <= most).toBe(true)
}

describe('the rule', () => {
  test('lets through what fits in every window, and refuses only what does not', () => {
    fc.assert(
      fc.property(limits, steps, (limit, trace) => play(draw, limit, trace)),
      { numRuns: RUNS },
    )
  })

  const mutants: readonly [string, typeof draw][] = [
    [
      'lets refusals consume',
      (draws, nowUs, bookUs) => {
        const right = draw(draws, nowUs, bookUs)
        if (right.taken) return right
        return { ...right, states: draw(draws, nowUs, Number.MAX_SAFE_INTEGER / 8).states }
      },
    ],
    [
      'rounds the interval down to microseconds',
      (draws, nowUs, bookUs) => {
        const rounded = draws.map(({ rate, ...more }) => {
          const tokenUnits = Math.max(1, Math.floor((rate.tokenUnits * rate.stepUs) / rate.stepUnits))
          const capacity = (rate.capacity / rate.tokenUnits) * tokenUnits
          return { ...more, rate: { tokenUnits, stepUnits: 1, stepUs: 1, capacity } }
        })
        const { taken, states } = draw(rounded, nowUs, bookUs)
        return { taken, states, debts: draws.map(() => 0) }
      },
    ],
    [
      'allows one more than the burst',
      (draws, nowUs, bookUs) =>
        draw(
          draws.map(({ rate, ...more }) => ({ ...more, rate: { ...rate, capacity: rate.capacity + rate.tokenUnits } })),
          nowUs,
          bookUs,
        ),
    ],
    [
      'goes by a clock that jumps to and fro by an hour',
      (draws, nowUs, bookUs) => draw(draws, nowUs + (nowUs % 2 === 0 ? 3_600_000_000 : 0), bookUs),
    ],
    ['does not book ahead', (draws, nowUs) => draw(draws, nowUs, 0)],
  ]
  test.each(mutants)('a rule that %s is found out', (_, rule) => {
    expect(() => fc.assert(fc.property(limits, steps, (limit, trace) => play(rule, limit, trace)))).toThrow()
  })

  test.each([
    [1, 86_400_000_000, 1],
    [50_000, 1_000_000, 10],
    [300_000, 1_000_000, 300],
    [999_983, 86_400_000_000, 999_983],
    [7, 3_600_000_000, 2],
  ])('%d in %d us, burst %d, is the rate in the long run, and not one more', (limit, periodUs, burst) => {
    const limited = new Limited(rateOf(limit, periodUs, burst))
    const { rate } = limited
    let nowUs = NOON_US
    // Always as soon as it is allowed: what is lost by rounding would add up.
    const rounds = 20_000
    for (let i = 0; i < rounds; i += 1) {
      const { taken, debt } = limited.take(nowUs, 1)
      if (!taken) throw new Error('a caller that waited as told was refused')
      nowUs += retryAfterUs(rate, debt, 1, 0)
    }
    const ideal = ((rounds - burst) * periodUs) / limit
    if (rounds > burst) {
      const took = (limited.accepted.at(-1)?.atUs ?? 0) - NOON_US
      expect(Math.abs(took - ideal) / ideal).toBeLessThan(1e-4)
    }
    expect(worstWindow(limited.accepted, limit, periodUs) <= BigInt(burst) * BigInt(periodUs)).toBe(true)
  })

  test('a caller that waits for as long as it is told is never refused, and a step less is too early', () => {
    fc.assert(
      fc.property(limits, steps, ({ limit, periodUs, burst }, trace) => {
        const rate = rateOf(limit, periodUs, burst)
        let state: RateState | undefined
        let nowUs = NOON_US
        for (const { pause, cost: wanted } of trace) {
          const cost = Math.min(wanted, burst)
          nowUs += pause
          const refused = draw([{ state, rate, cost }], nowUs, 0)
          if (!refused.taken) {
            const waitUs = retryAfterUs(rate, refused.debts[0] as number, cost, 0)
            expect(draw([{ state, rate, cost }], nowUs + waitUs - rate.stepUs, 0).taken).toBe(false)
            nowUs += waitUs
          }
          const { taken, states } = draw([{ state, rate, cost }], nowUs, 0)
          expect(taken).toBe(true)
          state = states[0]
        }
      }),
    )
  })

  test('what is booked comes in the order of the calls, and no later than booked', () => {
    const rate = rateOf(10, 1_000_000, 50)
    const limited = new Limited(rate)
    for (let i = 0; i < 50; i += 1) limited.take(NOON_US, 1)
    const dear = limited.take(NOON_US, 50, 10_000_000)
    expect(delayUs(rate, dear.debt)).toBe(5_000_000)
    // However many small ones come after it.
    for (let i = 0; i < 100; i += 1) limited.take(NOON_US + 10_000 * i, 1)
    expect(limited.take(NOON_US + 1_000_000, 1, 60_000_000).taken).toBe(true)
    const times = limited.accepted.map(({ atUs }) => atUs)
    expect(times).toEqual(times.toSorted((a, b) => a - b))
  })

  test('takes from all of several keys, or from none', () => {
    const [day, second] = [rateOf(2, 86_400_000_000, 2), rateOf(100, 1_000_000, 100)]
    let states: readonly (RateState | undefined)[] = [undefined, undefined]
    const taken: boolean[] = []
    for (let i = 0; i < 4; i += 1) {
      const drawn = draw(
        [day, second].map((rate, index) => ({ state: states[index], rate, cost: 1 })),
        NOON_US,
        0,
      )
      states = drawn.states
      taken.push(drawn.taken)
    }
    expect(taken).toEqual([true, true, false, false])
    expect(states[1]?.debt).toBe(2 * second.tokenUnits)
  })
})

describe('a clock', () => {
  const rate = rateOf(1, 1_000_000, 3)
  const state: RateState = { atUs: NOON_US, debt: 2_000_000, rate }

  test('that is a little behind stands still until it has caught up', () => {
    expect(drain(state, rate, NOON_US - CLOCK_JITTER_US)).toEqual({ atUs: NOON_US, debt: 2_000_000 })
  })

  test('that was set back goes on from there: the debt stays', () => {
    const earlier = NOON_US - 3_600_000_000
    expect(drain(state, rate, earlier)).toEqual({ atUs: earlier, debt: 2_000_000 })
    expect(drain({ ...state, atUs: earlier }, rate, earlier + 500_000)).toEqual({
      atUs: earlier + 500_000,
      debt: 1_500_000,
    })
  })

  test('that was set forward drains what is owed, and no more', () => {
    expect(drain(state, rate, NOON_US + 3_600_000_000).debt).toBe(0)
  })
})

describe('a rate', () => {
  test('that is changed keeps what was spent, in tokens, up to the new burst', () => {
    const [before, after] = [rateOf(10, 60_000_000, 10), rateOf(300, 60_000_000, 300)]
    const spent = draw([{ state: undefined, rate: before, cost: 7 }], NOON_US, 0).states[0]
    expect(remainingOf(after, drain(spent, after, NOON_US).debt)).toBe(293)
    const much = draw([{ state: undefined, rate: after, cost: 300 }], NOON_US, 0).states[0]
    expect(remainingOf(before, drain(much, before, NOON_US).debt)).toBe(0)
    expect(resetUs(before, drain(much, before, NOON_US).debt)).toBe(60_000_000)
  })

  test('whose burst alone is lowered keeps all that was spent, until it has drained', () => {
    const [before, after] = [rateOf(10, 60_000_000, 1000), rateOf(10, 60_000_000, 10)]
    const spent = draw([{ state: undefined, rate: before, cost: 1000 }], NOON_US, 0).states[0]
    const owed = drain(spent, after, NOON_US).debt
    expect(retryAfterUs(after, owed, 10, 0)).toBe(100 * 60_000_000)
    expect(retryAfterUs(after, owed, 1, 0)).toBe(99 * 60_000_000 + 6_000_000)
  })

  test('is kept exactly, in numbers below 2^53', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 1e9 }), fc.integer({ min: 1000, max: 3.1e13 }), (limit, periodUs) => {
        const { tokenUnits, stepUnits, stepUs, capacity } = rateOf(limit, periodUs, 1)
        expect(capacity).toBeLessThanOrEqual(2 ** 51)
        const off = (tokenUnits * stepUs * limit) / (stepUnits * periodUs) - 1
        expect(Math.abs(off)).toBeLessThan(1e-9)
        expect(Number.isSafeInteger(Math.floor(longestBookUs({ tokenUnits, stepUnits, stepUs, capacity })))).toBe(true)
      }),
    )
    expect(() => rateOf(999_983, 31_622_400_000_000, 1e9)).toThrow(RangeError)
  })

  test('is stored as a text that reads the same, and no other text is read', () => {
    const state = { atUs: NOON_US, debt: 5, rate: rateOf(3, 1_000_000, 2) }
    expect(readRate(rateText(state))).toEqual(state)
    for (const text of ['', 'rate1', 'rate2 1 2 3 4 5 6', 'rate1 1 2 3 4 5 -6', `${rateText(state)} 7`])
      expect(readRate(text)).toBeUndefined()
  })
})

describe('what was booked is given back', () => {
  const rate = rateOf(10, 1_000_000, 1)
  const book = (state: RateState | undefined, nowUs: number, cost = 1): RateState =>
    draw([{ state, rate, cost }], nowUs, 60_000_000).states[0] as RateState

  test('as if it had not been drawn, if no other was booked behind it', () => {
    const first = book(undefined, NOON_US)
    const second = book(first, NOON_US + 10)
    const third = book(second, NOON_US + 20)
    expect(givenBack(third, second, 1)).toBeUndefined()
    const without = givenBack(third, third, 1) as RateState
    expect(drain(without, rate, NOON_US + 30)).toEqual(drain(second, rate, NOON_US + 30))
    // And now the one before it can be given back, too.
    expect(drain(givenBack(without, second, 1), rate, NOON_US + 30)).toEqual(drain(first, rate, NOON_US + 30))
  })

  test('never beyond nothing owed', () => {
    const only = book(undefined, NOON_US)
    expect(givenBack({ ...only, debt: 0, atUs: NOON_US + 100_000 }, only, 1)?.debt).toBe(0)
  })
})
