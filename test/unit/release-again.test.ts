/** A listener that hears of the end of a lease may give back that very lease, or one around it, in the midst of it. */
import { expect, test } from 'vitest'
import { channels } from '../../src/core/diagnostics.ts'
import { createLocks } from '../../src/locks.ts'
import { inMemory, settled, watched } from './world.ts'

test('a release is told once, though a listener of a nested lease releases the outer one again', async () => {
  const { locks } = inMemory()
  const released: unknown[] = []
  const hear = (event: unknown): void => void released.push(event)
  channels.release.subscribe(hear)
  try {
    const outer = await locks.mutex('a').acquire()
    const inner = await locks.mutex('a').acquire({ within: outer })
    let again: Promise<boolean> | undefined
    inner.signal.addEventListener('abort', () => {
      again = outer.release()
    })
    expect(await outer.release()).toBe(true)
    expect(await again).toBe(true)
    expect(released).toHaveLength(1)
  } finally {
    channels.release.unsubscribe(hear)
  }
})

test('a release for later is answered to a listener that releases the outer lease again', async () => {
  const { locks, engine, clock } = inMemory()
  const other = createLocks(engine, { clock, holder: 'other' })
  const outer = await locks.mutex('a').acquire()
  const inner = await locks.mutex('a').acquire({ within: outer })
  let again = watched(Promise.resolve(false))
  inner.signal.addEventListener('abort', () => {
    again = watched(outer.release())
  })
  expect(await outer.release({ after: '1s' })).toBe(true)
  await settled()
  expect(again).toMatchObject({ state: 'resolved', value: true })
  const next = watched(other.mutex('a').acquire())
  await settled()
  expect(next.state, 'it is kept busy').toBe('pending')
  await clock.advance('1100ms')
  await settled()
  expect(next.state).toBe('resolved')
})

test('a release for later of a lease that has just been lost is not cut short by a listener that releases it', async () => {
  const { locks, engine, clock } = inMemory()
  const other = createLocks(engine, { clock, holder: 'other' })
  const lease = await locks.mutex('a').acquire({ maxHold: '30ms' })
  lease.signal.addEventListener('abort', () => void lease.release())
  clock.stall('60ms')
  await lease.release({ after: '1s' })
  const next = watched(other.mutex('a').acquire())
  await clock.advance('10ms')
  expect(next.state, 'it is kept busy').toBe('pending')
})

test('several locks are kept busy for later together, though a listener releases all of them at once', async () => {
  const { locks, engine, clock } = inMemory()
  const other = createLocks(engine, { clock, holder: 'other' })
  await locks.all([locks.mutex('a'), locks.mutex('b')]).using(async (all) => {
    const inner = await locks.mutex('a', { reentrant: true }).acquire()
    inner.signal.addEventListener('abort', () => void all.release())
    expect(await all.release({ after: '1s' })).toBe(true)
  })
  const next = watched(other.mutex('b').acquire())
  await settled()
  expect(next.state, 'it is kept busy').toBe('pending')
})

test('a bad option of a release leaves the release of several locks to be asked for again', async () => {
  const { locks } = inMemory()
  const all = await locks.all([locks.mutex('a'), locks.mutex('b')]).acquire()
  await expect(all.release({ after: 'soon' as never })).rejects.toThrow(/after/)
  expect(await all.release()).toBe(true)
})

test('a nested lease gives its turn to one sibling, though a listener of its end releases it, too', async () => {
  const { locks, clock } = inMemory()
  const lock = locks.mutex('a')
  const outer = await lock.acquire()
  const inner = await lock.acquire({ within: outer, maxHold: '30ms' })
  inner.signal.addEventListener('abort', () => void inner.release())
  const siblings = [watched(lock.acquire({ within: outer })), watched(lock.acquire({ within: outer }))]
  await settled()
  clock.stall('60ms')
  await inner.release()
  await settled()
  expect(siblings.map(({ state }) => state)).toEqual(['resolved', 'pending'])
})

test('a nested lease whose signal is first asked for after its leader has resigned says so', async () => {
  const { locks } = inMemory()
  const resign = new AbortController()
  const reason = new Error('enough')
  await locks.election('a').lead({ resignOn: resign.signal }, async (lease) => {
    const inner = await locks.mutex('a').acquire({ within: lease as never })
    resign.abort(reason)
    expect(inner.signal.reason).toBe(reason)
    expect(inner.held, 'it is held until the work has ended').toBe(true)
  })
})
