/** `maxHold`: a hold ends by itself, its work is told, and no second holder works beside it. */
import { describe, expect, test } from 'vitest'
import { LeaseLostError } from '../../src/core/errors.ts'
import type { AcquireOptions, Lock } from '../../src/core/lock.ts'
import type { Locks } from '../../src/locks.ts'
import { held } from './scripted-engine.ts'
import { BEAT, gate, inMemory, scripted, settled, TTL, watched } from './world.ts'

const LIMIT = '1m'
const LIMIT_MS = 60_000

describe('at the end of maxHold', () => {
  test('the signal aborts with the reason, and the lease is not held any more', async () => {
    const { locks, clock } = inMemory()
    const lease = await locks.mutex('a', { maxHold: LIMIT }).acquire()
    await clock.advance(LIMIT_MS - 1)
    expect(lease.signal.aborted).toBe(false)
    expect(lease.remainingMs).toBe(1)
    await clock.advance(1)
    expect(lease.signal.reason).toBeInstanceOf(LeaseLostError)
    expect(lease.signal.reason).toMatchObject({ why: 'maxHold', key: 'a', token: lease.token })
    expect(lease).toMatchObject({ held: false, remainingMs: 0 })
    expect(() => lease.assertHeld()).toThrow(/held for all of its maxHold/)
  })

  test('a look tells the truth after a stall, before any timer', async () => {
    const { locks, clock } = inMemory()
    const lease = await locks.mutex('a', { ttl: '1h', maxHold: LIMIT }).acquire()
    const { signal } = lease
    clock.stall(LIMIT_MS)
    expect(lease.held).toBe(false)
    expect(signal.aborted).toBe(true)
  })

  test('the next one is let in when the work has settled, and not before', async () => {
    const { locks, clock } = inMemory()
    const { opened, open } = gate()
    const using = watched(locks.mutex('a', { maxHold: LIMIT }).using(() => opened))
    await settled()
    const next = watched(locks.mutex('a').acquire())
    await clock.advance(LIMIT_MS + BEAT)
    expect([using.state, next.state]).toEqual(['pending', 'pending'])
    open()
    await settled()
    expect(using.error, 'also where the work succeeded').toMatchObject({ code: 'LEASE_LOST', why: 'maxHold' })
    await settled()
    expect(next.state).toBe('resolved')
  })

  test('the next one is let in when the ttl is over, if the work never settles', async () => {
    const { locks, clock, log } = inMemory()
    const lease = await locks.mutex('a', { maxHold: LIMIT }).acquire()
    const next = watched(locks.mutex('a').acquire())
    await clock.advance(LIMIT_MS)
    const renewals = log.filter((line) => line === 'renew a').length
    await clock.advance(TTL - BEAT - 1)
    expect(next.state, 'as long as the work may go on').toBe('pending')
    await clock.advance(BEAT + 1)
    expect(next.state).toBe('resolved')
    expect(next.value.token).not.toBe(lease.token)
    expect(log.filter((line) => line === 'renew a').length - renewals, 'those of the waiter').toBeLessThanOrEqual(4)
    expect(await lease.release()).toBe(false)
  })

  test('what the engine does not let expire is left when the ttl is over', async () => {
    const { locks, clock, engine } = scripted()
    const asked = watched(locks.mutex('a', { maxHold: BEAT / 2 }).acquire())
    await (await engine.next('enter')).answer(held(1n))
    await clock.advance(BEAT)
    expect(asked.value.held).toBe(false)
    await clock.advance(TTL - BEAT - 1)
    expect(await engine.unseen(), 'nothing is asked until then').toEqual([])
    await clock.advance(1)
    const leave = await engine.next('leave')
    await leave.answer(true)
    await clock.advance(TTL)
    expect(clock.timers, 'and nothing is left').toBe(0)
  })

  test('release gives it back at once, is not told that it was held, and is counted once', async () => {
    const { locks, clock, log } = inMemory()
    const lease = await locks.mutex('a', { maxHold: LIMIT }).acquire()
    await clock.advance(LIMIT_MS)
    expect(await lease.release()).toBe(false)
    expect(await locks.mutex('a').tryAcquire()).toBeDefined()
    await clock.advance(2 * TTL)
    expect(log.filter((line) => line === 'leave a')).toHaveLength(1)
  })

  test('release({ after }) keeps the key busy, as ever', async () => {
    const { locks, clock } = inMemory()
    const lease = await locks.mutex('a', { maxHold: LIMIT }).acquire()
    await clock.advance(LIMIT_MS)
    expect(await lease.release({ after: '5m' })).toBe(false)
    await clock.advance('299s')
    expect(await locks.mutex('a').tryAcquire()).toBeUndefined()
    await clock.advance('2s')
    expect(await locks.mutex('a').tryAcquire()).toBeDefined()
  })

  test('close() gives back what is overdue', async () => {
    const { locks, clock, engine } = inMemory()
    const others = inMemory()
    await locks.mutex('a', { maxHold: LIMIT }).acquire()
    await clock.advance(LIMIT_MS)
    expect((await engine.inspect('a')).entries).toHaveLength(1)
    await locks.close()
    expect((await engine.inspect('a')).entries).toHaveLength(0)
    await others.locks.close()
  })
})

describe('maxHold is an option of', () => {
  const mutex = (locks: Locks): Lock<AcquireOptions> => locks.mutex('a')
  const asks: Readonly<Record<string, (locks: Locks) => Promise<{ readonly signal: AbortSignal } | undefined>>> = {
    'a mutex': (locks) => locks.mutex('a', { maxHold: LIMIT }).acquire(),
    'a semaphore': (locks) => locks.semaphore('a', 2, { maxHold: LIMIT }).acquire(),
    'a read lock': (locks) => locks.rw('a', { maxHold: LIMIT }).read.acquire(),
    'a write lock': (locks) => locks.rw('a', { maxHold: LIMIT }).write.acquire(),
    acquire: (locks) => mutex(locks).acquire({ maxHold: LIMIT }),
    tryAcquire: (locks) => mutex(locks).tryAcquire({ maxHold: LIMIT }),
    'acquire, where it wins over that of the lock': (locks) =>
      locks.mutex('a', { maxHold: '1s' }).acquire({ maxHold: LIMIT }),
    'acquire of several': (locks) => locks.all([locks.mutex('a'), locks.mutex('b')]).acquire({ maxHold: LIMIT }),
    'one of several': (locks) => locks.all([locks.mutex('a', { maxHold: LIMIT }), locks.mutex('b')]).acquire(),
    'tryAcquire of several': (locks) => locks.all([locks.mutex('a')]).tryAcquire({ maxHold: LIMIT }),
    'a nested acquire': async (locks) => {
      const within = await locks.mutex('a').acquire()
      return locks.mutex('a').acquire({ within, maxHold: LIMIT })
    },
  }
  for (const [what, ask] of Object.entries(asks)) {
    test(what, async () => {
      const { locks, clock } = inMemory()
      const lease = await ask(locks)
      const { signal } = lease ?? {}
      await clock.advance(LIMIT_MS - 1)
      expect(signal?.aborted).toBe(false)
      await clock.advance(1)
      expect(signal?.reason).toMatchObject({ why: 'maxHold' })
      expect(lease).toMatchObject({ held: false, remainingMs: 0 })
    })
  }

  test('using and lead', async () => {
    for (const end of ['using', 'lead'] as const) {
      const { locks, clock } = inMemory()
      const work = (lease: { readonly signal: AbortSignal }): Promise<void> =>
        new Promise((_, reject) => lease.signal.addEventListener('abort', () => reject(lease.signal.reason)))
      const ended = watched(
        end === 'using'
          ? locks.mutex('a').using({ maxHold: LIMIT }, work)
          : locks.election('a').lead({ maxHold: LIMIT }, work),
      )
      await clock.advance(LIMIT_MS)
      await settled()
      expect(ended.error).toMatchObject({ code: 'LEASE_LOST', why: 'maxHold' })
    }
  })

  test('lead with `again`, where the leader lets another candidate lead, and stands again', async () => {
    const { locks, clock } = inMemory()
    const terms: string[] = []
    const candidate = (name: string): Promise<void> =>
      locks.election('a', { maxHold: LIMIT }).lead({ again: true }, async ({ signal }) => {
        terms.push(name)
        await new Promise((resolve) => signal.addEventListener('abort', resolve))
      })
    void candidate('one').catch(() => {})
    void candidate('two').catch(() => {})
    await settled()
    for (let term = 0; term < 3; term += 1) await clock.advance(LIMIT_MS)
    expect(terms).toEqual(['one', 'two', 'one', 'two'])
    await locks.close()
  })

  test('no time at all is refused', async () => {
    const { locks } = inMemory()
    expect(() => locks.mutex('a', { maxHold: 0 })).toThrow(RangeError)
    await expect(locks.mutex('a').acquire({ maxHold: 0 })).rejects.toThrow(/maxHold must be more than 0/)
    await expect(locks.mutex('a').acquire({ maxHold: 'long' as '1s' })).rejects.toThrow(TypeError)
  })
})

describe('a nested lease with a maxHold', () => {
  test('ends at its own maxHold, and the outer one goes on', async () => {
    const { locks, clock } = inMemory()
    const outer = await locks.mutex('a').acquire()
    const inner = await locks.mutex('a').acquire({ within: outer, maxHold: LIMIT })
    const sibling = watched(locks.mutex('a').acquire({ within: outer }))
    await clock.advance(LIMIT_MS)
    expect(inner.held).toBe(false)
    expect(outer.held).toBe(true)
    expect(sibling.state, 'the turn is given on when the work has settled').toBe('pending')
    expect(await inner.release()).toBe(false)
    await settled()
    expect(sibling.state).toBe('resolved')
  })

  test('ends with the outer one, if that ends before', async () => {
    const { locks, clock } = inMemory()
    const outer = await locks.mutex('a', { maxHold: '1s' }).acquire()
    const inner = await locks.mutex('a').acquire({ within: outer, maxHold: LIMIT })
    const { signal } = inner
    await clock.advance('1s')
    expect(signal.reason).toBe(outer.signal.reason)
    expect(inner.held).toBe(false)
    await Promise.all([inner.release(), outer.release()])
    await clock.advance(2 * LIMIT_MS)
    expect(clock.timers).toBe(0)
  })
})
