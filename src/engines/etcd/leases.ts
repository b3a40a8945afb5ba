/**
 * Leases of etcd. This engine object has one for each ttl, in whole seconds, that it uses. Its entries live under them,
 * and one keep-alive renews all entries under a lease.
 *
 * **When a keep-alive counts.** The leader answers it by itself, without asking the other members. A leader that has
 * been replaced, and does not know it yet, answers too, for up to two election time-outs. The new leader counts from
 * its own election, so a holder that believed the old one would believe too long. So a keep-alive is believed only when
 * a transaction or a linearizable read that was *sent after it was answered* comes back under the same raft term: then
 * that leader was still the leader, after it had renewed the lease. The ttl is counted from the send of the keep-alive.
 *
 * **An entry that was given up must not live on.** An entry does not expire under a lease that is kept alive for other
 * entries. So after an enter of unknown outcome, or a leave that failed, the lease is *tainted*: nothing new is put
 * under it, it is not kept alive any more, and each of its entries moves to another lease at its next renewal. Then it
 * is revoked, and etcd deletes what has arrived late. It is not revoked as long as an entry of ours is there, may be
 * there, or is about to be put there.
 *
 * **A revocation is tried until the server has answered it.** A lease that is not kept alive does not surely end after
 * its ttl: after each change of leaders the new leader gives it its whole time again.
 */

import type { EtcdCallOptions, EtcdClient } from '../../clients/etcd/client.ts'
import { GRPC_STATUS, RpcError } from '../../clients/etcd/errors.ts'
import type { Clock } from '../../core/clock.ts'
import { isLeaseGone } from './errors.ts'

/** A keep-alive that was answered, and does not count yet. */
export interface UnconfirmedKeepAlive {
  readonly sentAt: number
  readonly term: bigint
}

export class EtcdLease {
  readonly id: bigint
  /** As it was granted, which may be more than was asked for. */
  readonly ttlMs: number
  /** The entries under this lease, and those that may be: their enter or their move is of unknown outcome. */
  readonly entryIds: Set<string> = new Set()
  /** How many calls are under way that put entries under it. */
  callsUnderWay = 0
  tainted = false
  unconfirmed: UnconfirmedKeepAlive | undefined
  /** When its entries were last looked through for those that the core has given up. */
  sweptAt: number
  /** The entries that were found then. Their deletion is under way, or done. */
  readonly sweptIds: Set<string> = new Set()
  #confirmedAt: number

  constructor(id: bigint, ttlMs: number, grantedAt: number) {
    this.id = id
    this.ttlMs = ttlMs
    this.#confirmedAt = grantedAt
    this.sweptAt = grantedAt
  }

  /** How long it lives from `at` on, at least. */
  leftMs(at: number): number {
    return Math.max(0, this.#confirmedAt + this.ttlMs - at)
  }

  /** A request that was sent after `unconfirmed` was answered has come back, under this term. */
  confirm(unconfirmed: UnconfirmedKeepAlive | undefined, term: bigint): void {
    if (unconfirmed?.term === term) this.#confirmedAt = Math.max(this.#confirmedAt, unconfirmed.sentAt)
    // Another leader has come: it never will be confirmed.
    else if (unconfirmed === this.unconfirmed) this.unconfirmed = undefined
  }
}

/** How long to pause after a revocation that was not answered: doubled each time, up to the longest. */
const RETRY_FIRST_MS = 100
const RETRY_LONGEST_MS = 1_000

const secondsOf = (ttlMs: number): number => Math.ceil(ttlMs / 1000)

export class EtcdLeases {
  readonly #client: EtcdClient
  readonly #clock: Clock
  /** The lease in use for each ttl in seconds. */
  readonly #leases = new Map<number, EtcdLease>()
  readonly #granting = new Map<number, Promise<EtcdLease>>()
  /** Those in use, and the tainted ones that are not revoked yet. */
  readonly #all = new Set<EtcdLease>()
  /** Revocations under way. */
  readonly #revoking = new Set<Promise<void>>()
  /** Ends of the pauses between tries of revocations. */
  readonly #pauses = new Set<() => void>()
  #closed = false

  constructor(client: EtcdClient, clock: Clock) {
    this.#client = client
    this.#clock = clock
  }

  /**
   * A lease for this ttl that has two thirds of it left, provided that its last keep-alive is confirmed. Undefined:
   * there is none, and `fresh` has to ask for one.
   */
  freshAtHand(ttlMs: number): EtcdLease | undefined {
    const lease = this.#leases.get(secondsOf(ttlMs))
    if (lease === undefined) return undefined
    const now = this.#clock.now()
    const { sentAt = Number.NEGATIVE_INFINITY } = lease.unconfirmed ?? {}
    const leftMs = Math.max(lease.leftMs(now), sentAt + lease.ttlMs - now)
    return leftMs >= (2 * lease.ttlMs) / 3 ? lease : undefined
  }

  async fresh(ttlMs: number): Promise<EtcdLease> {
    return this.freshAtHand(ttlMs) ?? (await this.renewed(ttlMs))
  }

  /** A lease for this ttl that was kept alive now. */
  async renewed(ttlMs: number, options: EtcdCallOptions = {}): Promise<EtcdLease> {
    const seconds = secondsOf(ttlMs)
    // A lease that has ended is in use no more. By the time we hear of it, another call may have had the next one
    // granted.
    for (let lease = this.#leases.get(seconds); lease !== undefined; lease = this.#leases.get(seconds)) {
      if (await this.keepAlive(lease, options)) return lease
    }
    return await this.#grant(seconds)
  }

  /** Answers whether it lives. */
  async keepAlive(lease: EtcdLease, options: EtcdCallOptions = {}): Promise<boolean> {
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
   * Entries are about to be put under these leases. They are not revoked until `endUse`, when the outcome is known.
   */
  beginUse(leases: Iterable<EtcdLease>): void {
    for (const lease of leases) lease.callsUnderWay += 1
  }

  endUse(leases: Iterable<EtcdLease>): void {
    for (const lease of leases) {
      lease.callsUnderWay -= 1
      this.#revokeIfUnused(lease)
    }
  }

  /** The entry is under this lease and no other; without a lease: under none. */
  assign(id: string, to?: EtcdLease): void {
    to?.entryIds.add(id)
    for (const lease of this.#all) if (lease !== to && lease.entryIds.delete(id)) this.#revokeIfUnused(lease)
  }

  /** Put nothing more under this lease, and revoke it when all entries have moved to another one. */
  taint(lease: EtcdLease): void {
    lease.tainted = true
    this.#retire(lease)
    this.#revokeIfUnused(lease)
  }

  /**
   * Revoke all leases, with everything that is under them; also one that is being granted. From now on none is granted,
   * and a revocation that fails is not tried again.
   */
  async close(): Promise<void> {
    this.#closed = true
    await Promise.allSettled(this.#granting.values())
    for (const lease of this.#all) this.#revoke(lease)
    for (const end of this.#pauses) end()
    this.#leases.clear()
    await Promise.all(this.#revoking)
  }

  #revokeIfUnused(lease: EtcdLease): void {
    if (lease.tainted && lease.entryIds.size === 0 && lease.callsUnderWay === 0) this.#revoke(lease)
  }

  #revoke(lease: EtcdLease): void {
    if (!this.#all.delete(lease)) return
    const revoking = this.#revokeSurely(lease)
    this.#revoking.add(revoking)
    void revoking.then(() => this.#revoking.delete(revoking))
  }

  async #revokeSurely(lease: EtcdLease): Promise<void> {
    for (let pauseMs = RETRY_FIRST_MS; ; pauseMs = Math.min(2 * pauseMs, RETRY_LONGEST_MS)) {
      try {
        return await this.#client.revoke(lease.id)
      } catch (error) {
        // It has ended already, or this user may not end it; the client may be closed.
        if (this.#closed || isLeaseGone(error) || (error instanceof RpcError && error.lasting)) return
      }
      await this.#pause(pauseMs)
    }
  }

  #pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const end = (): void => {
        timer.cancel()
        this.#pauses.delete(end)
        resolve()
      }
      const timer = this.#clock.timer(ms, end)
      this.#pauses.add(end)
    })
  }

  #retire(lease: EtcdLease): void {
    for (const [seconds, one] of this.#leases) if (one === lease) this.#leases.delete(seconds)
  }

  /** One request for all callers that want this lease. So it takes no signal: none of them may cancel it. */
  #grant(seconds: number): Promise<EtcdLease> {
    if (this.#closed)
      return Promise.reject(
        new RpcError(GRPC_STATUS.unavailable, 'the engine is closed', { refused: true, lasting: true }),
      )
    const granting =
      this.#granting.get(seconds) ?? this.#grantNow(seconds).finally(() => this.#granting.delete(seconds))
    this.#granting.set(seconds, granting)
    return granting
  }

  async #grantNow(seconds: number): Promise<EtcdLease> {
    const sentAt = this.#clock.now()
    const granted = await this.#client.grant(seconds)
    const lease = new EtcdLease(granted.lease, granted.seconds * 1000, sentAt)
    this.#leases.set(seconds, lease)
    this.#all.add(lease)
    return lease
  }
}
