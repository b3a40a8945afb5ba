/** The fake clock that users of Holdfast get for their own tests. */
import { describe, expect, test } from 'vitest'
import { createLocks } from '../../src/locks.ts'
import { fakeClock, memory } from '../../src/testing.ts'

describe('a fake clock', () => {
  test('moves only when told', async () => {
    const clock = fakeClock()
    expect(clock.now()).toBe(0)
    await clock.advance('1m')
    clock.stall(500)
    expect(clock.now()).toBe(60_500)
  })

  test('fires timers in order, and what they start runs before the next one', async () => {
    const clock = fakeClock()
    const order: string[] = []
    const at = (ms: number, name: string): void => {
      clock.timer(ms, () => {
        order.push(`${name} at ${clock.now()}`)
        void Promise.resolve().then(() => process.nextTick(() => order.push(`after ${name}`)))
      })
    }
    at(20, 'second')
    at(10, 'first')
    await clock.advance(100)
    expect(order).toEqual(['first at 10', 'after first', 'second at 20', 'after second'])
  })

  test('fires timers that timers set, if their time has come', async () => {
    const clock = fakeClock()
    const fired: number[] = []
    const beat = (): void => {
      fired.push(clock.now())
      clock.timer(10, beat)
    }
    clock.timer(10, beat)
    await clock.advance(35)
    expect(fired).toEqual([10, 20, 30])
  })

  test('forgets a timer that was cancelled', async () => {
    const clock = fakeClock()
    let fired = false
    clock
      .timer(10, () => {
        fired = true
      })
      .cancel()
    await clock.advance(100)
    expect(fired).toBe(false)
  })

  test('fires late after a stall, as a stalled event loop does', async () => {
    const clock = fakeClock()
    const fired: number[] = []
    clock.timer(10, () => fired.push(clock.now()))
    clock.stall(100)
    expect(fired).toEqual([])
    await clock.advance(0)
    expect(fired).toEqual([100])
  })

  test('never goes back, also when a timer stalls', async () => {
    const clock = fakeClock()
    clock.timer(10, () => clock.stall(1000))
    await clock.advance(100)
    expect(clock.now()).toBeGreaterThanOrEqual(1010)
  })

  test('takes the durations that everything else takes', async () => {
    const clock = fakeClock()
    await expect(clock.advance(-1)).rejects.toThrow(RangeError)
    expect(() => clock.stall(Number.NaN)).toThrow(RangeError)
  })
})

test("a user's test: an hour of heartbeats, in a moment", async () => {
  const clock = fakeClock()
  const locks = createLocks(memory({ clock }), { clock })
  const lease = await locks.mutex('job').acquire()
  await clock.advance('1h')
  expect(lease.held).toBe(true)
  clock.stall('31s')
  expect(lease.held).toBe(false)
  await locks.close()
})
