/**
 * Renewing: a keep-alive of the lease, and then a read of the entries and of the lines in which they wait. The read is
 * what makes the keep-alive count (leases.ts). It also tells a waiter that it holds, should news have been lost.
 *
 * An entry that is not under the lease of its ttl is moved there: its ttl has changed, or its old lease is tainted, or
 * another engine object entered it. It is moved only from where it was read. So a move that was given up, and arrives
 * late, moves nothing.
 */

import type { EtcdCallOptions } from '../../clients/etcd/client.ts'
import { NO_HEADER, type RequestOp, type ResponseHeader } from '../../clients/etcd/messages.ts'
import type { Claim, Place, Standing } from '../../core/engine.ts'
import { EngineError } from '../../core/errors.ts'
import type { EngineCall } from '../../core/failed-call.ts'
import {
  FRONT_SIZE,
  hasToken,
  isAbsent,
  isUnchanged,
  type LineFront,
  lineFrontIn,
  readEntry,
  type StoredEntry,
  toLineFront,
} from './codec.ts'
import type { EtcdContext, RenewOptions } from './context.ts'
import type { EntryMarkers } from './entry-markers.ts'
import { asEngineError, isLeaseGone, unsettled } from './errors.ts'
import type { EtcdLease } from './leases.ts'

/** Each place takes two operations at most, of the 128 that a transaction may have. */
const PLACES_AT_ONCE = 60
/** How often a renewal is tried under which leaders change, or leases end. */
const TRIES = 3

/** A place whose lease was kept alive. */
interface LeasedPlace {
  readonly place: Place
  readonly lease: EtcdLease
}

/** The front of a line, and the revision at which it was read. */
interface ReadFront {
  readonly front: LineFront
  readonly revision: bigint
}

/** What was read in one transaction: our own entries by their ids, and the fronts of lines by their keys. */
interface RenewRead {
  readonly header: ResponseHeader
  readonly own: Map<string, StoredEntry>
  readonly fronts: ReadonlyMap<string, ReadFront>
}

type LeaseFor = (ttlMs: number) => Promise<EtcdLease>

export class EtcdRenewCalls {
  readonly #context: EtcdContext
  readonly #markers: EntryMarkers

  constructor(context: EtcdContext, markers: EntryMarkers) {
    this.#context = context
    this.#markers = markers
  }

  async renew(places: readonly Place[], options: RenewOptions): Promise<readonly Standing[]> {
    const startedAt = this.#context.clock.now()
    const failed = failedIn(options.call)
    // One keep-alive for all parts, unless one of them has to try again.
    const leaseFor = this.#keepingAlive(options)
    const parts: Promise<readonly Standing[]>[] = []
    for (let from = 0; from < places.length; from += PLACES_AT_ONCE) {
      const part = places.slice(from, from + PLACES_AT_ONCE)
      const renewing = this.#renewTogether(part, leaseFor, startedAt, options)
      parts.push(renewing.catch((error: unknown) => part.map(() => failed(error))))
    }
    return (await Promise.all(parts)).flat()
  }

  /** One keep-alive for each ttl. */
  #keepingAlive(options: EtcdCallOptions): LeaseFor {
    const leases = new Map<number, Promise<EtcdLease>>()
    return (ttlMs) => {
      const lease = leases.get(ttlMs) ?? this.#context.leases.renewed(ttlMs, options)
      leases.set(ttlMs, lease)
      return lease
    }
  }

  async #renewTogether(
    places: readonly Place[],
    first: LeaseFor,
    startedAt: number,
    options: RenewOptions,
  ): Promise<readonly Standing[]> {
    const { leases } = this.#context
    let leaseFor = first
    for (let attempt = 1; ; attempt += 1) {
      const plain = places.filter(({ outlives }) => outlives !== true)
      const leased = await Promise.all(plain.map(async (place) => ({ place, lease: await leaseFor(place.ttlMs) })))
      const used = new Set(leased.map(({ lease }) => lease))
      // A lease was given up while we waited for another: it may be revoked at any moment, with all that is under it.
      if ([...used].some(({ tainted }) => tainted)) {
        if (attempt === TRIES) throw unsettled(options.call, 'leases are given up again and again')
        leaseFor = this.#keepingAlive(options)
        continue
      }
      leases.beginUse(used)
      try {
        const standings = await this.#readAndMove(places, leased, startedAt, options)
        if (standings !== undefined) return standings
        if (attempt === TRIES) throw unsettled(options.call, 'the leader of the cluster changes too often')
      } catch (error) {
        if (!isLeaseGone(error) || attempt === TRIES) throw error
      } finally {
        leases.endUse(used)
      }
      leaseFor = this.#keepingAlive(options)
    }
  }

  /** Undefined: another leader has come since the keep-alive, and has to be asked, too. */
  async #readAndMove(
    places: readonly Place[],
    leased: readonly LeasedPlace[],
    startedAt: number,
    options: RenewOptions,
  ): Promise<readonly Standing[] | undefined> {
    const { entries } = this.#context
    const used = [...new Set(leased.map(({ lease }) => lease))]
    const unconfirmed = used.map((lease) => lease.unconfirmed)
    const plain = leased.map(({ place }) => place)
    let read = await this.#read(plain, options)
    // An entry that is not where we knew it to be has gone, or another engine object has entered it by another name.
    const misplaced = plain.filter(({ id }) => entries.get(id) !== undefined && !read.own.has(id))
    if (misplaced.length > 0) {
      for (const { id } of misplaced) entries.forget(id)
      read = await this.#read(plain, options)
    }
    for (const [index, lease] of used.entries()) lease.confirm(unconfirmed[index], read.header.term)
    if (used.some((lease) => lease.leftMs(startedAt) < lease.ttlMs)) return undefined
    await this.#move(leased, read, options)
    const leaseOf = new Map(leased.map(({ place, lease }) => [place, lease]))
    const standings = places.map(async (place) => {
      const lease = leaseOf.get(place)
      if (lease === undefined) return await this.#markers.outlive(place, options)
      return await this.#standing({ place, lease }, read, startedAt, options)
    })
    const answers = await Promise.all(standings.map((standing) => standing.catch(failedIn(options.call))))
    for (const lease of used) this.#deleteAbandoned(lease)
    return answers
  }

  async #read(places: readonly Place[], options: EtcdCallOptions): Promise<RenewRead> {
    const { names, entries, client } = this.#context
    const owns = [
      ...new Map(places.map(({ key, id }) => [id, { key, entry: names.entry(key, entries.get(id)?.name ?? id) }])),
    ]
    const lines = [...new Set(places.filter(({ id }) => entries.get(id)?.held !== true).map(({ key }) => key))]
    const reads: RequestOp[] = [
      ...owns.map(([, { entry }]): RequestOp => ({ range: { key: entry } })),
      ...lines.map((key): RequestOp => ({ range: { ...names.line(key), oldestFirst: true, limit: FRONT_SIZE } })),
    ]
    if (reads.length === 0) return { header: NO_HEADER, own: new Map(), fronts: new Map() }
    const response = await client.txn({ success: reads }, options)
    const { header, responses } = response
    const fronts = new Map<string, ReadFront>()
    for (const [index, key] of lines.entries()) {
      const front = lineFrontIn(response, owns.length + index)
      // Only the front was read. If all of it holds, entries behind it may hold: then the whole line is read.
      const isAll = front.count === front.entries.length || front.stranger !== undefined
      const isEnough = front.held < front.entries.length || isAll
      fronts.set(key, isEnough ? { front, revision: header.revision } : await this.#wholeLine(key, options))
    }
    const own = new Map<string, StoredEntry>()
    for (const [index, [id, { key }]] of owns.entries()) {
      const kv = responses[index]?.range?.kvs[0]
      // An entry that entered an empty line stands in front, by a name that we may not know. Should it be there twice,
      // after two enters that were never answered, the older one counts.
      const inFront = fronts.get(key)?.front.entries.find((one) => one.id === id)
      const underName = kv === undefined ? undefined : readEntry(kv)
      // Another program may have put something else there: then our entry is not there any more.
      const byName = underName instanceof EngineError || underName?.id !== id ? undefined : underName
      const entry = entries.get(id) === undefined ? (inFront ?? byName) : (byName ?? inFront)
      if (entry !== undefined) own.set(id, entry)
    }
    return { header, own, fronts }
  }

  async #wholeLine(key: string, options: EtcdCallOptions): Promise<ReadFront> {
    const { client, names } = this.#context
    const response = await client.range({ ...names.line(key), oldestFirst: true }, options)
    return { front: toLineFront(response), revision: response.header.revision }
  }

  /** Move entries that are under another lease, unless they have changed since they were read, or have a marker. */
  async #move(leased: readonly LeasedPlace[], { own }: RenewRead, options: EtcdCallOptions): Promise<void> {
    const { client, names } = this.#context
    const moves = new Map<string, { readonly to: EtcdLease; readonly op: RequestOp; readonly entry: StoredEntry }>()
    for (const { place, lease: to } of leased) {
      const entry = own.get(place.id)
      if (entry === undefined || entry.lease === to.id) continue
      const key = names.entry(place.key, entry.name)
      const compare = [isUnchanged(key, entry), isAbsent(names.marker(place.key, place.id))]
      moves.set(place.id, { to, op: { txn: { compare, success: [{ put: { key, lease: to.id } }] } }, entry })
    }
    if (moves.size === 0) return
    // From now on the entry may be there, whatever the answer.
    for (const [id, { to }] of moves) to.entryIds.add(id)
    const { responses } = await client.txn({ success: [...moves.values()].map(({ op }) => op) }, options)
    for (const [index, [id, { to, entry }]] of [...moves].entries()) {
      if (responses[index]?.txn?.succeeded === true) own.set(id, { ...entry, lease: to.id })
    }
  }

  async #standing(
    { place, lease }: LeasedPlace,
    read: RenewRead,
    startedAt: number,
    options: RenewOptions,
  ): Promise<Standing> {
    const { key, id, ttlMs } = place
    const { entries, watcher, evictions } = this.#context
    const own = read.own.get(id)
    if (own === undefined || own.lease !== lease.id) {
      const standing = await this.#markers.standing(place, own, options)
      entries.forget(id)
      watcher.removeWaiter(key, id)
      return standing
    }
    if (lease.sweptIds.has(id)) return { state: 'gone', why: 'expired' }
    const { token, name } = own
    const livesForMs = Math.min(lease.leftMs(startedAt), ttlMs)
    const known = entries.get(id)
    // An entry that holds goes on holding, and its line need not be read. With another token it has entered anew.
    const line =
      known?.held === true && known.token === token
        ? undefined
        : (read.fronts.get(key) ?? (await this.#wholeLine(key, options)))
    // By its token: an id may stand there twice.
    const ahead = line?.front.entries.findIndex((one) => one.token === token) ?? -1
    if (ahead < 0 && line?.front.stranger !== undefined) throw line.front.stranger
    const held = line === undefined || (ahead >= 0 && ahead < line.front.held)
    const entry = entries.record({ key, id, name, token, lease, ttlMs, held })
    evictions.watchFrom(read.header.revision)
    // The watcher may have heard before us that it holds: then `entry` says so.
    if (entry.held || line === undefined) {
      watcher.removeWaiter(key, id)
      return { state: 'held', token, heldForMs: livesForMs }
    }
    watcher.addWaiter(entry, line.front, line.revision)
    return { state: 'waiting', ahead: ahead < 0 ? null : ahead, livesForMs }
  }

  /**
   * Delete the entries that the core has given up without a leave: under a lease that lives, they would never expire.
   */
  #deleteAbandoned(lease: EtcdLease): void {
    const { client, names, leases, entries, watcher } = this.#context
    const abandoned = entries.abandoned(lease)
    for (let from = 0; from < abandoned.length; from += PLACES_AT_ONCE) {
      const some = abandoned.slice(from, from + PLACES_AT_ONCE)
      const deletions = some.map(({ key, name, token }): RequestOp => {
        const entry = names.entry(key, name)
        return { txn: { compare: [hasToken(entry, token)], success: [{ delete: { key: entry } }] } }
      })
      // Should it fail, the lease is given up, and all other entries move.
      client.txn({ success: deletions }).catch(() => leases.taint(lease))
      for (const { key, id } of some) {
        lease.sweptIds.add(id)
        entries.forget(id)
        watcher.removeWaiter(key, id)
      }
    }
  }
}

function failedIn(call: EngineCall): (error: unknown) => Standing {
  return (error) => ({ state: 'failed', error: asEngineError(call, error) })
}

/** The place of a claim that is in its line already. */
export function placeOf({ key, id, ttlMs }: Claim): Place {
  return { key, id, ttlMs }
}
