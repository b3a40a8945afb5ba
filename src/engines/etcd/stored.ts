/**
 * An entry as it is stored: JSON that a person can read, with the version of the format in front. Its place in line,
 * its token, is the revision that created it.
 */

import type { KeyValue, RangeResponse } from '../../clients/etcd/messages.ts'
import type { Claim } from '../../core/engine.ts'
import { heldCount } from '../../core/line.ts'
import { unreadable } from './errors.ts'

const VERSION = 1

export interface Seat {
  readonly id: string
  /** What it is called in its line: see names.ts. */
  readonly name: string
  readonly token: bigint
  readonly weight: number
  readonly limit: number
  readonly holder: string
  readonly lease: bigint
  readonly modRevision: bigint
}

/** A line, or the front of it, in order. */
export interface Front {
  readonly seats: readonly Seat[]
  /** How many of them hold. */
  readonly held: number
  /** How many there are in the line. */
  readonly count: number
}

export function written({ id, weight, limit, holder }: Claim): string {
  return JSON.stringify({ v: VERSION, id, weight, limit, holder })
}

export function seatOf({ key, value, createRevision: token, lease, modRevision }: KeyValue): Seat {
  const { v, id, weight, limit, holder } = parsed(key, value)
  if (typeof v !== 'number' || typeof weight !== 'number' || typeof limit !== 'number')
    throw unreadable(key, 'is no entry of a line')
  if (v > VERSION) throw unreadable(key, `was written by a newer Holdfast (format ${v})`)
  return {
    id: String(id),
    name: key.slice(key.lastIndexOf('/') + 1),
    token,
    weight,
    limit,
    holder: String(holder),
    lease,
    modRevision,
  }
}

function parsed(key: string, value: Buffer): Record<string, unknown> {
  try {
    const read: unknown = JSON.parse(value.toString())
    if (typeof read === 'object' && read !== null) return read as Record<string, unknown>
  } catch {
    // As below.
  }
  throw unreadable(key, 'is no entry of a line')
}

/** From a range that came oldest first. */
export function frontOf({ kvs, count }: RangeResponse): Front {
  const seats = kvs.map(seatOf)
  return { seats, held: heldCount(seats), count }
}

/** What is left of it when some have gone. */
export function without({ seats, count }: Front, isGone: (seat: Seat) => boolean): Front {
  const left = seats.filter((seat) => !isGone(seat))
  return { seats: left, held: heldCount(left), count: count - (seats.length - left.length) }
}
