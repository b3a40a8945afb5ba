/**
 * Seals: entries about which their owner decides no more. A seal stands beside the entry, under a lease of its own, and
 * so does the entry from then on: no renewal reaches it, and it ends when that lease does.
 *
 * `evicted`: somebody has removed it, at once or by letting it run out; as long as the seal stands, its owner is told
 * so. `outlives`: its owner has left it to stand for a while without its process.
 */

import type { EtcdCallOptions } from '../../clients/etcd/client.ts'
import type { Compare } from '../../clients/etcd/messages.ts'
import type { Place, Standing } from '../../core/engine.ts'
import { heldCount } from '../../core/line.ts'
import type { Workplace } from './entering.ts'
import { unsettled } from './errors.ts'
import { type Seat, seatOf } from './stored.ts'

type Kind = 'evicted' | 'outlives'

const GONE: Standing = { state: 'gone', why: 'unknown' }
const EVICTED: Standing = { state: 'gone', why: 'evicted' }
/** How often a change is tried that others keep getting ahead of. */
const TRIES = 10

export class Seals {
  readonly #at: Omit<Workplace, 'renewOne' | 'lookout'>

  constructor(workplace: Omit<Workplace, 'renewOne' | 'lookout'>) {
    this.#at = workplace
  }

  /** Where an entry stands that does not live under a lease of ours, or not at all. */
  async standing(place: Place, own: Seat | undefined, options: EtcdCallOptions): Promise<Standing> {
    const kind = await this.#kindOf(place.key, place.id, options)
    if (kind === 'evicted') return EVICTED
    if (own === undefined) return GONE
    // Somebody else has moved it since it was read.
    if (kind === undefined) throw unsettled('others keep changing it')
    return await this.#under(own.lease, place, options)
  }

  /** It lives as long as this lease does. */
  async #under(lease: bigint, { key, id, ttlMs }: Place, options: EtcdCallOptions): Promise<Standing> {
    const front = await this.#at.client.range({ ...this.#at.names.line(key), oldestFirst: true }, options)
    const seats = front.kvs.map(seatOf)
    const place = seats.findIndex((seat) => seat.id === id)
    const seat = seats[place]
    const { leftSeconds } = await this.#at.client.timeOf(lease, options)
    const livesForMs = Math.min(Math.max(leftSeconds, 0) * 1000, ttlMs)
    if (seat === undefined) return GONE
    if (place < heldCount(seats)) return { state: 'held', token: seat.token, heldForMs: livesForMs }
    return { state: 'waiting', ahead: place, livesForMs }
  }

  /** Let it stand for its ttl from now, without us. */
  async outlive(place: Place, options: EtcdCallOptions): Promise<Standing> {
    const { client, names, entries } = this.#at
    const { key, id, ttlMs } = place
    for (let attempt = 1; attempt <= TRIES; attempt += 1) {
      const { kvs } = await client.range({ ...names.line(key), oldestFirst: true }, options)
      const own = kvs.map(seatOf).find((seat) => seat.id === id)
      const kind = await this.#kindOf(key, id, options)
      if (own === undefined || kind === 'evicted') return kind === 'evicted' ? EVICTED : GONE
      const lease = await this.#seal(key, own, 'outlives', Math.ceil(ttlMs / 1000), options)
      if (lease === undefined) continue
      entries.forget(id)
      return await this.#under(lease, place, options)
    }
    throw unsettled('others keep changing it')
  }

  /**
   * Take out an entry, with its seal, whose name we do not know, and which is not its id: it can only stand in front.
   */
  async takeOut(key: string, id: string): Promise<boolean> {
    const { client, names } = this.#at
    const first = (await client.range({ ...names.line(key), oldestFirst: true, limit: 1 })).kvs.map(seatOf)[0]
    if (first?.id !== id) return false
    const entry = names.entry(key, first.name)
    const same: Compare = { key: entry, target: 'create', result: 'equal', value: first.token }
    return (
      await client.txn({
        compare: [same],
        success: [{ delete: { key: entry } }, { delete: { key: names.seal(key, id) } }],
      })
    ).succeeded
  }

  /** Remove somebody else's entry; false if it is not there. */
  async evict(key: string, token: bigint, how: 'expire' | 'now'): Promise<boolean> {
    const { client, names } = this.#at
    for (let attempt = 1; attempt <= TRIES; attempt += 1) {
      const seats = (await client.range({ ...names.line(key), oldestFirst: true })).kvs.map(seatOf)
      const place = seats.findIndex((seat) => seat.token === token)
      const seat = seats[place]
      if (seat === undefined) return false
      const { grantedSeconds } = await client.timeOf(seat.lease)
      // Gone by now, or about to be.
      if (grantedSeconds === 0) continue
      const expires = how === 'expire' && place < heldCount(seats)
      if (expires && (await this.#kindOf(key, seat.id, {})) === 'evicted') return true
      const done = expires
        ? (await this.#seal(key, seat, 'evicted', grantedSeconds, {})) !== undefined
        : await this.#remove(key, seat, grantedSeconds)
      if (done) return true
    }
    return false
  }

  /**
   * PutRequest the entry and its seal under a lease of their own: answers which. Undefined: the entry has changed since it was
   * read.
   */
  async #seal(
    key: string,
    seat: Seat,
    kind: Kind,
    seconds: number,
    options: EtcdCallOptions,
  ): Promise<bigint | undefined> {
    const { client, names } = this.#at
    const { lease } = await client.grant(seconds, options)
    const entry = names.entry(key, seat.name)
    const unchanged: Compare = { key: entry, target: 'mod', result: 'equal', value: seat.modRevision }
    const success = [{ put: { key: entry, lease } }, { put: { key: names.seal(key, seat.id), value: kind, lease } }]
    const { succeeded } = await client.txn({ compare: [unchanged], success }, options)
    if (succeeded) return lease
    client.revoke(lease).catch(() => {})
    return undefined
  }

  async #remove(key: string, seat: Seat, seconds: number): Promise<boolean> {
    const { client, names } = this.#at
    const { lease } = await client.grant(seconds)
    const entry = names.entry(key, seat.name)
    const same: Compare = { key: entry, target: 'create', result: 'equal', value: seat.token }
    const success = [{ delete: { key: entry } }, { put: { key: names.seal(key, seat.id), value: 'evicted', lease } }]
    const { succeeded } = await client.txn({ compare: [same], success })
    if (!succeeded) client.revoke(lease).catch(() => {})
    return succeeded
  }

  async #kindOf(key: string, id: string, options: EtcdCallOptions): Promise<string | undefined> {
    const { kvs } = await this.#at.client.range({ key: this.#at.names.seal(key, id) }, options)
    return kvs[0]?.value.toString()
  }
}
