/**
 * The leases under which records expire. A lease for each record would cost a round trip, and etcd is slow with many
 * leases. So records that are put soon after each other, with about the same ttl, are under one lease. It is granted
 * for longer than the ttl, and takes records only for half of what it lives longer: no record expires before its time.
 */
import type { EtcdClient } from '../../clients/etcd/client.ts'
import type { Clock } from '../../core/clock.ts'

interface RecordLease {
  readonly id: bigint
  /** When it takes no more records. */
  readonly until: number
  /** How many more it takes: when it ends, etcd deletes all of them at once. */
  room: number
}

const ROOM = 1000
/** Ttls are rounded up by at most a sixteenth, so that there are few kinds of leases. */
const STEPS = 16
/** How much longer than its records a lease lives, at least. */
const LEAST_MORE_MS = 1000
const LONGEST_MS = 100 * 31_557_600_000

export class RecordLeases {
  readonly #client: EtcdClient
  readonly #clock: Clock
  /** By ttl. */
  readonly #leases = new Map<number, RecordLease>()
  readonly #granting = new Map<number, Promise<RecordLease>>()

  constructor(client: EtcdClient, clock: Clock) {
    this.#client = client
    this.#clock = clock
  }

  /** The lease for a record that is put now. */
  async idFor(ttlMs: number): Promise<bigint> {
    const rounded = roundedUp(Math.min(ttlMs, LONGEST_MS))
    let lease = this.#leases.get(rounded)
    while (lease === undefined || lease.room === 0 || lease.until <= this.#clock.now())
      lease = await this.#next(rounded)
    lease.room -= 1
    return lease.id
  }

  /** That lease has ended, or another client has revoked it. */
  forget(id: bigint): void {
    for (const [ttlMs, lease] of this.#leases) if (lease.id === id) this.#leases.delete(ttlMs)
  }

  #next(ttlMs: number): Promise<RecordLease> {
    const granting =
      this.#granting.get(ttlMs) ??
      this.#grant(ttlMs).finally(() => {
        this.#granting.delete(ttlMs)
      })
    this.#granting.set(ttlMs, granting)
    return granting
  }

  async #grant(ttlMs: number): Promise<RecordLease> {
    const sentAt = this.#clock.now()
    for (const [other, { until }] of this.#leases) if (until <= sentAt) this.#leases.delete(other)
    const { lease: id, seconds } = await this.#client.grant(
      Math.ceil((ttlMs + Math.max(LEAST_MORE_MS, ttlMs / 8)) / 1000),
    )
    const lease = { id, until: sentAt + (seconds * 1000 - ttlMs) / 2, room: ROOM }
    this.#leases.set(ttlMs, lease)
    return lease
  }
}

function roundedUp(ttlMs: number): number {
  const step = Math.max(1000, 2 ** Math.floor(Math.log2(ttlMs)) / STEPS)
  return Math.ceil(ttlMs / step) * step
}
