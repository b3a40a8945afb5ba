/** What is answered while the server cannot be asked, and the counts of this process for that time. */
import type { EngineError } from '../../core/errors.ts'
import { draw, type RateState } from '../../core/rate.ts'
import type { ReadRate, ReadRateLimit } from './options.ts'
import { type RateVerdict, type TakenPart, verdictOf } from './verdict.ts'

/** How many keys a process counts by itself. Beyond that, the ones that were not asked for longest are forgotten. */
const MOST_KEYS = 10_000
const RETRY_MS = 1000

/** States of keys, in the memory of this process. */
export class LocalStates {
  readonly #states = new Map<string, RateState>()

  get(key: string): RateState | undefined {
    return this.#states.get(key)
  }

  set(key: string, state: RateState): void {
    this.#states.delete(key)
    this.#states.set(key, state)
    for (const oldest of this.#states.keys()) {
      if (this.#states.size <= MOST_KEYS) return
      this.#states.delete(oldest)
    }
  }
}

interface LocalPart extends TakenPart {
  readonly limit: ReadRateLimit
  readonly local: LocalStates
}

/**
 * As `outage` of each limit says. Throws `error` where one does not say. `nowMs`: by the clock of this process. Of
 * several limits, each has to allow it.
 */
export function decideInOutage(
  parts: readonly LocalPart[],
  bookUs: number,
  nowMs: number,
  error: EngineError,
): RateVerdict {
  const policies = parts.map(({ limit }) => limit.outage)
  if (policies.includes(undefined)) throw error
  const unknown = { remaining: 0, resetMs: 0, delayMs: 0, limits: [], outage: error }
  if (policies.includes('deny')) return { ...unknown, allowed: false, retryAfterMs: RETRY_MS }
  const counted = parts.filter(({ limit }) => typeof limit.outage === 'object').map(locally)
  if (counted.length === 0) return { ...unknown, allowed: true, retryAfterMs: 0 }
  const drawn = draw(
    counted.map(({ limit, key, cost, local }) => ({ state: local.get(key), rate: limit.rate, cost })),
    Math.floor(nowMs * 1000),
    bookUs,
  )
  for (const [index, { key, local }] of counted.entries())
    if (drawn.taken) local.set(key, drawn.states[index] as RateState)
  return { ...verdictOf(counted, drawn, bookUs), outage: error }
}

/** The part, by the rate of this process. What costs more than that allows at once counts for all of it. */
function locally(part: LocalPart): LocalPart {
  const rate = part.limit.outage as ReadRate
  return { ...part, limit: { ...part.limit, ...rate }, cost: Math.min(part.cost, rate.burst) }
}
