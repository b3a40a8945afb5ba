/**
 * Whatever can be stopped in the middle of what it does: a process, or the server.
 *
 * A stopped actor (SIGSTOP, a frozen virtual machine, a synchronous stall) loses nothing: what is due meanwhile waits,
 * and happens when it goes on. In which order is not promised by any operating system, so it is drawn.
 */
import type { EventKind, Owner, Scheduler, SimulatedEvent } from './scheduler.ts'

/** What comes first when it goes on. `program`: the code that was stalled itself, before any timer or message. */
export type ResumeOrder = 'timers' | 'messages' | 'program'

/** Deferred events are put one after the other, in an order of ours: this much apart, in milliseconds. */
const APART_MS = 1e-6

export abstract class Actor implements Owner {
  abstract readonly waitsFor: 'promises' | 'everything'
  protected readonly scheduler: Scheduler
  alive = true
  #stopped = false
  #stoppedUntil = 0
  #deferred: SimulatedEvent[] = []

  constructor(scheduler: Scheduler) {
    this.scheduler = scheduler
  }

  get stopped(): boolean {
    return this.#stopped
  }

  schedule(delayMs: number, kind: EventKind, fire: () => void): SimulatedEvent {
    return this.scheduler.after(delayMs, kind, this, fire)
  }

  receives(event: SimulatedEvent): boolean {
    if (!this.alive) return false
    if (this.#stopped) this.#deferred.push(event)
    return !this.#stopped
  }

  /** Nothing of it happens for so long. A stop inside a stop makes it longer, never shorter. */
  stop(durationMs: number, first: ResumeOrder): void {
    const until = this.scheduler.now + durationMs
    if (this.#stopped && until <= this.#stoppedUntil) return
    this.#stopped = true
    this.#stoppedUntil = until
    this.scheduler.after(durationMs, 'world', undefined, () => {
      if (until === this.#stoppedUntil) this.#resume(first)
    })
  }

  #resume(first: ResumeOrder): void {
    this.#stopped = false
    const deferred = this.#deferred
    this.#deferred = []
    const rank = (event: SimulatedEvent): number => RANK[first].indexOf(event.kind)
    deferred.sort((a, b) => rank(a) - rank(b))
    deferred.forEach((event, index) => {
      this.scheduler.move(event, this.scheduler.now + index * APART_MS)
    })
  }
}

const RANK: Readonly<Record<ResumeOrder, readonly EventKind[]>> = {
  timers: ['timer', 'work', 'io'],
  messages: ['io', 'timer', 'work'],
  program: ['work', 'timer', 'io'],
}
