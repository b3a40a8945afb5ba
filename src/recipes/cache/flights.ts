/** The single flight of a process: callers that want the same key wait for one that is on its way. */
import type { Keeper } from '../../core/keeper.ts'
import { onAbort } from '../../core/on-abort.ts'

export class SingleFlights<Outcome> {
  readonly #flights = new Map<string, Promise<Outcome>>()

  /** The one that is on its way, or a new one. It belongs to none of its callers: one that goes does not end it. */
  join(key: string, begin: () => Promise<Outcome>): Promise<Outcome> {
    const known = this.#flights.get(key)
    if (known !== undefined) return known
    const flight = begin()
    this.#flights.set(key, flight)
    const ended = (): void => {
      this.#flights.delete(key)
    }
    // Its callers may all be gone when it fails.
    flight.then(ended, ended)
    return flight
  }

  has(key: string): boolean {
    return this.#flights.has(key)
  }
}

/** Wait for it, for so long at most; undefined: it took longer. Rejects with the signal's own reason. */
export function waitFor<Outcome>(
  flight: Promise<Outcome>,
  { clock, keepAlive }: Keeper,
  limitMs: number,
  signal: AbortSignal | undefined,
): Promise<Outcome | undefined> {
  const waiter = { keepsAlive: false }
  keepAlive.set(waiter, true)
  return new Promise<Outcome | undefined>((resolve, reject) => {
    const timer =
      limitMs === Number.POSITIVE_INFINITY ? undefined : clock.timer(limitMs, () => settle(resolve, undefined))
    const forget = onAbort(signal, () => settle(reject, signal?.reason))
    const settle = <Result>(how: (result: Result) => void, result: Result): void => {
      keepAlive.set(waiter, false)
      timer?.cancel()
      forget()
      how(result)
    }
    flight.then(
      (outcome) => settle(resolve, outcome),
      (error: unknown) => settle(reject, error),
    )
    if (signal?.aborted) settle(reject, signal.reason)
  })
}
