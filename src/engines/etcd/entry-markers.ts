/**
 * Markers of entries that their own process no longer decides about. A marker stands beside its entry, and both are
 * under a lease of their own: no renewal reaches the entry, and it ends when that lease does.
 *
 * `evicted`: a user has removed the entry, at once or by letting it run out. As long as the marker stands, renewals are
 * answered so; and the process of the entry is told at once, by its watch of markers (listen.ts). When its work has
 * ended, it leaves, and the line is free before the entry has run out.
 *
 * `outlives`: the holder has left the entry to stand for a while without its process.
 */

import type { EtcdCallOptions } from '../../clients/etcd/client.ts'
import type { Place, Standing } from '../../core/engine.ts'
import { EngineError } from '../../core/errors.ts'
import { heldCount } from '../../core/line.ts'
import { EVICTED_MARKER, hasToken, isUnchanged, readEntry, type StoredEntry, toLineFront } from './codec.ts'
import type { EtcdContext, RenewOptions } from './context.ts'
import { unsettled } from './errors.ts'

type MarkerKind = typeof EVICTED_MARKER | 'outlives'

const GONE: Standing = { state: 'gone', why: 'unknown' }
const EVICTED: Standing = { state: 'gone', why: 'evicted' }
/** How often a change is tried that other clients get in the way of. */
const TRIES = 10

export class EntryMarkers {
  readonly #context: Omit<EtcdContext, 'watcher' | 'evictions'>

  constructor(context: Omit<EtcdContext, 'watcher' | 'evictions'>) {
    this.#context = context
  }

  /** Where an entry stands that is not under a lease of this engine. `found` is undefined if it is not there. */
  async standing(place: Place, found: StoredEntry | undefined, options: RenewOptions): Promise<Standing> {
    const kind = await this.#kindOf(place.key, place.id, options)
    if (kind === EVICTED_MARKER) return EVICTED
    if (found === undefined) return GONE
    // Another engine object has put it under another lease since it was read.
    if (kind === undefined) throw unsettled(options.call, 'another client keeps changing the entry')
    return await this.#standingUnder(found.lease, place, options)
  }

  /** Where an entry stands that lives as long as this lease does. */
  async #standingUnder(lease: bigint, { key, id, ttlMs }: Place, options: EtcdCallOptions): Promise<Standing> {
    const { entries, held, stranger } = toLineFront(await this.#readLine(key, options))
    const place = entries.findIndex((entry) => entry.id === id)
    const entry = entries[place]
    if (entry === undefined && stranger !== undefined) throw stranger
    const { leftSeconds } = await this.#context.client.timeOf(lease, options)
    const livesForMs = Math.min(Math.max(leftSeconds, 0) * 1000, ttlMs)
    if (entry === undefined) return GONE
    if (place < held) return { state: 'held', token: entry.token, heldForMs: livesForMs }
    return { state: 'waiting', ahead: place, livesForMs }
  }

  /** Let the entry stand for its ttl from now on, without this process. */
  async outlive(place: Place, options: EtcdCallOptions): Promise<Standing> {
    const { key, id, ttlMs } = place
    for (let attempt = 1; attempt <= TRIES; attempt += 1) {
      const { entries, stranger } = toLineFront(await this.#readLine(key, options))
      const own = entries.find((entry) => entry.id === id)
      const kind = await this.#kindOf(key, id, options)
      if (own === undefined && kind === undefined && stranger !== undefined) throw stranger
      if (own === undefined || kind === EVICTED_MARKER) return kind === EVICTED_MARKER ? EVICTED : GONE
      const lease = await this.#mark(key, own, 'outlives', Math.ceil(ttlMs / 1000), options)
      if (lease === undefined) continue
      this.#context.entries.forget(id)
      return await this.#standingUnder(lease, place, options)
    }
    throw unsettled('renew', 'another client keeps changing the entry')
  }

  /**
   * Delete an entry whose id is known and whose name is not, and its marker. Such an entry entered an empty line, so it
   * can only stand in front. Answers whether it was there.
   */
  async deleteFirst(key: string, id: string): Promise<boolean> {
    const { client, names } = this.#context
    const { kvs } = await client.range({ ...names.line(key), oldestFirst: true, limit: 1 })
    const [first] = kvs.map(readEntry)
    if (first === undefined || first instanceof EngineError || first.id !== id) return false
    const entry = names.entry(key, first.name)
    const success = [{ delete: { key: entry } }, { delete: { key: names.marker(key, id) } }]
    return (await client.txn({ compare: [hasToken(entry, first.token)], success })).succeeded
  }

  /** Remove the entry of another client; false if it is not there. */
  async evict(key: string, token: bigint, how: 'expire' | 'now'): Promise<boolean> {
    for (let attempt = 1; attempt <= TRIES; attempt += 1) {
      const { entries, stranger } = toLineFront(await this.#readLine(key, {}))
      const place = entries.findIndex((entry) => entry.token === token)
      const entry = entries[place]
      if (entry === undefined && stranger !== undefined) throw stranger
      if (entry === undefined) return false
      const { leftSeconds, grantedSeconds } = await this.#context.client.timeOf(entry.lease)
      // Its lease has ended: the entry is gone by now, or about to be.
      if (grantedSeconds === 0) continue
      const kind = await this.#kindOf(key, entry.id, {})
      const expires = how === 'expire' && place < heldCount(entries)
      if (expires && kind === EVICTED_MARKER) return true
      // A process may have renewed its entry just now. What was left to stand is renewed by none.
      const seconds = kind === 'outlives' ? Math.max(leftSeconds, 0) + 1 : grantedSeconds
      const done = expires
        ? (await this.#mark(key, entry, EVICTED_MARKER, seconds, {})) !== undefined
        : await this.#remove(key, entry, seconds)
      if (done) return true
    }
    return false
  }

  /** Put the entry and its marker under a new lease, and answer its id. Undefined: the entry has changed meanwhile. */
  async #mark(
    key: string,
    stored: StoredEntry,
    kind: MarkerKind,
    seconds: number,
    options: EtcdCallOptions,
  ): Promise<bigint | undefined> {
    const { client, names } = this.#context
    const { lease } = await client.grant(seconds, options)
    const entry = names.entry(key, stored.name)
    const success = [{ put: { key: entry, lease } }, { put: { key: names.marker(key, stored.id), value: kind, lease } }]
    const { succeeded } = await client.txn({ compare: [isUnchanged(entry, stored)], success }, options)
    if (succeeded) return lease
    client.revoke(lease).catch(() => {})
    return undefined
  }

  /** Delete the entry, and leave a marker that it was evicted. */
  async #remove(key: string, stored: StoredEntry, seconds: number): Promise<boolean> {
    const { client, names } = this.#context
    const { lease } = await client.grant(seconds)
    const entry = names.entry(key, stored.name)
    const marker = { key: names.marker(key, stored.id), value: EVICTED_MARKER, lease }
    const success = [{ delete: { key: entry } }, { put: marker }]
    const { succeeded } = await client.txn({ compare: [hasToken(entry, stored.token)], success })
    if (!succeeded) client.revoke(lease).catch(() => {})
    return succeeded
  }

  #readLine(key: string, options: EtcdCallOptions): ReturnType<EtcdContext['client']['range']> {
    return this.#context.client.range({ ...this.#context.names.line(key), oldestFirst: true }, options)
  }

  async #kindOf(key: string, id: string, options: EtcdCallOptions): Promise<string | undefined> {
    const { kvs } = await this.#context.client.range({ key: this.#context.names.marker(key, id) }, options)
    return kvs[0]?.value.toString()
  }
}
