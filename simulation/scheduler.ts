/**
 * Virtual time. One heap of events; the next one happens when no job that the last one set off is pending any more.
 *
 * The core runs on promises and ticks: pending-jobs.ts knows when both are used up. The simulated server only uses
 * promise jobs, so one more of those is enough. Nothing here depends on real time.
 */
import { Heap, type Heaped } from '../src/core/heap.ts'
import { afterPendingJobs } from './pending-jobs.ts'

/** `timer`: of a clock. `io`: a message arrives. `work`: the program under the locks goes on. `world`: a fault. */
export type EventKind = 'timer' | 'io' | 'work' | 'world'

/** Whom an event belongs to: it decides whether it can happen now. */
export interface Owner {
  /** Which jobs have to be done after each of its events, before the next event. */
  readonly waitsFor: 'promises' | 'everything'
  /** False: not now (the owner keeps it for later), or never. */
  receives(event: SimulatedEvent): boolean
}

export class SimulatedEvent implements Heaped {
  at = 0
  slot = -1
  cancelled = false
  readonly kind: EventKind
  readonly owner: Owner | undefined
  readonly fire: () => void

  constructor(kind: EventKind, owner: Owner | undefined, fire: () => void) {
    this.kind = kind
    this.owner = owner
    this.fire = fire
  }
}

/** More events than any honest seed has: something asks again and again without pause. */
const RUNAWAY_EVENTS = 40_000

export class Scheduler {
  /** The true time, in milliseconds, that no clock in the simulated world shows exactly. */
  now = 0
  /** How many events have happened. */
  count = 0
  readonly #heap = new Heap<SimulatedEvent>()
  /** The next one last. */
  readonly #marks: { readonly count: number; readonly happen: () => void }[] = []
  #stopped = false

  after(delayMs: number, kind: EventKind, owner: Owner | undefined, fire: () => void): SimulatedEvent {
    const event = new SimulatedEvent(kind, owner, fire)
    this.#heap.put(event, this.now + delayMs)
    return event
  }

  /** Call `happen` when so many events have happened, right before the next one. */
  afterEvents(count: number, happen: () => void): void {
    this.#marks.push({ count, happen })
    this.#marks.sort((a, b) => b.count - a.count)
  }

  move(event: SimulatedEvent, at: number): void {
    if (!event.cancelled) this.#heap.put(event, at)
  }

  cancel(event: SimulatedEvent): void {
    event.cancelled = true
    this.#heap.remove(event)
  }

  stop(): void {
    this.#stopped = true
  }

  /**
   * Let events happen until one of them calls `stop`, or none is left. Resolves with whether it came to an end by
   * itself.
   */
  run(): Promise<boolean> {
    return new Promise((resolve, reject) => {
      const step = (): void => {
        try {
          const waitsFor = this.#happen()
          if (waitsFor === 'everything') afterPendingJobs(step)
          else if (waitsFor === 'promises') queueMicrotask(step)
          else resolve(this.count < RUNAWAY_EVENTS)
        } catch (error) {
          reject(error)
        }
      }
      // Not from inside the caller's own promise jobs.
      setImmediate(step)
    })
  }

  /**
   * One event, and those without an owner before it. Says which jobs have to be done before the next; undefined: there
   * is none.
   */
  #happen(): Owner['waitsFor'] | undefined {
    for (;;) {
      const event = this.#next()
      if (event === undefined) return undefined
      event.fire()
      if (event.owner !== undefined) return event.owner.waitsFor
    }
  }

  /** The next event that can happen. */
  #next(): SimulatedEvent | undefined {
    if (this.#stopped || this.count >= RUNAWAY_EVENTS) return undefined
    for (let event = this.#heap.peek(); event !== undefined; event = this.#heap.peek()) {
      this.#heap.remove(event)
      if (event.cancelled) continue
      this.now = event.at
      for (let mark = this.#marks.at(-1); mark !== undefined && mark.count <= this.count; mark = this.#marks.at(-1)) {
        this.#marks.pop()
        mark.happen()
      }
      if (event.owner?.receives(event) === false) continue
      this.count += 1
      return event
    }
    return undefined
  }
}
