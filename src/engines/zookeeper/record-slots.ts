/**
 * When a record is to be swept. ZooKeeper takes nothing away that has expired, and tells of no node when it expires
 * without its being read. So for every record with a ttl there is an empty node in the slot of its expiry:
 *
 *     /holdfast-records/expiring/<slot>/<key>
 *
 * A slot is named by its end, in milliseconds since 1970. Records that expire at about the same time have one slot: so
 * there are few slots, and what is in one that has ended is what has expired. It is created in the transaction that
 * puts the record. A record that is put again, with another expiry, leaves its node in the old slot to the sweep.
 */

const SHORTEST_MS = 60_000
const LONGEST_MS = 6 * 3_600_000
/** How many slots there are in one ttl. */
const SLOTS = 8

/** The slot of a record that is put at about `nowMs`. Its end is not before the expiry. */
export function slotFor(ttlMs: number, nowMs: number): number {
  const widthMs = Math.min(Math.max(2 ** Math.floor(Math.log2(ttlMs / SLOTS)), SHORTEST_MS), LONGEST_MS)
  return Math.ceil((nowMs + ttlMs) / widthMs) * widthMs
}

/** The slots that have ended, the oldest first. Names that are no slots are passed over. */
export function endedSlots(names: readonly string[], nowMs: number): readonly number[] {
  return names
    .filter((name) => /^\d{1,15}$/.test(name))
    .map(Number)
    .filter((slot) => slot <= nowMs)
    .sort((one, other) => one - other)
}
