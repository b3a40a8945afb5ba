/**
 * Renewing: a keep-alive of the lease, and then a read of the entries and of the lines in which they wait. The read is
 * what makes the keep-alive count (class-lease.ts), and what tells a waiter that it holds, should a message have been
 * lost.
 *
 * An entry that is not under the lease of its ttl is moved there: its ttl has changed, or its old lease is tainted, or
 * another engine object entered it. It is moved from where it was read, and only from there, so that a move which was
 * given up and arrives late moves nothing.
 */

import type { EtcdCallOptions } from '../../clients/etcd/client.ts'
import { NO_HEADER, type RequestOp, type ResponseHeader } from '../../clients/etcd/messages.ts'
import type { Claim, Place, Standing } from '../../core/engine.ts'
import type { ClassLease } from './class-lease.ts'
import type { Workplace } from './entering.ts'
import { fault, isLeaseGone, unsettled } from './errors.ts'
import { FRONT } from './lookout.ts'
import type { Seals } from './seals.ts'
import { type Front, frontOf, type Seat, seatOf } from './stored.ts'

/** Each takes two operations at most, of the 128 that a transaction may have. */
const PLACES_AT_ONCE = 60
/** How often leaders change, or leases end, under one renewal. */
const TRIES = 3

/** A place whose lease was kept alive. */
interface Renewed {
  readonly place: Place
  readonly lease: ClassLease
}

/** The front of a line, and the revision at which it was read. */
interface Sight {
  readonly front: Front
  readonly revision: bigint
}

/** What was read, at one moment. */
interface Reading {
  readonly header: ResponseHeader
  readonly own: Map<string, Seat>
  readonly fronts: ReadonlyMap<string, Sight>
}

type LeaseFor = (ttlMs: number) => Promise<ClassLease>

export class Renewing {
  readonly #at: Omit<Workplace, 'renewOne'>
  readonly #seals: Seals

  constructor(workplace: Omit<Workplace, 'renewOne'>, seals: Seals) {
    this.#at = workplace
    this.#seals = seals
  }

  async renew(places: readonly Place[], options: EtcdCallOptions): Promise<readonly Standing[]> {
    const startedAt = this.#at.clock.now()
    // One keep-alive for all parts, unless one of them has to try again.
    const leaseFor = this.#keepingAlive(options)
    const parts: Promise<readonly Standing[]>[] = []
    for (let from = 0; from < places.length; from += PLACES_AT_ONCE) {
      const part = places.slice(from, from + PLACES_AT_ONCE)
      const failed = (error: unknown): readonly Standing[] => part.map(() => ({ state: 'failed', error: fault(error) }))
      parts.push(this.#renewSome(part, leaseFor, startedAt, options).catch(failed))
    }
    return (await Promise.all(parts)).flat()
  }

  #keepingAlive(options: EtcdCallOptions): LeaseFor {
    const leases = new Map<number, Promise<ClassLease>>()
    return (ttlMs) => {
      const lease = leases.get(ttlMs) ?? this.#at.leases.renewed(ttlMs, options)
      leases.set(ttlMs, lease)
      return lease
    }
  }

  async #renewSome(
    places: readonly Place[],
    first: LeaseFor,
    startedAt: number,
    options: EtcdCallOptions,
  ): Promise<readonly Standing[]> {
    const { leases } = this.#at
    let leaseFor = first
    for (let attempt = 1; ; attempt += 1) {
      const plain = places.filter(({ outlives }) => outlives !== true)
      const renewed = await Promise.all(plain.map(async (place) => ({ place, lease: await leaseFor(place.ttlMs) })))
      const used = new Set(renewed.map(({ lease }) => lease))
      // Given up while we waited for another: it may be revoked at any moment, with whatever is moved there.
      if ([...used].some(({ tainted }) => tainted)) {
        if (attempt === TRIES) throw unsettled('its leases are given up one after the other')
        leaseFor = this.#keepingAlive(options)
        continue
      }
      leases.begin(used)
      try {
        const standings = await this.#lookAndMove(places, renewed, startedAt, options)
        if (standings !== undefined) return standings
        if (attempt === TRIES) throw unsettled('its leader changes too often')
      } catch (error) {
        if (!isLeaseGone(error) || attempt === TRIES) throw error
      } finally {
        leases.end(used)
      }
      leaseFor = this.#keepingAlive(options)
    }
  }

  /** Undefined: another leader has come since the keep-alive, and has to be asked, too. */
  async #lookAndMove(
    places: readonly Place[],
    renewed: readonly Renewed[],
    startedAt: number,
    options: EtcdCallOptions,
  ): Promise<readonly Standing[] | undefined> {
    const used = [...new Set(renewed.map(({ lease }) => lease))]
    const unconfirmed = used.map((lease) => lease.unconfirmed)
    const plain = renewed.map(({ place }) => place)
    let reading = await this.#read(plain, options)
    // What is not where we knew it to be has gone, or somebody else has entered it anew, by another name.
    const misplaced = plain.filter(({ id }) => this.#at.entries.get(id) !== undefined && !reading.own.has(id))
    if (misplaced.length > 0) {
      for (const { id } of misplaced) this.#at.entries.forget(id)
      reading = await this.#read(plain, options)
    }
    for (const [index, lease] of used.entries()) lease.confirm(unconfirmed[index], reading.header.term)
    if (used.some((lease) => lease.leftMs(startedAt) < lease.ttlMs)) return undefined
    await this.#move(renewed, reading, options)
    const byPlace = new Map(renewed.map(({ place, lease }) => [place, lease]))
    const standings = places.map(async (place) => {
      const lease = byPlace.get(place)
      if (lease === undefined) return await this.#seals.outlive(place, options)
      return await this.#standing({ place, lease }, reading, startedAt, options)
    })
    const failed = (error: unknown): Standing => ({ state: 'failed', error: fault(error) })
    const answers = await Promise.all(standings.map((standing) => standing.catch(failed)))
    for (const lease of used) this.#sweep(lease)
    return answers
  }

  async #read(places: readonly Place[], options: EtcdCallOptions): Promise<Reading> {
    const { names, entries, client } = this.#at
    const owns = [
      ...new Map(places.map(({ key, id }) => [id, { key, entry: names.entry(key, entries.get(id)?.name ?? id) }])),
    ]
    const lines = [...new Set(places.filter(({ id }) => entries.get(id)?.held !== true).map(({ key }) => key))]
    const reads: RequestOp[] = [
      ...owns.map(([, { entry }]): RequestOp => ({ range: { key: entry } })),
      ...lines.map((key): RequestOp => ({ range: { ...names.line(key), oldestFirst: true, limit: FRONT } })),
    ]
    if (reads.length === 0) return { header: NO_HEADER, own: new Map(), fronts: new Map() }
    const { header, responses } = await client.txn({ success: reads }, options)
    const fronts = new Map<string, Sight>()
    for (const [index, key] of lines.entries()) {
      const front = frontOf(responses[owns.length + index]?.range ?? { kvs: [], count: 0 })
      // Where all that was read holds, others who hold may stand behind it.
      const enough = front.held < front.seats.length || front.count === front.seats.length
      fronts.set(key, enough ? { front, revision: header.revision } : await this.#wholeLine(key, options))
    }
    const own = new Map<string, Seat>()
    for (const [index, [id, { key }]] of owns.entries()) {
      const kv = responses[index]?.range?.kvs[0]
      // Whoever entered an empty line stands in front, by a name that we may not know. Should it be there twice, after
      // two enters that were never answered, the older one counts.
      const ahead = fronts.get(key)?.front.seats.find((one) => one.id === id)
      const byName = kv === undefined ? undefined : seatOf(kv)
      const named = byName?.id === id ? byName : undefined
      const seat = entries.get(id) === undefined ? (ahead ?? named) : (named ?? ahead)
      if (seat !== undefined) own.set(id, seat)
    }
    return { header, own, fronts }
  }

  async #wholeLine(key: string, options: EtcdCallOptions): Promise<Sight> {
    const answer = await this.#at.client.range({ ...this.#at.names.line(key), oldestFirst: true }, options)
    return { front: frontOf(answer), revision: answer.header.revision }
  }

  /** Those who live under another lease, unless they have changed since they were read, or are sealed. */
  async #move(renewed: readonly Renewed[], { own }: Reading, options: EtcdCallOptions): Promise<void> {
    const moves = new Map<string, { readonly to: ClassLease; readonly op: RequestOp; readonly seat: Seat }>()
    for (const { place, lease: to } of renewed) {
      const seat = own.get(place.id)
      if (seat === undefined || seat.lease === to.id) continue
      const entry = this.#at.names.entry(place.key, seat.name)
      const unchanged = { key: entry, target: 'mod', result: 'equal', value: seat.modRevision } as const
      const unsealed = {
        key: this.#at.names.seal(place.key, place.id),
        target: 'create',
        result: 'equal',
        value: 0n,
      } as const
      const op: RequestOp = {
        txn: { compare: [unchanged, unsealed], success: [{ put: { key: entry, lease: to.id } }] },
      }
      moves.set(place.id, { to, op, seat })
    }
    if (moves.size === 0) return
    // From now on it may live there, whether we are told or not.
    for (const [id, { to }] of moves) to.tenants.add(id)
    const { responses } = await this.#at.client.txn({ success: [...moves.values()].map(({ op }) => op) }, options)
    for (const [index, [id, { to, seat }]] of [...moves].entries()) {
      if (responses[index]?.txn?.succeeded === true) own.set(id, { ...seat, lease: to.id })
    }
  }

  async #standing(renewed: Renewed, reading: Reading, startedAt: number, options: EtcdCallOptions): Promise<Standing> {
    const { place, lease } = renewed
    const { key, id, ttlMs } = place
    const { entries, lookout } = this.#at
    const own = reading.own.get(id)
    if (own === undefined || own.lease !== lease.id) {
      const standing = await this.#seals.standing(place, own, options)
      entries.forget(id)
      lookout.forget(key, id)
      return standing
    }
    if (lease.swept.has(id)) return { state: 'gone', why: 'expired' }
    const { token, name } = own
    const livesForMs = Math.min(lease.leftMs(startedAt), ttlMs)
    const known = entries.get(id)
    // Whoever holds goes on holding; but another token is another stay in the line.
    const sight =
      known?.held === true && known.token === token
        ? undefined
        : (reading.fronts.get(key) ?? (await this.#wholeLine(key, options)))
    // By its token: one of its id may stand there twice.
    const ahead = sight?.front.seats.findIndex((seat) => seat.token === token) ?? -1
    const held = sight === undefined || (ahead >= 0 && ahead < sight.front.held)
    const mine = entries.note({ key, id, name, token, lease, ttlMs, held })
    // A message may have come first.
    if (mine.held || sight === undefined) {
      lookout.forget(key, id)
      return { state: 'held', token, heldForMs: livesForMs }
    }
    lookout.waits(mine, sight.front, sight.revision)
    return { state: 'waiting', ahead: ahead < 0 ? null : ahead, livesForMs }
  }

  /**
   * Take out those whom their owner has given up without a word: under a lease that lives, they would stand there for
   * ever.
   */
  #sweep(lease: ClassLease): void {
    const givenUp = this.#at.entries.givenUp(lease)
    for (let from = 0; from < givenUp.length; from += PLACES_AT_ONCE) {
      const some = givenUp.slice(from, from + PLACES_AT_ONCE)
      const deletions = some.map(({ key, name, token }): RequestOp => {
        const entry = this.#at.names.entry(key, name)
        return {
          txn: {
            compare: [{ key: entry, target: 'create', result: 'equal', value: token }],
            success: [{ delete: { key: entry } }],
          },
        }
      })
      // Should it fail, the lease is given up, and everybody else moves.
      this.#at.client.txn({ success: deletions }).catch(() => this.#at.leases.taint(lease))
      for (const { key, id } of some) {
        lease.swept.add(id)
        this.#at.entries.forget(id)
        this.#at.lookout.forget(key, id)
      }
    }
  }
}

/** For an engine that finds a claim in its line already. */
export function placeOf({ key, id, ttlMs }: Claim): Place {
  return { key, id, ttlMs }
}
