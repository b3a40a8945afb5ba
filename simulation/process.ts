/**
 * One process of a user's program, on a machine of its own: its three clocks, its timers, its locks. The core inside
 * is the real one.
 *
 *     true time ──► monotonic  runs at the machine's own rate; stops while the machine is suspended
 *              ├──► boot       the same, but counts suspension; read in steps of 10 ms
 *              └──► wall       the same as boot, until it is set
 *
 * The core never sees true time. It gets what `sleepless` makes of these three, as on a real machine.
 */
import { type Chance, type Clock, sleepless, type Timer } from '../src/core/clock.ts'
import { createLocks, type Locks } from '../src/locks.ts'
import { Actor, type ResumeOrder } from './actor.ts'
import { simulatedEngine } from './engine.ts'
import { Link } from './link.ts'
import type { Random } from './random.ts'
import type { SimulatedEvent } from './scheduler.ts'
import { GREATEST_DRIFT } from './server.ts'
import type { World } from './world.ts'

const BOOT_STEP_MS = 10
/** Wall and monotonic time that have come apart by less are not worth a look at the boot clock. */
const HIDDEN_MS = 150
/** A timer of Node fires a little late, and now and then a fraction early: its loop counts whole milliseconds. */
const LATE_MS = 1
const EARLY_MS = 0.5
const OFTEN_EARLY = 0.1

export class SimulatedProcess extends Actor {
  readonly waitsFor = 'everything'
  readonly number: number
  readonly name: string
  readonly link: Link
  readonly locks: Locks
  /** It is closing its locks, and asks for nothing more. */
  ending = false
  /** It drains its locks before that: its workers go on asking, and are refused. */
  draining = false
  /** Its locks are closed. */
  closed = false
  /** How many workers of it still have something to do. */
  working = 0
  readonly #world: World
  readonly #random: Random
  readonly #timers = new Set<SimulatedEvent>()
  readonly #rate: number
  readonly #bornAt: number
  #suspendedMs = 0
  #asleepUntil = 0
  /** By how much wall and monotonic time have come apart since the core last looked. */
  #unseenMs = 0
  #wallAheadMs = 1_700_000_000_000
  #awake = 0

  constructor(world: World) {
    super(world.scheduler)
    this.#world = world
    this.number = world.processes.push(this) - 1
    this.name = `p${this.number}`
    this.#rate = 1 + world.random.between(-GREATEST_DRIFT, GREATEST_DRIFT)
    this.#bornAt = world.now - world.random.between(0, 1000)
    this.link = new Link(world, this)
    this.#random = world.random.fork(this.name)
    this.locks = createLocks(simulatedEngine(world, this.link), {
      clock: this.#clock(),
      chance: this.#chance(),
      ttl: world.conditions.ttlMs,
      callTimeout: world.conditions.callTimeoutMs,
      holder: this.name,
    })
  }

  /** Timers of the core that have not fired. */
  get timers(): number {
    return this.#timers.size
  }

  /** How many things keep the process from ending. */
  get awake(): number {
    return this.#awake
  }

  /** The id that the core makes next. */
  get nextId(): string {
    return this.#random.nextId
  }

  sleep(durationMs: number): Promise<void> {
    return new Promise((resolve) => {
      this.schedule(durationMs, 'work', resolve)
    })
  }

  /** The program computes, and the event loop stands still. What comes right after is the program, not a timer. */
  stall(durationMs: number): Promise<void> {
    this.stop(durationMs, 'program')
    return this.sleep(durationMs / 2)
  }

  /** The machine sleeps: monotonic time stands still, and so do timers; the world goes on. */
  suspend(durationMs: number, first: ResumeOrder): void {
    if (this.scheduler.now < this.#asleepUntil) return
    this.#asleepUntil = this.scheduler.now + durationMs
    for (const event of this.#timers) if (event.slot >= 0) this.scheduler.move(event, event.at + durationMs)
    this.#suspendedMs += durationMs
    this.#comeApart(durationMs)
    this.stop(durationMs, first)
  }

  setWallClock(byMs: number): void {
    this.#wallAheadMs += byMs
    this.#comeApart(byMs)
  }

  /**
   * Wall and monotonic time come apart. A wall clock that is set back by as much as the machine has just slept, to a
   * tenth of a second, would hide the sleep from the core, which does not promise to notice that: then it is set back
   * by more.
   */
  #comeApart(byMs: number): void {
    this.#unseenMs += byMs
    if (this.#unseenMs === byMs || Math.abs(this.#unseenMs) > HIDDEN_MS) return
    this.#wallAheadMs -= 2 * HIDDEN_MS
    this.#unseenMs -= 2 * HIDDEN_MS
  }

  /** Gone without a word. What it has in lines stays there, and what is on its way to the server arrives. */
  crash(): void {
    this.alive = false
    this.#timers.clear()
    this.link.close()
  }

  #chance(): Chance {
    return {
      fraction: () => this.#random.fraction(),
      id: () => {
        this.#world.history.askedAt.set(this.nextId, this.#world.now)
        return this.#random.id()
      },
    }
  }

  #clock(): Clock {
    const elapsed = (): number => (this.scheduler.now - this.#bornAt) * this.#rate
    return {
      ...sleepless({
        monotonicMs: () => elapsed() - this.#suspendedMs * this.#rate,
        wallMs: () => {
          this.#unseenMs = 0
          return elapsed() + this.#wallAheadMs
        },
        bootMs: () => Math.floor(elapsed() / BOOT_STEP_MS) * BOOT_STEP_MS,
      }),
      timer: (delayMs, fire) => this.#timer(delayMs, fire),
      stayAlive: () => this.#stayAlive(),
    }
  }

  #timer(delayMs: number, fire: () => void): Timer {
    const { random } = this.#world
    const inexactMs = random.happens(OFTEN_EARLY) ? -EARLY_MS * random.fraction() : LATE_MS * random.fraction()
    const event = this.schedule(Math.max(0, delayMs / this.#rate + inexactMs), 'timer', () => {
      this.#timers.delete(event)
      if (this.#world.logging) this.#world.log(this.name, 'timer')
      fire()
    })
    this.#timers.add(event)
    return {
      cancel: () => {
        this.scheduler.cancel(event)
        this.#timers.delete(event)
      },
    }
  }

  #stayAlive(): Timer {
    this.#awake += 1
    let wanted = true
    return {
      cancel: () => {
        if (wanted) this.#awake -= 1
        wanted = false
      },
    }
  }
}
