/**
 * Grants that replicas have confirmed: a fail-over to one of those does not lose them.
 *
 * Redis replicates behind the caller's back. `WAIT` answers how many replicas have what was written before it on its
 * connection; so it goes out right behind the script, on the same connection, and says nothing if that was another one
 * by then. It is no consensus: who is promoted is decided by others, and a replica that restarts without persistence
 * forgets what it confirmed. It makes the loss of a lock in a fail-over unlikely, not impossible; tokens remain what a
 * resource should check. Fewer than a majority would not even do that, and are refused.
 */

import { asEngineError, ENGINE } from '../../clients/redis/errors.ts'
import { majority } from '../../clients/redis/server-findings.ts'
import { ConnectionLost, type RedisWire } from '../../clients/redis/wire.ts'
import type { Clock } from '../../core/clock.ts'
import { EngineError } from '../../core/errors.ts'

export interface Durability {
  /**
   * How many replicas have to confirm a grant or a renewal. With the master they must be more than half of all servers.
   */
  readonly replicas: number
  /**
   * How long to wait for them (ms): 500 unless given. A grant that is not confirmed in time fails, and is asked for
   * again.
   */
  readonly timeoutMs?: number
}

const TIMEOUT_MS = 500
/** How long a count of the replicas is believed. Somebody may add one. */
const COUNTED_FOR_MS = 10_000

export class Confirmation {
  readonly replicas: number
  readonly #wire: RedisWire
  readonly #clock: Clock
  readonly #timeoutMs: number
  /** As many replicas as were ever seen: one that is away for a moment counts all the same. */
  #known = 0
  #countedAt = Number.NEGATIVE_INFINITY
  #countedOn = -1

  constructor(wire: RedisWire, clock: Clock, { replicas, timeoutMs = TIMEOUT_MS }: Durability) {
    if (!Number.isInteger(replicas) || replicas < 1)
      throw new RangeError(`durability.replicas must be 1 or more; got ${replicas}`)
    if (!Number.isInteger(timeoutMs) || timeoutMs < 1)
      throw new RangeError(`durability.timeoutMs must be 1 or more; got ${timeoutMs}`)
    if (!wire.inOrder)
      throw new TypeError('durability needs one connection to one server: not a Cluster, a pool or valkey-glide')
    this.replicas = replicas
    this.#wire = wire
    this.#clock = clock
    this.#timeoutMs = timeoutMs
  }

  /** Asks at once. Resolves when enough replicas have what was sent before; else rejects with an `EngineError`. */
  asked(): Promise<void> {
    const { connection } = this.#wire
    const stale = connection !== this.#countedOn || this.#clock.now() >= this.#countedAt + COUNTED_FOR_MS
    // Before WAIT, behind which everything else on this connection has to wait.
    const counting = stale ? this.#count(connection) : undefined
    const waiting = this.#wire.send('WAIT', [String(this.replicas), String(this.#timeoutMs)])
    return this.#confirmed(connection, Promise.all([waiting, counting])).catch((error: unknown) => {
      throw asEngineError(error)
    })
  }

  async #confirmed(connection: number, answers: Promise<readonly unknown[]>): Promise<void> {
    const confirmed = Number((await answers)[0])
    // Of another connection, WAIT knows no writes, and is content at once.
    if (this.#wire.connection !== connection)
      throw new ConnectionLost('the connection ended before the replicas confirmed')
    if (confirmed >= this.replicas) return
    const message = `${confirmed} of ${this.replicas} replicas have confirmed within ${this.#timeoutMs} ms`
    throw new EngineError(ENGINE, message, { outcome: 'unknown' })
  }

  async #count(connection: number): Promise<void> {
    const info = String(await this.#wire.send('INFO', ['replication']))
    this.#known = Math.max(this.#known, Number(/^connected_slaves:(\d+)/m.exec(info)?.[1] ?? 0))
    const least = majority(this.#known)
    if (this.replicas < least) {
      const message = `durability of ${this.replicas} replicas is no majority: there are ${this.#known} replicas, so ${least} have to confirm`
      throw new EngineError(ENGINE, message, { outcome: 'unknown', transient: false })
    }
    this.#countedAt = this.#clock.now()
    this.#countedOn = connection
  }
}
