/**
 * The first level: fresh values in the memory of this process, as bytes. Each caller is given a copy of its own, so
 * that none can change what another one gets.
 *
 * In its own process it is as right as the store: what was asked of the store before an invalidation of this process
 * has ended is not kept (`Ticket`). Of invalidations in other processes it knows nothing: what they forget is served
 * here until its ttl is over, and that is all that can be promised without a message to every process.
 */
import type { Clock } from '../../core/clock.ts'

/** Invalidations are counted in so many places, by key. Keys that share one only keep a value less often. */
const PLACES = 1024

interface LocalValue {
  readonly bytes: Uint8Array
  readonly version: bigint
  readonly until: number
}

/** An answer of the store, and when the store was asked for it. */
interface Answered extends Pick<LocalValue, 'bytes' | 'version'> {
  readonly freshMs: number
  readonly askedAt: number
}

/** How many invalidations there were when the store was asked. */
export type Ticket = number

export class LocalValues {
  readonly #clock: Clock
  readonly #max: number
  readonly #ttlMs: number
  readonly #values = new Map<string, LocalValue>()
  readonly #invalidations = new Uint32Array(PLACES)

  constructor(clock: Clock, max: number, ttlMs: number) {
    this.#clock = clock
    this.#max = max
    this.#ttlMs = ttlMs
  }

  get(key: string): Uint8Array | undefined {
    const value = this.#values.get(key)
    if (value === undefined) return undefined
    this.#values.delete(key)
    if (value.until <= this.#clock.now()) return undefined
    // Now it is the last of the map, whose first one is dropped when there are too many.
    this.#values.set(key, value)
    return value.bytes
  }

  /** To be taken before the store is asked. */
  ticket(key: string): Ticket {
    return this.#invalidations[placeOf(key)] as number
  }

  /**
   * Keep what the store has answered: unless an invalidation has ended since, or a later version is here. Its time
   * counts from when the store was asked: this process may have stood still before it heard the answer.
   */
  keep(key: string, ticket: Ticket, value: Answered): void {
    const { bytes, version, freshMs, askedAt } = value
    const now = this.#clock.now()
    const until = askedAt + Math.min(this.#ttlMs, freshMs)
    if (ticket !== this.ticket(key) || until <= now) return
    const known = this.#values.get(key)
    if (known !== undefined && known.version > version && known.until > now) return
    this.#values.delete(key)
    this.#values.set(key, { bytes, version, until })
    const [oldest] = this.#values.keys()
    if (this.#values.size > this.#max && oldest !== undefined) this.#values.delete(oldest)
  }

  /** To be called when an invalidation begins, and when it has ended. */
  forget(key: string): void {
    const place = placeOf(key)
    this.#invalidations[place] = (this.#invalidations[place] as number) + 1
    this.#values.delete(key)
  }
}

function placeOf(key: string): number {
  let hash = 0
  for (let index = 0; index < key.length; index += 1) hash = (Math.imul(hash, 31) + key.charCodeAt(index)) | 0
  return (hash >>> 0) % PLACES
}
