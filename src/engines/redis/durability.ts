/**
 * Grants that replicas have confirmed: a fail-over to one of those does not lose them.
 *
 * Redis replicates behind the caller's back. `WAIT` asks, after a write, how many replicas have it. That is no consensus: who is promoted is decided by
 * others, and a replica that restarts without persistence forgets what it confirmed. It makes the loss of a lock in a fail-over unlikely, not impossible; tokens
 * remain what a resource should check. Fewer than a majority would not even do that, and are refused.
 */
import { EngineError } from '../../core/errors.ts'
import { majority } from './diagnose.ts'
import { ENGINE, fault } from './faults.ts'
import type { Wire } from './wires/wire.ts'

export interface Durability {
  /** How many replicas have to confirm a grant or a renewal. With the master they must be more than half of all servers. */
  readonly replicas: number
  /** How long to wait for them (ms): 500 unless given. A grant that is not confirmed in time fails, and is asked for again. */
  readonly timeoutMs?: number
}

const TIMEOUT_MS = 500

export class Confirmation {
  readonly replicas: number
  readonly #wire: Wire
  readonly #timeoutMs: number
  #checked = false

  constructor(wire: Wire, { replicas, timeoutMs = TIMEOUT_MS }: Durability) {
    if (!Number.isInteger(replicas) || replicas < 1) throw new RangeError(`durability.replicas must be 1 or more; got ${replicas}`)
    if (!Number.isInteger(timeoutMs) || timeoutMs < 1) throw new RangeError(`durability.timeoutMs must be 1 or more; got ${timeoutMs}`)
    if (!wire.inOrder) throw new TypeError('durability needs one connection to one server: not a Cluster, a pool or valkey-glide')
    this.replicas = replicas
    this.#wire = wire
    this.#timeoutMs = timeoutMs
  }

  /** Resolves when enough replicas have what was written before on this connection. */
  async confirm(): Promise<void> {
    if (!this.#checked) await this.#check()
    const confirmed = Number(await this.#send('WAIT', [String(this.replicas), String(this.#timeoutMs)]))
    if (confirmed >= this.replicas) return
    const message = `${confirmed} of ${this.replicas} replicas have confirmed within ${this.#timeoutMs} ms`
    throw new EngineError(ENGINE, message, { outcome: 'unknown' })
  }

  async #check(): Promise<void> {
    const info = String(await this.#send('INFO', ['replication']))
    const connected = Number(/^connected_slaves:(\d+)/m.exec(info)?.[1] ?? 0)
    const least = majority(connected)
    if (this.replicas < least) {
      const message = `durability of ${this.replicas} replicas is no majority: there are ${connected} replicas, so ${least} have to confirm`
      throw new EngineError(ENGINE, message, { outcome: 'unknown', transient: false })
    }
    this.#checked = true
  }

  #send(command: string, words: readonly string[]): Promise<unknown> {
    return this.#wire.send(command, words).catch((error: unknown) => {
      throw fault(error)
    })
  }
}
