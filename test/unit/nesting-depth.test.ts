/** A lease that is nested deep tells the truth, and a look at it goes once through what it is nested in. */
import { expect, test } from 'vitest'
import type { CoreLease } from '../../src/core/lease.ts'
import { memory } from '../../src/engines/memory/index.ts'
import { createLocks } from '../../src/locks.ts'
import { countingClock, settled, TTL } from './world.ts'

const DEPTH = 20

/** A lease in a lease in a lease, the outermost first; and how often the clock is read by what is done. */
async function nested() {
  const clock = countingClock()
  let looks = 0
  const now = (): number => {
    looks += 1
    // A look that asks each level more than once would not come to an end.
    if (looks > 100_000) throw new Error('too many looks at the clock')
    return clock.now()
  }
  const locks = createLocks(memory({ clock }), { clock: { ...clock, now }, ttl: TTL })
  const lock = locks.mutex('a')
  const leases = [(await lock.acquire()) as CoreLease]
  for (let depth = 1; depth <= DEPTH; depth += 1)
    leases.push((await lock.acquire({ within: leases[depth - 1] as CoreLease })) as CoreLease)
  const looksFor = (look: () => unknown): number => {
    const before = looks
    look()
    return looks - before
  }
  return { clock, leases, looksFor, outer: leases[0] as CoreLease, inner: leases[DEPTH] as CoreLease }
}

const LOOKS: Readonly<Record<string, (lease: CoreLease) => unknown>> = {
  held: (lease) => lease.held,
  lossError: (lease) => lease.lossError,
  remainingMs: (lease) => lease.remainingMs,
  inTheWay: (lease) => lease.inTheWay,
  'signal.aborted': (lease) => lease.signal.aborted,
  'signal.reason': (lease) => lease.signal.reason,
}

test.each(Object.entries(LOOKS))('%s of a lease that is nested deep looks at each level once', async (_, look) => {
  const { clock, inner, looksFor } = await nested()
  // The first look may make the signals.
  look(inner)
  expect(looksFor(() => look(inner))).toBeLessThanOrEqual(2 * DEPTH + 2)
  clock.stall(TTL)
  expect(
    looksFor(() => look(inner)),
    'the look that finds the loss tells each level of it',
  ).toBeLessThan(20 * DEPTH)
  expect(looksFor(() => look(inner))).toBeLessThanOrEqual(2 * DEPTH + 2)
  expect(inner.held).toBe(false)
})

test('asking, telling of the end and releasing cost no more at a depth', async () => {
  const { leases, looksFor, outer, inner } = await nested()
  for (const lease of leases) expect(looksFor(() => lease.assertHeld())).toBeLessThanOrEqual(2 * DEPTH + 2)
  const heard: unknown[] = []
  for (const { signal } of leases.slice(1)) signal.addEventListener('abort', () => heard.push(signal.reason))
  expect(looksFor(() => void outer.release())).toBeLessThan(20 * DEPTH)
  expect(heard).toHaveLength(DEPTH)
  for (const reason of heard) expect(reason).toMatchObject({ code: 'LEASE_LOST', why: 'released' })
  expect(looksFor(() => void inner.release())).toBeLessThanOrEqual(2 * DEPTH + 2)
  await settled()
})

test('a nested lease keeps the reason for which it ended first', async () => {
  const { clock, leases, inner } = await nested()
  const middle = leases[DEPTH / 2] as CoreLease
  const { signal } = inner
  middle.limitHold(clock.now() + 1000)
  await clock.advance('1s')
  expect(middle.lossError).toMatchObject({ why: 'maxHold' })
  expect([inner.lossError, signal.reason]).toEqual([middle.lossError, middle.lossError])
  clock.stall(TTL)
  expect(leases[0]?.lossError).toMatchObject({ why: 'deadline' })
  expect([inner.lossError, signal.reason]).toEqual([middle.lossError, middle.lossError])
})

test('a nested lease that was released before the outer one was lost has not lost anything', async () => {
  const { clock, leases, inner } = await nested()
  await inner.release()
  clock.stall(TTL)
  expect(leases[0]?.held).toBe(false)
  expect(inner.lossError).toBeUndefined()
  expect(() => inner.assertHeld()).toThrowError(expect.objectContaining({ why: 'released' }))
})
