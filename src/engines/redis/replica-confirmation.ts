/**
 * Grants that replicas have confirmed: a fail-over to one of those does not lose them.
 *
 * Redis replicates after it has answered. `WAIT` answers how many replicas have what was written before it on its own
 * connection. So it goes out right behind the script, and its answer counts only if both had the same connection.
 *
 * This is no consensus: Sentinel or an operator decides which replica is promoted, and a replica that restarts without
 * persistence forgets what it confirmed. It makes the loss of a lock in a fail-over unlikely, not impossible. Tokens
 * remain what a resource should check. Fewer replicas than a majority would not even do that, and are refused.
 */

import { ENGINE } from '../../clients/redis/errors.ts'
import { majority } from '../../clients/redis/server-findings.ts'
import { ConnectionLost, type RedisWire } from '../../clients/redis/wire.ts'
import type { Clock } from '../../core/clock.ts'
import { type Duration, parseDuration } from '../../core/duration.ts'
import { EngineError } from '../../core/errors.ts'
import type { EngineCall } from '../../core/failed-call.ts'

/** How many replicas have to confirm a grant. */
export interface Durability {
  /**
   * How many replicas have to confirm a grant or a renewal. With the master they must be more than half of all servers.
   */
  readonly replicas: number
  /**
   * How long to wait for them: '500ms' unless given. A grant that is not confirmed in time fails, and is asked for
   * again.
   */
  readonly timeout?: Duration
}

const DEFAULT_TIMEOUT: Duration = '500ms'
/** How long a count of the replicas is believed: an operator may add one. */
const COUNTED_FOR_MS = 10_000

export class ReplicaConfirmation {
  readonly replicas: number
  readonly #wire: RedisWire
  readonly #clock: Clock
  readonly #timeoutMs: number
  /** As many replicas as were ever seen: one that is away for a moment counts all the same. */
  #known = 0
  #countedAt = Number.NEGATIVE_INFINITY
  #countedOn = -1

  constructor(wire: RedisWire, clock: Clock, { replicas, timeout = DEFAULT_TIMEOUT }: Durability) {
    if (!Number.isInteger(replicas) || replicas < 1)
      throw new RangeError(`durability.replicas must be 1 or more; got ${replicas}`)
    // WAIT takes whole milliseconds, and 0 for ever.
    const timeoutMs = Math.ceil(parseDuration(timeout, 'durability.timeout'))
    if (timeoutMs < 1) throw new RangeError(`durability.timeout must be 1ms or more; got ${timeout}`)
    if (!wire.inOrder)
      throw new TypeError('durability needs one connection to one server: not a Cluster, a pool or valkey-glide')
    this.replicas = replicas
    this.#wire = wire
    this.#clock = clock
    this.#timeoutMs = timeoutMs
  }

  /** Ask the replicas for `call`. Resolves when enough of them have what was sent before; else rejects. */
  ask(call: EngineCall): Promise<void> {
    const { connection } = this.#wire
    const stale = connection !== this.#countedOn || this.#clock.now() >= this.#countedAt + COUNTED_FOR_MS
    // Sent before WAIT, because the server answers nothing else on this connection until WAIT is over.
    const counting = stale ? this.#count(call, connection) : undefined
    const waiting = this.#wire.send('WAIT', [String(this.replicas), String(this.#timeoutMs)])
    return this.#confirmed(call, connection, Promise.all([waiting, counting]))
  }

  async #confirmed(call: EngineCall, connection: number, answers: Promise<readonly unknown[]>): Promise<void> {
    const confirmed = Number((await answers)[0])
    // WAIT knows only the writes of its own connection. On a new one it is satisfied at once, and says nothing.
    if (this.#wire.connection !== connection)
      throw new ConnectionLost('the connection ended before the replicas confirmed')
    if (confirmed >= this.replicas) return
    const message = `${call}: ${confirmed} of ${this.replicas} replicas have confirmed within ${this.#timeoutMs} ms`
    throw new EngineError(ENGINE, message, { outcome: 'unknown' })
  }

  async #count(call: EngineCall, connection: number): Promise<void> {
    const info = String(await this.#wire.send('INFO', ['replication']))
    this.#known = Math.max(this.#known, Number(/^connected_slaves:(\d+)/m.exec(info)?.[1] ?? 0))
    const least = majority(this.#known)
    if (this.replicas < least) {
      const message = `${call}: durability of ${this.replicas} replicas is no majority: there are ${this.#known} replicas, so ${least} have to confirm`
      throw new EngineError(ENGINE, message, { outcome: 'unknown', transient: false })
    }
    this.#countedAt = this.#clock.now()
    this.#countedOn = connection
  }
}
