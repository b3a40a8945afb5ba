/** Draining: nothing new is granted, holders have a while to end, and then everything is given back and closed. */
import { describe, expect, test } from 'vitest'
import { channels, type Events } from '../../src/core/diagnostics.ts'
import { ClosedError, LeaseLostError } from '../../src/core/errors.ts'
import type { Lease } from '../../src/core/lease.ts'
import { createLocks } from '../../src/locks.ts'
import { gate, inMemory, settled, TTL, watched } from './world.ts'

const refused = (error: unknown): boolean =>
  error instanceof ClosedError && error.code === 'CLOSED' && /being drained/.test(error.message)

describe('drain()', () => {
  test('refuses at once what waits and what is asked, and the waiters leave their lines', async () => {
    const { locks, engine } = inMemory()
    const lease = await locks.mutex('a').acquire()
    const waiting = watched(locks.mutex('a').acquire())
    const campaign = watched(locks.election('a').lead({ again: true }, () => {}))
    await settled()
    const drained = watched(locks.drain())
    await settled()
    expect([waiting.error, campaign.error].every(refused)).toBe(true)
    for (const ask of [
      locks.mutex('b').acquire(),
      locks.mutex('b').tryAcquire(),
      locks.mutex('b').using(() => 'done'),
      locks.all([locks.mutex('b'), locks.mutex('c')]).acquire(),
      locks.election('b').lead(() => 'done'),
    ])
      await expect(ask).rejects.toSatisfy(refused)
    expect((await engine.inspect('a')).entries.map(({ state }) => state)).toEqual(['held'])
    expect([lease.held, drained.state]).toEqual([true, 'pending'])
  })

  test('lets holders end by themselves, renewed and nesting as ever, and is over when the last one has', async () => {
    const { locks, clock } = inMemory()
    const { opened, open } = gate()
    const work = watched(
      locks.mutex('a', { reentrant: true }).using(async () => {
        await opened
        return locks.mutex('a', { reentrant: true }).using(() => 'nested')
      }),
    )
    await settled()
    const drained = watched(locks.drain({ grace: '10m' }))
    await clock.advance(3 * TTL)
    expect([work.state, drained.state]).toEqual(['pending', 'pending'])
    open()
    await settled()
    await settled()
    expect(work.value).toBe('nested')
    expect(drained.state).toBe('resolved')
    await expect(locks.ping(), 'it is closed').rejects.toThrow(/closed/)
  })

  test('takes no time where nothing is held', async () => {
    const { locks, clock } = inMemory()
    await locks.mutex('a').using(() => {})
    await locks.drain({ grace: '1h' })
    expect(clock.now()).toBe(0)
    expect([clock.timers, clock.alive]).toEqual([0, 0])
  })

  test('tells the holders that are left when the grace is over, and gives everything back', async () => {
    const { locks, engine, clock } = inMemory()
    const lease = await locks.mutex('a').acquire()
    const overdue = await locks.mutex('b', { maxHold: '1s' }).acquire()
    const { signal } = lease
    const drained = watched(locks.drain({ grace: '2s' }))
    await clock.advance('1999ms')
    expect([signal.aborted, overdue.held, drained.state]).toEqual([false, false, 'pending'])
    expect(clock.alive, 'the process waits for it').toBeGreaterThan(0)
    await clock.advance('1ms')
    expect(signal.reason).toBeInstanceOf(LeaseLostError)
    expect(signal.reason).toMatchObject({ why: 'closed' })
    await clock.advance('500ms')
    expect(drained.state).toBe('resolved')
    for (const key of ['a', 'b']) expect((await engine.inspect(key)).entries).toEqual([])
    expect([clock.timers, clock.alive]).toEqual([0, 0])
  })

  test('lets work that was told at the end of the grace tidy up for a moment, and no other hold meanwhile', async () => {
    const { locks, engine, clock } = inMemory()
    const other = createLocks(engine, { clock, holder: 'other' })
    const { opened, open } = gate()
    const work = watched(
      locks.mutex('a').using(async ({ signal }) => {
        await new Promise((resolve) => signal.addEventListener('abort', resolve))
        await opened
      }),
    )
    await settled()
    const next = watched(other.mutex('a').acquire())
    const drained = watched(locks.drain({ grace: '2s' }))
    await clock.advance('2s')
    await clock.advance('100ms')
    expect([work.state, next.state, drained.state]).toEqual(['pending', 'pending', 'pending'])
    open()
    await settled()
    await settled()
    expect(work.error).toMatchObject({ code: 'LEASE_LOST', why: 'closed' })
    expect([next.state, drained.state, clock.now()]).toEqual(['resolved', 'resolved', 2100])
  })

  test('gives the work that is told at the end of the grace half a second, no more', async () => {
    const { locks, engine, clock } = inMemory()
    void watched(locks.mutex('a').using(() => new Promise(() => {})))
    await settled()
    const drained = watched(locks.drain({ grace: '2s' }))
    await clock.advance('2499ms')
    expect([drained.state, (await engine.inspect('a')).entries.length]).toEqual(['pending', 1])
    await clock.advance('1ms')
    await settled()
    expect([drained.state, (await engine.inspect('a')).entries.length]).toEqual(['resolved', 0])
  })

  test('tells nothing to a holder that gives back its lock when another one is told', async () => {
    const { locks, clock } = inMemory()
    const lease = await locks.all([locks.mutex('a'), locks.mutex('b')]).acquire()
    const losses: string[] = []
    const heard = ({ operation: { key } }: Events['loss']): unknown => losses.push(key)
    channels.loss.subscribe(heard)
    try {
      lease.signal.addEventListener('abort', () => void lease.release())
      const drained = watched(locks.drain({ grace: '2s' }))
      await clock.advance('2s')
      await settled()
      expect(drained.state).toBe('resolved')
      expect(losses).toEqual(['a'])
    } finally {
      channels.loss.unsubscribe(heard)
    }
  })

  test('lets work that was told at the end of the grace keep its key busy for a while', async () => {
    const { locks, engine, clock } = inMemory()
    const lease = await locks.mutex('a').acquire()
    let released: Promise<boolean> | undefined
    lease.signal.addEventListener('abort', () => {
      released = lease.release({ after: '5m' })
    })
    const drained = watched(locks.drain({ grace: '2s' }))
    await clock.advance('2s')
    await settled()
    expect(drained.state).toBe('resolved')
    // The lease was lost, so it was not held until then.
    expect(await released).toBe(false)
    expect((await engine.inspect('a')).entries).toMatchObject([{ state: 'held', remainingMs: 300_000 }])
  })

  test('waits for work past its maxHold as well', async () => {
    const { locks, clock } = inMemory()
    const overdue = await locks.mutex('b', { maxHold: '1s' }).acquire()
    const drained = watched(locks.drain({ grace: '1m' }))
    await clock.advance('2s')
    expect(drained.state).toBe('pending')
    await overdue.release()
    await settled()
    expect(drained.state).toBe('resolved')
  })

  test('is ended by close(), and after it is no more than that', async () => {
    const { locks } = inMemory()
    await locks.mutex('a').acquire()
    const drained = watched(locks.drain({ grace: '1h' }))
    await locks.close()
    await settled()
    expect(drained.state).toBe('resolved')
    await locks.drain()
  })

  test('aborts `draining`, as close() does', async () => {
    const [one, other] = [inMemory(), inMemory()]
    const heard: string[] = []
    one.locks.draining.addEventListener('abort', () => {
      heard.push('drain')
      void one.locks.drain()
    })
    other.locks.draining.addEventListener('abort', () => heard.push('close'))
    await one.locks.drain()
    await other.locks.close()
    expect(heard).toEqual(['drain', 'close'])
  })

  test('refuses a grace that is none', async () => {
    const { locks } = inMemory()
    await expect(locks.drain({ grace: 'soon' as '1s' })).rejects.toThrow(/grace must be/)
    await expect(locks.drain({ gracee: 1 } as never)).rejects.toThrow(/did you mean 'grace'/)
    expect((await locks.mutex('a').acquire()).held, 'and drains nothing').toBe(true)
  })
})

describe('lead({ resignOn })', () => {
  const untilTold = ({ signal }: Lease): Promise<string> =>
    new Promise((resolve) => signal.addEventListener('abort', () => resolve(String(signal.reason))))

  test('tells the leader, which leads and is renewed until its work has settled', async () => {
    const { locks, clock } = inMemory()
    const leaving = new AbortController()
    const { opened, open } = gate()
    let term: Lease | undefined
    const led = watched(
      locks.election('a').lead({ resignOn: leaving.signal, again: true }, async (lease) => {
        term = lease
        const told = await untilTold(lease)
        await opened
        return told
      }),
    )
    await settled()
    leaving.abort('shift is over')
    await clock.advance(3 * TTL)
    expect(term?.held, 'it may tidy up').toBe(true)
    open()
    await settled()
    expect(led.value, 'and is no loss').toBe('shift is over')
    expect((await locks.election('a').leader())?.holder).toBeUndefined()
  })

  test('lets the leader nest until its work has settled, and what is nested is told to end, however deep', async () => {
    const { locks, clock } = inMemory()
    const a = locks.mutex('a')
    const { opened, open } = gate()
    const told: unknown[] = []
    const led = watched(
      locks.election('a').lead({ resignOn: locks.draining }, async (term) => {
        const before = await a.acquire({ within: term })
        const inBefore = await a.acquire({ within: before })
        const waiting = watched(a.acquire({ within: term, wait: '1m' }))
        for (const { signal } of [before, inBefore])
          signal.addEventListener('abort', () => told.push(String(signal.reason)))
        await untilTold(term)
        expect([waiting.state, before.held, inBefore.held]).toEqual(['pending', true, true])
        await before.release()
        await settled()
        await waiting.value.release()
        await a.using({ within: term, maxHold: '1s' }, async (after) => {
          expect(String(after.signal.reason)).toContain('being drained')
          await a.using({ within: after }, () => clock.stall('100ms'))
        })
        await opened
        return 'tidied up'
      }),
    )
    await settled()
    const drained = watched(locks.drain({ grace: '5s' }))
    await settled()
    await settled()
    open()
    await settled()
    await settled()
    expect(led.value).toBe('tidied up')
    expect(told).toEqual([expect.stringContaining('being drained'), expect.stringContaining('being drained')])
    expect([drained.state, clock.alive, clock.timers]).toEqual(['resolved', 0, 0])
  })

  test('ends what is nested in the leader with the loss of its lease, though it was told to end before', async () => {
    const { locks, clock } = inMemory()
    const a = locks.mutex('a')
    const leaving = new AbortController()
    let waiting = watched(Promise.resolve())
    const led = watched(
      locks.election('a', { maxHold: '1s' }).lead({ resignOn: leaving.signal }, async (term) => {
        const nested = await a.acquire({ within: term })
        waiting = watched(a.using({ within: term }, () => {}))
        await a.using({ within: nested }, () => new Promise((resolve) => clock.timer(5000, () => resolve(undefined))))
      }),
    )
    await settled()
    leaving.abort('over')
    await settled()
    expect(waiting.state).toBe('pending')
    await clock.advance('1s')
    expect(waiting.error).toMatchObject({ code: 'LEASE_LOST', why: 'maxHold' })
    await clock.advance('5s')
    expect(led.error).toMatchObject({ why: 'maxHold' })
  })

  test('ends a campaign with the reason of the signal, also one that has not begun', async () => {
    const { locks } = inMemory()
    await locks.mutex('a').acquire()
    const leaving = new AbortController()
    const reason = new Error('leaving')
    const campaign = watched(locks.election('a').lead({ resignOn: leaving.signal, again: true }, () => {}))
    await settled()
    leaving.abort(reason)
    await settled()
    expect(campaign.error).toBe(reason)
    await expect(locks.election('b').lead({ resignOn: leaving.signal }, () => {})).rejects.toBe(reason)
    await expect(locks.election('b').lead({ resignOn: 5 as never }, () => {})).rejects.toThrow(TypeError)
  })

  test('with `again`, a leader that is lost while it resigns does not stand again', async () => {
    const { locks, clock } = inMemory()
    const leaving = new AbortController()
    let terms = 0
    const led = watched(
      locks.election('a', { maxHold: '1s' }).lead({ resignOn: leaving.signal, again: true }, async (lease) => {
        terms += 1
        await untilTold(lease)
        await new Promise((resolve) => clock.timer(5000, () => resolve(undefined)))
      }),
    )
    await settled()
    leaving.abort('over')
    await clock.advance('1m')
    expect([terms, led.state]).toEqual([1, 'rejected'])
    expect(led.error).toMatchObject({ why: 'maxHold' })
  })

  test('goes with draining: the leader ends as soon as the locks are drained', async () => {
    const { locks } = inMemory()
    const led = watched(locks.election('a').lead({ resignOn: locks.draining }, untilTold))
    await settled()
    await locks.drain({ grace: '1h' })
    expect(led.value).toContain('being drained')
  })
})
