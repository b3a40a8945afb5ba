/**
 * What has to be given back on one node, when it can be asked again: by id.
 *
 * What was sent before the connection broke must have expired there by itself, after a ttl; but a client that somebody
 * brought may send again what was not answered, as soon as it is connected, however much later that is. So a debt is
 * paid all the same.
 */
import type { Clock } from '../../core/clock.ts'
import type { Departure } from './node.ts'
import type { Owed } from './outbox.ts'

/** How much is remembered for a node that is away. Beyond it, what is left behind expires by itself. */
const MOST_DEBTS = 10_000

interface Debt {
  readonly departure: Owed
  readonly until: number
}

export class Debts {
  readonly #clock: Clock
  readonly #debts = new Map<string, Debt>()

  constructor(clock: Clock) {
    this.#clock = clock
  }

  get size(): number {
    return this.#debts.size
  }

  add(departure: Owed): void {
    const known = this.#debts.get(departure.id)
    if (known === undefined ? !this.#hasRoom() : covers(known.departure, departure)) return
    this.#debts.set(departure.id, { departure, until: this.#clock.now() + departure.ttlMs })
  }

  /** So many of them. They are no debts any more, unless they are added again. */
  take(most: number): readonly Owed[] {
    const now = this.#clock.now()
    const taken: Owed[] = []
    for (const [id, { departure, until }] of this.#debts) {
      if (taken.length === most) break
      this.#debts.delete(id)
      const { key, upTo } = departure
      // Whoever was to stay in line has not been renewed there since.
      if (until > now) taken.push({ ...departure, ttlMs: until - now })
      else taken.push({ key, id, ttlMs: 0, ...(upTo === undefined ? {} : { upTo }) })
    }
    return taken
  }

  /** The oldest gives way if it must have expired. */
  #hasRoom(): boolean {
    if (this.#debts.size < MOST_DEBTS) return true
    const [[id, { until }] = ['', { until: Number.POSITIVE_INFINITY }]] = this.#debts
    return until <= this.#clock.now() && this.#debts.delete(id)
  }
}

/** Having left for good is more than having taken back one attempt, and a later attempt more than an earlier one. */
function covers(known: Departure, other: Departure): boolean {
  return known.upTo === undefined || (other.upTo !== undefined && known.upTo > other.upTo)
}
