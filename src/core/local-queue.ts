/**
 * A first-come-first-served turn inside this process: nested leases of one outer lease take it, so that siblings
 * exclude each other as leases do that have no outer one in common.
 */

import type { Clock } from './clock.ts'
import { onAbort } from './on-abort.ts'

export class LocalQueue {
  #taken = false
  readonly #line = new Set<() => void>()

  /** Whether the turn is taken: who asks for it waits. */
  get taken(): boolean {
    return this.#taken
  }

  /** Take the turn. False: `waitMs` ran out. Rejects with the signal's own reason. */
  async take(clock: Clock, waitMs: number, signal?: AbortSignal): Promise<boolean> {
    signal?.throwIfAborted()
    if (!this.#taken) {
      this.#taken = true
      return true
    }
    return waitMs > 0 ? this.#queue(clock, waitMs, signal) : false
  }

  /** Give the turn to the next in line. */
  give(): void {
    const [next] = this.#line
    if (next === undefined) {
      this.#taken = false
      return
    }
    this.#line.delete(next)
    next()
  }

  #queue(clock: Clock, waitMs: number, signal: AbortSignal | undefined): Promise<boolean> {
    const alive = clock.stayAlive()
    return new Promise((resolve, reject) => {
      const end = (): void => {
        alive.cancel()
        this.#line.delete(turn)
        timer?.cancel()
        forget()
      }
      const turn = (): void => {
        end()
        resolve(true)
      }
      const tired = (): void => {
        end()
        resolve(false)
      }
      const timer = waitMs === Number.POSITIVE_INFINITY ? undefined : clock.timer(waitMs, tired)
      const forget = onAbort(signal, () => {
        end()
        reject(signal?.reason)
      })
      this.#line.add(turn)
    })
  }
}
