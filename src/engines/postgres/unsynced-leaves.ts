/**
 * Leaves that the server may not have written to its disk yet.
 *
 * A release that hands off to a waiter does not wait for the server's disk (see sql/leave.sql). If the server then
 * crashes, it comes back with the line as it was before: with the entry of the holder that left in front. No entry is
 * let in that should not be, but the waiters would wait until that entry has expired. So after this process has lost
 * its connection it leaves these lines once more.
 */
import type { Clock } from '../../core/clock.ts'
import type { EntryName } from './codec.ts'

/** A server writes what it has within a second; to notice that it has crashed may take longer. */
const REMEMBERED_MS = 60_000
const MOST = 1000

export class UnsyncedLeaves {
  readonly #clock: Clock
  /** In the order of time. */
  readonly #recent = new Map<string, { readonly place: EntryName; readonly at: number }>()

  constructor(clock: Clock) {
    this.#clock = clock
  }

  add(place: EntryName): void {
    const now = this.#clock.now()
    this.#recent.set(`${place.id} ${place.key}`, { place, at: now })
    for (const [name, { at }] of this.#recent) {
      if (this.#recent.size <= MOST && at > now - REMEMBERED_MS) break
      this.#recent.delete(name)
    }
  }

  /** All of them, to be left again. */
  take(): readonly EntryName[] {
    const after = this.#clock.now() - REMEMBERED_MS
    const places = [...this.#recent.values()].filter(({ at }) => at > after).map(({ place }) => place)
    this.#recent.clear()
    return places
  }
}
