/**
 * For the tests of programs that use Holdfast: the memory engine, and a clock that moves only when told.
 *
 *     const clock = fakeClock()
 *     const locks = createLocks(memory({ clock }), { clock })
 *     const lease = await locks.mutex('job').acquire()
 *     await clock.advance('1m')       // a minute of heartbeats, in a moment
 */
import type { Clock } from './core/clock.ts'
import { type Duration, parseDuration } from './core/duration.ts'
import { Heap, type Heaped } from './core/heap.ts'

export { type MemoryEngine, type MemoryOptions, MemoryServer, memory } from './engines/memory/index.ts'

/** A clock that stands still until a test moves it. */
export interface FakeClock extends Clock {
  /** Let time pass. Timers fire in order, and what they start runs before the next one fires. */
  advance(duration: Duration): Promise<void>
  /**
   * Let time pass without anything running: what a stalled event loop or a SIGSTOP does. Timers fire with the next
   * `advance`.
   */
  stall(duration: Duration): void
}

interface Alarm extends Heaped {
  readonly fire: () => void
}

/** Time for tests: `createLocks(memory({ clock }), { clock })`, then `await clock.advance('1m')`. */
export function fakeClock(): FakeClock {
  const alarms = new Heap<Alarm>()
  let now = 0
  // An immediate runs when promise jobs and ticks are done.
  const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))
  return {
    now: () => now,
    timer(delayMs, fire) {
      const alarm: Alarm = { fire, at: 0, slot: -1 }
      alarms.put(alarm, now + Math.max(0, delayMs))
      return { cancel: () => alarms.remove(alarm) }
    },
    stayAlive: () => ({ cancel() {} }),
    async advance(duration) {
      const until = now + parseDuration(duration, 'duration')
      await settled()
      for (let alarm = alarms.peek(); alarm !== undefined && alarm.at <= until; alarm = alarms.peek()) {
        alarms.remove(alarm)
        now = Math.max(now, alarm.at)
        alarm.fire()
        await settled()
      }
      now = Math.max(now, until)
    },
    stall(duration) {
      now += parseDuration(duration, 'duration')
    },
  }
}
