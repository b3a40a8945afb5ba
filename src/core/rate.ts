/**
 * The rule of a rate limit, without I/O and without a clock: GCRA, the leaky bucket that keeps one number.
 *
 * Who takes something owes it. A debt drains as time passes, and no more may be taken than `capacity` has room for. So
 * in every window of time t at most `limit · t / per + burst` are let through, and a refusal changes nothing.
 *
 * **Units.** All numbers are whole, and exact. One token is `tokenUnits` units, and `stepUnits` of them drain in one
 * step of time: 100 in a minute are 600,000 units for each token, and 1 for each microsecond; 300,000 in a second are
 * 10 and 3. The usual form, one time in microseconds, would round the 3.33 microseconds between two of these, and with
 * them the rate. Servers that know doubles only (Lua) have whole numbers up to 2^53: `rateOf` keeps all below that.
 *
 * The same rule is in engines/redis/lua/take.lua, engines/postgres/sql/take.sql and engines/mysql/sql/take.sql. The
 * conformance case about draws works out each of their answers again, by this file.
 */

/** A rate, in whole numbers. */
export interface Rate {
  /** How many units one token is. */
  readonly tokenUnits: number
  /** How many units drain in one step of time. */
  readonly stepUnits: number
  /** How long a step is, in microseconds: 1; 1000 where the numbers would be too large otherwise. */
  readonly stepUs: number
  /** How many units may be owed: those of `burst` tokens. */
  readonly capacity: number
}

/** What is stored for a key. */
export interface RateState {
  /** When the debt was this, on the server's clock: microseconds since 1970, a whole number of steps. */
  readonly atUs: number
  /** In units. Above the capacity: slots that lie ahead were booked. */
  readonly debt: number
  /** The rate of the last draw: its units are those of the debt. */
  readonly rate: Rate
}

/** Of one key: what was stored, and how much of which rate is to be taken. */
export interface RateDraw {
  readonly state: RateState | undefined
  readonly rate: Rate
  readonly cost: number
}

/** Twice this is exact in a double, and so is every quotient of two numbers below it, rounded up or down. */
const MOST_UNITS = 2 ** 51
const STEPS_US = [1, 1000]

/**
 * A clock that is behind by no more than this stands still until it has caught up. One that is further behind was set
 * back: then time goes on from what it says, or a key could be stuck for hours.
 */
export const CLOCK_JITTER_US = 1_000_000

/** `limit` tokens in `periodUs`, and `burst` at once. All are whole numbers above 0. */
export function rateOf(limit: number, periodUs: number, burst: number): Rate {
  for (const stepUs of STEPS_US) {
    const steps = Math.max(1, Math.round(periodUs / stepUs))
    const divisor = greatestDivisor(limit, steps)
    const [tokenUnits, stepUnits] = [steps / divisor, limit / divisor]
    if (burst * tokenUnits <= MOST_UNITS) return { tokenUnits, stepUnits, stepUs, capacity: burst * tokenUnits }
  }
  throw new RangeError(`a burst of ${burst} at ${limit} in ${periodUs / 1000} ms cannot be counted exactly`)
}

/** How far ahead a slot of this rate may be booked. */
export function longestBookUs({ stepUnits, stepUs }: Rate): number {
  return Math.floor(MOST_UNITS / stepUnits) * stepUs
}

/** What is owed at `nowUs`, in units of `rate`, and the time to store with it. */
export function drain(state: RateState | undefined, rate: Rate, nowUs: number): { atUs: number; debt: number } {
  const atUs = nowUs - (nowUs % rate.stepUs)
  if (state === undefined) return { atUs, debt: 0 }
  const steps = Math.max(0, Math.floor((nowUs - state.atUs) / state.rate.stepUs))
  const debt = Math.max(0, state.debt - steps * state.rate.stepUnits)
  const standsStill = nowUs < state.atUs && state.atUs - nowUs <= CLOCK_JITTER_US
  return { atUs: standsStill ? state.atUs : atUs, debt: inUnits(debt, state.rate, rate) }
}

/**
 * The rate of a key was changed: what was spent stays spent, in tokens, and is no more than the new burst. At the same
 * rate all of it stays, whatever the new burst is: more than that may be owed for slots that were booked.
 */
function inUnits(debt: number, from: Rate, to: Rate): number {
  if (haveSameUnits(from, to)) return debt
  return Math.min(to.capacity, Math.ceil((debt / from.tokenUnits) * to.tokenUnits))
}

function haveSameUnits(a: Rate, b: Rate): boolean {
  return a.tokenUnits === b.tokenUnits && a.stepUnits === b.stepUnits && a.stepUs === b.stepUs
}

/**
 * Take from all of these keys, or from none: it is taken if each has room, or will have within `bookUs`. The keys
 * differ. `states`: what to store then, in their order. `debts`: what is owed, after what was taken.
 */
export function draw(
  draws: readonly RateDraw[],
  nowUs: number,
  bookUs: number,
): { taken: boolean; debts: readonly number[]; states: readonly RateState[] } {
  const drained = draws.map(({ state, rate }) => drain(state, rate, nowUs))
  const wanted = draws.map(({ rate, cost }, index) => (drained[index]?.debt as number) + cost * rate.tokenUnits)
  const taken = draws.every(({ rate }, index) => (wanted[index] as number) <= rate.capacity + bookable(rate, bookUs))
  const debts = taken ? wanted : drained.map(({ debt }) => debt)
  const states = draws.map(({ rate }, index) => ({
    atUs: drained[index]?.atUs as number,
    debt: debts[index] as number,
    rate,
  }))
  return { taken, debts, states }
}

function bookable({ stepUnits, stepUs }: Rate, bookUs: number): number {
  return Math.floor(bookUs / stepUs) * stepUnits
}

// ---- what a debt means ----

/** How long until what was taken may be used. */
export function delayUs(rate: Rate, debt: number): number {
  return stepsOf(rate, debt - rate.capacity)
}

/** How long until `cost` would not be refused any more, if no other draw comes before it. */
export function retryAfterUs(rate: Rate, debt: number, cost: number, bookUs: number): number {
  return stepsOf(rate, debt + cost * rate.tokenUnits - rate.capacity - bookable(rate, bookUs))
}

/** How long until nothing is owed. */
export function resetUs(rate: Rate, debt: number): number {
  return stepsOf(rate, debt)
}

/** How many tokens could be taken at once. */
export function remainingOf(rate: Rate, debt: number): number {
  return Math.max(0, Math.floor((rate.capacity - debt) / rate.tokenUnits))
}

function stepsOf({ stepUnits, stepUs }: Rate, units: number): number {
  return Math.max(0, Math.ceil(units / stepUnits)) * stepUs
}

/**
 * The state without what `own` has taken, if no other draw came since: then no slot was booked behind it, and all is as
 * if it had not been drawn. Undefined: another one came, or nothing is left to give back.
 */
export function givenBack(state: RateState, own: RateState, cost: number): RateState | undefined {
  const { rate } = own
  if (!haveSameUnits(state.rate, rate)) return undefined
  const steps = Math.floor((state.atUs - own.atUs) / rate.stepUs)
  if (state.debt !== own.debt - steps * rate.stepUnits) return undefined
  const debt = Math.max(0, state.debt - cost * rate.tokenUnits)
  return { atUs: state.atUs, debt, rate: state.rate }
}

// ---- what is stored ----

/** As text, so that people can read it. */
export function rateText({ atUs, debt, rate }: RateState): string {
  const { tokenUnits, stepUnits, stepUs, capacity } = rate
  return `rate1 ${atUs} ${debt} ${tokenUnits} ${stepUnits} ${stepUs} ${capacity}`
}

/** Undefined for what is no such text, or one of a newer version. */
export function readRate(text: string): RateState | undefined {
  if (!/^rate1( \d{1,16}){6}$/.test(text)) return undefined
  const [atUs, debt, tokenUnits, stepUnits, stepUs, capacity] = text.split(' ').slice(1).map(Number) as [
    number,
    number,
    number,
    number,
    number,
    number,
  ]
  return { atUs, debt, rate: { tokenUnits, stepUnits, stepUs, capacity } }
}

function greatestDivisor(a: number, b: number): number {
  return b === 0 ? a : greatestDivisor(b, a % b)
}
