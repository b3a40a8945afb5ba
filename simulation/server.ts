/**
 * The server: the reference engine's own lines, on a clock of their own that runs a little fast or slow, and that can
 * be frozen, restarted, robbed of its memory, or have its clock set.
 */
import type { Clock } from '../src/core/clock.ts'
import { MemoryServer } from '../src/engines/memory/index.ts'
import { Actor } from './actor.ts'
import type { SimulatedEvent } from './scheduler.ts'
import type { World } from './world.ts'

/** Clocks of real machines differ by far less; the core promises to bear this much, and not more. */
export const GREATEST_DRIFT = 0.005

export class SimulatedServer extends Actor {
  readonly waitsFor = 'promises'
  readonly rate: number
  readonly #world: World
  readonly #clock: Clock
  lines: MemoryServer
  /** Not running: whatever arrives is refused or lost. */
  down = false
  #aheadMs = 1_000_000
  #lastToken = 0n
  #life = 0

  constructor(world: World) {
    super(world.scheduler)
    this.#world = world
    this.rate = 1 + world.random.between(-GREATEST_DRIFT, GREATEST_DRIFT)
    this.#clock = {
      now: () => this.nowMs,
      timer: (delayMs, fire) => this.#timer(delayMs, fire),
      stayAlive: () => ({ cancel() {} }),
    }
    this.lines = this.#newLines()
  }

  /** What its clock shows. */
  get nowMs(): number {
    return this.scheduler.now * this.rate + this.#aheadMs
  }

  jump(byMs: number): void {
    this.#aheadMs += byMs
  }

  /** Out for a while. Without its memory, the lines are empty afterwards. */
  restart(durationMs: number, memory: 'kept' | 'lost'): void {
    this.down = true
    if (memory === 'lost') {
      this.#world.witness.forgotten()
      this.lines = this.#newLines()
    }
    this.stop(durationMs, 'timers')
    this.scheduler.after(durationMs, 'world', undefined, () => {
      this.down = false
    })
  }

  /** What arrives while it is down does not wait: it learns so at once. */
  override receives(event: SimulatedEvent): boolean {
    return (this.down && event.kind === 'io') || super.receives(event)
  }

  #timer(delayMs: number, fire: () => void): { cancel(): void } {
    const life = this.#life
    const event = this.schedule(Math.max(0, delayMs) / this.rate, 'timer', () => {
      if (life === this.#life) fire()
      this.#world.witness.looksAround()
    })
    return { cancel: () => this.scheduler.cancel(event) }
  }

  #newLines(): MemoryServer {
    this.#life += 1
    // What the new lines continue from: nothing, where the counter is lost with them.
    const floor = this.#world.conditions.mint === 'counter survives' ? this.#lastToken : 0n
    return new MemoryServer({
      clock: this.#clock,
      mint: (previous) => {
        this.#lastToken = this.#mint(previous > floor ? previous : floor)
        return this.#lastToken
      },
    })
  }

  /** One more; or, where the counter does not survive, never below the server's time in microseconds. */
  #mint(previous: bigint): bigint {
    const next = previous + 1n
    if (this.#world.conditions.mint === 'counter survives') return next
    const microseconds = BigInt(Math.floor(this.nowMs * 1000))
    return microseconds > next ? microseconds : next
  }
}
