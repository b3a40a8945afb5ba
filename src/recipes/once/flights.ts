/**
 * Callers of this process that want the same: one of them stands in the line, and the others wait for it here. So a
 * crowd of duplicates is one entry for each process, and is answered in one moment.
 */
import type { Keeper } from '../../core/keeper.ts'
import { onAbort } from '../../core/on-abort.ts'
import { SlotTable } from '../../core/slot-table.ts'
import type { SettledRecord } from './record.ts'

/** What became of the wait for another caller. */
export type FlightOutcome =
  | { readonly state: 'settled'; readonly record: SettledRecord }
  /** That caller has no result for others: it has thrown, or has given up. One of those that wait is next. */
  | { readonly state: 'ended' }
  | { readonly state: 'timeout' }

export const ENDED: FlightOutcome = { state: 'ended' }

type Wake = (outcome: FlightOutcome) => void

/** One caller on its way, and those that wait for it, in order of arrival. */
class Flight {
  readonly #flights: SlotTable<Flight>
  readonly #name: string
  /** Made for the first one that waits: most callers are alone. */
  #waiting: Set<Wake> | undefined

  constructor(flights: SlotTable<Flight>, name: string) {
    this.#flights = flights
    this.#name = name
    flights.add(name, this)
  }

  /** Rejects with the signal's own reason. */
  wait({ clock, keepAlive }: Keeper, waitMs: number, signal: AbortSignal | undefined): Promise<FlightOutcome> {
    keepAlive.begin()
    this.#waiting ??= new Set()
    const waiting = this.#waiting
    return new Promise((resolve, reject) => {
      const end = (): void => {
        keepAlive.end()
        waiting.delete(wake)
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
      waiting.add(wake)
    })
  }

  /** The caller has its answer, or has none: those that wait are told, and the next one is not to wait for it. */
  end(outcome: FlightOutcome): void {
    this.#flights.delete(this.#name)
    if (this.#waiting !== undefined) for (const wake of [...this.#waiting]) wake(outcome)
  }
}

export class Flights {
  readonly #flights = new SlotTable<Flight>()

  /** The caller to wait for, if there is one that wants the same. */
  of(name: string): Pick<Flight, 'wait'> | undefined {
    return this.#flights.get(name)
  }

  /** Be the caller that others wait for, until what is returned is ended. There is no other one of this name. */
  lead(name: string): Pick<Flight, 'end'> {
    return new Flight(this.#flights, name)
  }
}
