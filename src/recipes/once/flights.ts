/**
 * Callers of this process that want the same: one of them stands in the line, and the others wait for it here. So a
 * crowd of duplicates is one entry for each process, and is answered in one moment.
 */
import type { Clock } from '../../core/clock.ts'
import { onAbort } from '../../core/on-abort.ts'
import type { SettledRecord } from './record.ts'

/** What became of the wait for another caller. */
export type FlightOutcome =
  | { readonly state: 'settled'; readonly record: SettledRecord }
  /** That caller has no result for others: it has thrown, or has given up. One of those that wait is next. */
  | { readonly state: 'ended' }
  | { readonly state: 'timeout' }

type Wake = (outcome: FlightOutcome) => void

/** One caller on its way, and those that wait for it, in order of arrival. */
class Flight {
  readonly #waiting = new Set<Wake>()

  /** Rejects with the signal's own reason. */
  wait(clock: Clock, waitMs: number, signal: AbortSignal | undefined): Promise<FlightOutcome> {
    const alive = clock.stayAlive()
    return new Promise((resolve, reject) => {
      const end = (): void => {
        alive.cancel()
        this.#waiting.delete(wake)
        timer.cancel()
        forget()
      }
      const wake: Wake = (outcome) => {
        end()
        resolve(outcome)
      }
      const timer = clock.timer(waitMs, () => wake({ state: 'timeout' }))
      const forget = onAbort(signal, () => {
        end()
        reject(signal?.reason)
      })
      this.#waiting.add(wake)
    })
  }

  end(outcome: FlightOutcome): void {
    for (const wake of [...this.#waiting]) wake(outcome)
  }
}

export class Flights {
  readonly #flights = new Map<string, Flight>()

  /** The caller to wait for, if there is one that wants the same. */
  of(name: string): Pick<Flight, 'wait'> | undefined {
    return this.#flights.get(name)
  }

  /** Run `lead` as the caller that others wait for. */
  async lead(name: string, lead: () => Promise<SettledRecord>): Promise<SettledRecord> {
    const flight = new Flight()
    this.#flights.set(name, flight)
    let outcome: FlightOutcome = { state: 'ended' }
    try {
      const record = await lead()
      outcome = { state: 'settled', record }
      return record
    } finally {
      this.#flights.delete(name)
      flight.end(outcome)
    }
  }
}
