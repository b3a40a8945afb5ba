/**
 * Leases of etcd. One for each ttl, in whole seconds, that this engine object uses; its entries live under it, and one
 * keep-alive renews them all.
 *
 * **When a keep-alive counts.** The leader answers it by itself, without asking the others. One that has been replaced
 * and does not know it yet answers too, for up to two election time-outs, while the new leader counts from its own
 * election: a holder that believed it would believe too long. So a keep-alive is believed only when a transaction or a
 * linearizable read that was *sent after it was answered* comes back under the same raft term: then that leader was
 * still the leader, after it had renewed the lease. It is counted from the send of the keep-alive.
 *
 * **What nobody wants must not live on.** An entry under a lease that others keep alive does not expire. So after an
 * enter of unknown outcome, or a leave that failed, the lease is *tainted*: nothing new is put under it, nobody keeps
 * it alive, whoever lives there moves out at its next renewal, and then it is revoked, with whatever has arrived late.
 * Not earlier: a lease is not revoked while anybody lives there, or may live there, or is about to.
 */

import type { EtcdCallOptions, EtcdClient } from '../../clients/etcd/client.ts'
import { GRPC_STATUS, RpcError } from '../../clients/etcd/errors.ts'
import type { Clock } from '../../core/clock.ts'

/** A keep-alive that was answered, and does not count yet. */
export interface Unconfirmed {
  readonly sentAt: number
  readonly term: bigint
}

export class ClassLease {
  readonly id: bigint
  /** As it was granted, which may be more than was asked for. */
  readonly ttlMs: number
  /** The ids of those who live here, or may: nobody knows whether they have arrived. */
  readonly tenants: Set<string> = new Set()
  /** How many calls are at work that put something under it, and have not yet said what. */
  movingIn = 0
  tainted = false
  unconfirmed: Unconfirmed | undefined
  /** When its tenants were last looked through for those that nobody renews. */
  sweptAt: number
  /** The ids of those who were found then. They are being taken out, however long that takes. */
  readonly swept: Set<string> = new Set()
  #confirmedAt: number

  constructor(id: bigint, ttlMs: number, grantedAt: number) {
    this.id = id
    this.ttlMs = ttlMs
    this.#confirmedAt = grantedAt
    this.sweptAt = grantedAt
  }

  /** It lives for at least this long from `at`. */
  leftMs(at: number): number {
    return Math.max(0, this.#confirmedAt + this.ttlMs - at)
  }

  /** Something that was sent after `unconfirmed` was answered has come back, under this term. */
  confirm(unconfirmed: Unconfirmed | undefined, term: bigint): void {
    if (unconfirmed?.term === term) this.#confirmedAt = Math.max(this.#confirmedAt, unconfirmed.sentAt)
    // Another leader: it never will be.
    else if (unconfirmed === this.unconfirmed) this.unconfirmed = undefined
  }
}

const secondsOf = (ttlMs: number): number => Math.ceil(ttlMs / 1000)

export class ClassLeases {
  readonly #client: EtcdClient
  readonly #clock: Clock
  /** Those in use, by their seconds. */
  readonly #leases = new Map<number, ClassLease>()
  readonly #granting = new Map<number, Promise<ClassLease>>()
  /** Those, and the tainted ones in which somebody lives. */
  readonly #all = new Set<ClassLease>()
  /** Revocations under way. */
  readonly #ending = new Set<Promise<void>>()
  #closed = false

  constructor(client: EtcdClient, clock: Clock) {
    this.#client = client
    this.#clock = clock
  }

  /**
   * A lease for this ttl with two thirds of it left, if the last keep-alive is confirmed. Undefined: there is none; see
   * `fresh`.
   */
  freshAtHand(ttlMs: number): ClassLease | undefined {
    const lease = this.#leases.get(secondsOf(ttlMs))
    if (lease === undefined) return undefined
    const now = this.#clock.now()
    const { sentAt = Number.NEGATIVE_INFINITY } = lease.unconfirmed ?? {}
    const leftMs = Math.max(lease.leftMs(now), sentAt + lease.ttlMs - now)
    return leftMs >= (2 * lease.ttlMs) / 3 ? lease : undefined
  }

  async fresh(ttlMs: number): Promise<ClassLease> {
    return this.freshAtHand(ttlMs) ?? (await this.renewed(ttlMs))
  }

  /** A lease for this ttl that was kept alive now. */
  async renewed(ttlMs: number, options: EtcdCallOptions = {}): Promise<ClassLease> {
    const seconds = secondsOf(ttlMs)
    // One that has ended is in use no more, and others may have had the next one granted by the time we hear of it.
    for (let lease = this.#leases.get(seconds); lease !== undefined; lease = this.#leases.get(seconds)) {
      if (await this.keepAlive(lease, options)) return lease
    }
    return await this.#grant(seconds)
  }

  /** Whether it lives. */
  async keepAlive(lease: ClassLease, options: EtcdCallOptions = {}): Promise<boolean> {
    const sentAt = this.#clock.now()
    const { seconds, header } = await this.#client.keepAlive(lease.id, options)
    if (seconds === 0) {
      this.#retire(lease)
      this.#all.delete(lease)
      return false
    }
    if (sentAt >= (lease.unconfirmed?.sentAt ?? sentAt)) lease.unconfirmed = { sentAt, term: header.term }
    return true
  }

  /**
   * Things are about to be put under these leases: they must not be revoked until `end`, when it is known what has come
   * of it.
   */
  begin(leases: Iterable<ClassLease>): void {
    for (const lease of leases) lease.movingIn += 1
  }

  end(leases: Iterable<ClassLease>): void {
    for (const lease of leases) {
      lease.movingIn -= 1
      this.#endIfEmpty(lease)
    }
  }

  /** This one lives here, and nowhere else; without a lease: nowhere. */
  settle(id: string, home?: ClassLease): void {
    home?.tenants.add(id)
    for (const lease of this.#all) if (lease !== home && lease.tenants.delete(id)) this.#endIfEmpty(lease)
  }

  /** Let nothing more in, and end it when everybody has moved out. */
  taint(lease: ClassLease): void {
    lease.tainted = true
    this.#retire(lease)
    this.#endIfEmpty(lease)
  }

  /**
   * End all of them, with everything that is under them, also one that is granted meanwhile. From now on there are no
   * others.
   */
  async close(): Promise<void> {
    this.#closed = true
    await Promise.allSettled(this.#granting.values())
    for (const lease of this.#all) this.#end(lease)
    this.#leases.clear()
    await Promise.all(this.#ending)
  }

  #endIfEmpty(lease: ClassLease): void {
    if (lease.tainted && lease.tenants.size === 0 && lease.movingIn === 0) this.#end(lease)
  }

  #end(lease: ClassLease): void {
    if (!this.#all.delete(lease)) return
    // Should this fail: nobody keeps it alive any more.
    const ending = this.#client.revoke(lease.id).catch(() => {})
    this.#ending.add(ending)
    void ending.then(() => this.#ending.delete(ending))
  }

  #retire(lease: ClassLease): void {
    for (const [seconds, one] of this.#leases) if (one === lease) this.#leases.delete(seconds)
  }

  /** One at a time, for whoever wants it: so it is nobody's to give up. */
  #grant(seconds: number): Promise<ClassLease> {
    if (this.#closed)
      return Promise.reject(
        new RpcError(GRPC_STATUS.unavailable, 'the engine is closed', { refused: true, lasting: true }),
      )
    const granting =
      this.#granting.get(seconds) ?? this.#grantNow(seconds).finally(() => this.#granting.delete(seconds))
    this.#granting.set(seconds, granting)
    return granting
  }

  async #grantNow(seconds: number): Promise<ClassLease> {
    const sentAt = this.#clock.now()
    const granted = await this.#client.grant(seconds)
    const lease = new ClassLease(granted.lease, granted.seconds * 1000, sentAt)
    this.#leases.set(seconds, lease)
    this.#all.add(lease)
    return lease
  }
}
