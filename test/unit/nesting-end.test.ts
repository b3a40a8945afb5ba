/** What a nested lease is told when the one around it ends, and what those are told that wait behind it. */
import { describe, expect, test } from 'vitest'
import { channels } from '../../src/core/diagnostics.ts'
import { LeaseLostError } from '../../src/core/errors.ts'
import type { Lease } from '../../src/core/lease.ts'
import { createLocks } from '../../src/locks.ts'
import { inMemory, settled, TTL, watched } from './world.ts'

test.each(['closed', 'drained'] as const)(
  'a caller that waits behind a nested lease is told when the locks are %s, and so is the nested one',
  async (how) => {
    const { locks, clock } = inMemory()
    const lock = locks.mutex('a')
    const outer = await lock.acquire()
    const inner = await lock.acquire({ within: outer })
    const { signal } = inner
    const second = watched(lock.acquire({ within: outer }))
    await settled()
    const ended = watched(how === 'closed' ? locks.close() : locks.drain({ grace: '1s' }))
    await clock.advance('1500ms')
    await settled()
    expect(ended.state).toBe('resolved')
    expect(second.error).toMatchObject({ code: 'LEASE_LOST', why: 'closed' })
    expect(signal.reason).toMatchObject({ code: 'LEASE_LOST', why: 'closed' })
    expect([clock.alive, clock.timers]).toEqual([0, 0])
  },
)

test('all that is nested hears why the outer lease was lost, though a subscriber releases that one at once', async () => {
  const { locks, clock } = inMemory()
  const lock = locks.mutex('a')
  const outer = await lock.acquire()
  const inner = await lock.acquire({ within: outer })
  const waiting = watched(lock.acquire({ within: outer }))
  await settled()
  const release = (): unknown => outer.release()
  channels.loss.subscribe(release)
  clock.stall(TTL)
  expect(outer.held).toBe(false)
  channels.loss.unsubscribe(release)
  await settled()
  expect([inner.signal.reason, waiting.error]).toMatchObject([{ why: 'deadline' }, { why: 'deadline' }])
})

test.each(['released', 'closed'] as const)(
  'a nested lease that was forgotten leaves no timer behind when the outer one is %s',
  async (how) => {
    const { locks, clock } = inMemory()
    const lock = locks.mutex('a')
    const outer = await lock.acquire()
    await lock.acquire({ within: outer, maxHold: '1h' })
    if (how === 'released') await outer.release()
    await locks.close()
    expect([clock.alive, clock.timers]).toEqual([0, 0])
  },
)

describe('an outer lease that is released while a nested one is in use', () => {
  test('makes the nested using reject, as a loss: the rest of its work was not covered', async () => {
    const { locks } = inMemory()
    const lock = locks.mutex('a', { reentrant: true })
    let nested: Promise<string> | undefined
    await lock.using(async (outer) => {
      nested = lock.using(async () => {
        await outer.release()
        return 'done'
      })
      await nested.catch(() => {})
    })
    await expect(nested).rejects.toMatchObject({ code: 'LEASE_LOST', why: 'released', key: 'a' })
  })

  test('however deep', async () => {
    const { locks } = inMemory()
    const lock = locks.mutex('a', { reentrant: true })
    const outer = await lock.acquire()
    const work = async (): Promise<string> => {
      await outer.release()
      return 'done'
    }
    const nested = lock.using({ within: outer }, (middle) => lock.using({ within: middle }, work))
    await expect(nested).rejects.toBeInstanceOf(LeaseLostError)
  })

  test('aborts the signal of the nested one at once, however deep: its work is to end', async () => {
    const { locks } = inMemory()
    const lock = locks.mutex('a')
    const outer = await lock.acquire()
    const middle = await lock.acquire({ within: outer, maxHold: '1h' })
    const inner = await lock.acquire({ within: middle })
    const heard: unknown[] = []
    for (const { signal } of [middle, inner]) signal.addEventListener('abort', () => heard.push(signal.reason))
    expect(await outer.release()).toBe(true)
    expect(heard).toHaveLength(2)
    for (const reason of heard) expect(reason).toMatchObject({ code: 'LEASE_LOST', why: 'released', key: 'a' })
    expect(outer.signal.aborted, 'a release is no loss of the one that is released').toBe(false)
    expect(() => inner.assertHeld()).toThrow(inner.signal.reason as Error)
  })

  test('shows in a signal that is asked for only later', async () => {
    const { locks } = inMemory()
    const outer = await locks.mutex('a').acquire()
    const inner = await locks.mutex('a').acquire({ within: outer })
    await outer.release()
    expect(inner.signal.reason).toMatchObject({ why: 'released' })
  })

  test('ends the wait of a caller behind a nested one that is never released', async () => {
    const { locks, clock } = inMemory()
    const lock = locks.mutex('a', { reentrant: true })
    let forgotten: Lease | undefined
    let second = watched(Promise.resolve())
    await lock.using(async () => {
      forgotten = await lock.acquire()
      second = watched(lock.using(() => {}))
      await settled()
      expect(second.state).toBe('pending')
    })
    await settled()
    expect(second.error).toMatchObject({ code: 'LEASE_LOST', why: 'released', key: 'a' })
    expect(forgotten?.held).toBe(false)
    await locks.close()
    expect([clock.alive, clock.timers], 'and nothing keeps the process alive').toEqual([0, 0])
  })

  test('ends the wait of a caller behind a nested one in a nested one, when the one around them is released', async () => {
    const { locks } = inMemory()
    const lock = locks.mutex('a')
    const outer = await lock.acquire()
    const middle = await lock.acquire({ within: outer })
    await lock.acquire({ within: middle })
    const cancel = new AbortController()
    const waiting = [
      watched(lock.acquire({ within: middle })),
      watched(lock.acquire({ within: middle, signal: cancel.signal })),
    ]
    await settled()
    await middle.release()
    await settled()
    for (const { error } of waiting) expect(error).toMatchObject({ code: 'LEASE_LOST', why: 'released' })
    expect(outer.held).toBe(true)
  })

  test('lets the next one hold at once, though a nested one was forgotten', async () => {
    const { locks, clock, engine } = inMemory()
    const other = createLocks(engine, { clock, holder: 'other' })
    const outer = await locks.mutex('a').acquire()
    await locks.mutex('a').acquire({ within: outer })
    const next = watched(other.mutex('a').acquire())
    await outer.release()
    await settled()
    expect(next.state).toBe('resolved')
  })

  test('tells listeners of the nested one outside of the work that released it', async () => {
    const { locks } = inMemory()
    const lock = locks.mutex('a')
    const outer = await lock.acquire()
    const inner = await lock.acquire({ within: outer })
    let again: Promise<Lease> | undefined
    inner.signal.addEventListener('abort', () => {
      again = locks.mutex('b').acquire()
    })
    await locks.mutex('b').using(async () => {
      await outer.release()
    })
    expect((await again)?.held, 'not refused as inside of it').toBe(true)
  })

  test('takes nothing from a nested one that was released before', async () => {
    const { locks } = inMemory()
    const lock = locks.mutex('a')
    const outer = await lock.acquire()
    const nested = lock.using({ within: outer }, async (inner) => {
      await inner.release()
      await outer.release()
      return 'done'
    })
    await expect(nested).resolves.toBe('done')
  })
})
