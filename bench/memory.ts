/**
 * The memory engine, and with it the price of the core: what a lease, a token and a fair line cost when the engine
 * costs nothing.
 */

import { LockFactory } from '@verrou/core'
import { memoryStore } from '@verrou/core/drivers/memory'
import { delegate } from '../conformance/delegate.ts'
import { createLocks } from '../src/index.ts'
import { fakeClock, memory } from '../src/testing.ts'
import { callers, figure, median, race } from './driver.ts'
import { holdfast } from './ours.ts'

export async function run(): Promise<void> {
  await acquireAndRelease(1)
  await acquireAndRelease(100)
  await handOff()
  await beat()
}

async function acquireAndRelease(count: number): Promise<void> {
  const locks = createLocks(memory())
  const verrou = new LockFactory(memoryStore().factory())
  const stores = Array.from({ length: count }, (_, caller) => verrou.createLock(`key:${caller}`, '30s'))
  await race(`acquire + release, ${count} caller${count === 1 ? '' : 's'}, no contention`, [
    {
      name: '@verrou/core memory (no token, no renewal, no line)',
      run: callers(count, async (caller) => {
        await stores[caller]?.acquire()
        await stores[caller]?.release()
      }),
    },
    holdfast(locks, count),
  ])
  await locks.close()
}

/** All waiters stand in one line; then the line is drained, each holder handing the lock to the next waiter. */
async function handOff(): Promise<void> {
  console.log('\nhand-off, by number of waiters')
  const costs = new Map<number, number>()
  for (let round = 0; round < 5; round += 1) {
    for (const waiters of [10, 9_999]) {
      const passes = Math.max(1, Math.round(9_999 / waiters))
      const rounds: number[] = []
      for (let pass = 0; pass < passes; pass += 1) rounds.push(await drain(waiters))
      const perHandOff = rounds.reduce((sum, ms) => sum + ms, 0) / (passes * waiters)
      costs.set(waiters, Math.min(costs.get(waiters) ?? Number.POSITIVE_INFINITY, perHandOff))
    }
  }
  const [few, many] = [costs.get(10) ?? Number.NaN, costs.get(9_999) ?? Number.NaN]
  figure('10 waiters', `${(few * 1000).toFixed(2)} µs`)
  figure('9,999 waiters', `${(many * 1000).toFixed(2)} µs   ${(many / few).toFixed(2)} x   (at most 2 x)`)
}

async function drain(waiters: number): Promise<number> {
  const locks = createLocks(memory())
  const mutex = locks.mutex('line')
  const first = await mutex.acquire()
  const served = Array.from({ length: waiters }, async () => {
    const lease = await mutex.acquire()
    await lease.release()
  })
  for (;;) {
    const { value: line } = await locks.list()[Symbol.asyncIterator]().next()
    if (line?.waiting === waiters) break
    await new Promise((resolve) => setImmediate(resolve))
  }
  const startedAt = performance.now()
  await first.release()
  await Promise.all(served)
  const elapsedMs = performance.now() - startedAt
  await locks.close()
  return elapsedMs
}

/** A thousand leases of one process: how many timers and calls it takes to keep them, counted on a clock of ours. */
async function beat(): Promise<void> {
  const clock = fakeClock()
  let timers = 0
  const counting = {
    ...clock,
    timer: (delayMs: number, fire: () => void) => {
      timers += 1
      return clock.timer(delayMs, fire)
    },
  }
  const engine = memory({ clock })
  const renewals: number[] = []
  const locks = createLocks(
    delegate(engine, {
      renew: (places) => {
        renewals.push(places.length)
        return engine.renew(places)
      },
    }),
    { clock: counting, ttl: '30s' },
  )
  for (let index = 0; index < 1000; index += 1) {
    await locks.mutex(`lease:${index}`).acquire()
    await clock.advance(5)
  }
  await clock.advance('1m')
  renewals.length = 0
  timers = 0
  const beats = 30
  await clock.advance(beats * 10_000)
  console.log('\n1,000 leases of one process, ttl 30 s, five minutes')
  figure(
    'renew calls (one beat is 10 s)',
    `${renewals.length} in ${beats} beats, median ${median(renewals)} leases each`,
  )
  figure('timers set', `${timers} (one for the beat, one for the call)`)
  await locks.close()
}
