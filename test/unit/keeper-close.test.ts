/** The end: close, and what is left behind, which is nothing. */
import { describe, expect, test } from 'vitest'
import { EngineError } from '../../src/core/errors.ts'
import type { Lease } from '../../src/core/lease.ts'
import { held, waiting } from './scripted-engine.ts'
import { BEAT, holding, inMemory, scripted, settled, TTL, type Watched, watched } from './world.ts'

describe('close', () => {
  test('gives back what is held, and says that it was closed', async () => {
    const { engine, lease, locks } = await holding()
    const closed = watched(locks.close())
    expect(lease.signal.reason).toMatchObject({ code: 'LEASE_LOST', why: 'closed' })
    expect(closed.state).toBe('pending')
    await (await engine.next('leave')).answer(true)
    await settled()
    expect(closed.state).toBe('resolved')
    expect(engine.log.slice(-3)).toEqual(['leave a', 'unsubscribe', 'dispose'])
  })

  test('leaves nothing running for a release({ after }) that is not answered', async () => {
    const { engine, clock, lease, locks } = await holding({ callTimeout: 1000 })
    let released: Watched<boolean> | undefined
    lease.signal.addEventListener('abort', () => {
      released = watched(lease.release({ after: '1m' }))
    })
    await clock.advance('500ms')
    const closed = watched(locks.close())
    await engine.next('renew')
    await clock.advance('999ms')
    await settled()
    expect([closed.state, released?.value]).toEqual(['resolved', false])
    expect([clock.timers, clock.alive]).toEqual([0, 0])
  })

  test('waits with a release({ after }) for an enter that is on its way, and keeps the key busy', async () => {
    const { engine, clock, locks } = scripted({ callTimeout: 1000 })
    const asked = watched(locks.mutex('a').acquire())
    const first = await engine.next('enter')
    await clock.advance('1s')
    await clock.advance('1s')
    const second = await engine.next('enter')
    await first.answer(held(1n))
    const lease = asked.value
    let released: Watched<boolean> | undefined
    lease.signal.addEventListener('abort', () => {
      released = watched(lease.release({ after: '1m' }))
    })
    const closed = watched(locks.close())
    await second.answer(held(1n))
    const renew = await engine.next('renew')
    expect(renew.items).toMatchObject([{ ttlMs: 60_000, outlives: true }])
    await renew.answer(held(1n))
    await settled()
    // It was not held any more: its holder was told of the close.
    expect([released?.value, closed.state]).toEqual([false, 'resolved'])
    expect(engine.log.slice(-3)).toEqual(['renew a', 'unsubscribe', 'dispose'])
  })

  test('refuses waiters, and leaves for them', async () => {
    const { engine, locks } = scripted()
    const asked = watched(locks.mutex('a').acquire())
    await (await engine.next('enter')).answer(waiting(1))
    void locks.close()
    await (await engine.next('leave')).answer(true)
    expect(asked.error).toBeInstanceOf(EngineError)
    expect(asked.error).toMatchObject({
      message: 'scripted: the locks were closed',
      outcome: 'not-applied',
      transient: false,
    })
  })

  test('waits for an enter that is on its way, and leaves for it before the engine is closed', async () => {
    const { engine, locks } = scripted()
    const asked = watched(locks.mutex('a').acquire())
    const enter = await engine.next('enter')
    void locks.close()
    await settled()
    expect(asked.state).toBe('rejected')
    expect(engine.disposed).toBe(0)
    await enter.answer(held(1n))
    await (await engine.next('leave')).answer(true)
    await settled()
    expect(engine.log.slice(-3)).toEqual(['leave a', 'unsubscribe', 'dispose'])
  })

  test('waits also for an enter that was cancelled on its way: what arrives is left before the engine is closed', async () => {
    const { engine, locks } = scripted()
    const controller = new AbortController()
    watched(locks.mutex('a').acquire({ signal: controller.signal }))
    const enter = await engine.next('enter')
    controller.abort()
    void locks.close()
    await settled()
    expect(engine.disposed).toBe(0)
    await enter.answer(held(1n))
    await (await engine.next('leave')).answer(true)
    await settled()
    expect(engine.log.slice(-3)).toEqual(['leave a', 'unsubscribe', 'dispose'])
  })

  test('waits for a release for later that is on its way: the key is not busy for the rest of a ttl', async () => {
    const { engine, lease, locks } = await holding()
    const released = watched(lease.release({ after: '1s' }))
    const closed = watched(locks.close())
    await (await engine.next('renew')).answer(held(1n))
    await settled()
    expect(released.value).toBe(true)
    expect(closed.state).toBe('resolved')
    expect(engine.log.slice(-3)).toEqual(['renew a', 'unsubscribe', 'dispose'])
  })

  test('gives back what was evicted while its work goes on', async () => {
    const { engine, lease, locks, clock } = await holding()
    await clock.advance(BEAT)
    await (await engine.next('renew')).answer({ state: 'gone', why: 'evicted' })
    expect(lease.signal.reason).toMatchObject({ code: 'LEASE_LOST', why: 'evicted' })
    const closed = watched(locks.close())
    await (await engine.next('leave')).answer(true)
    await settled()
    expect(closed.state).toBe('resolved')
    expect(engine.log.slice(-3)).toEqual(['leave a', 'unsubscribe', 'dispose'])
  })

  test('does not leave a release hanging', async () => {
    const { engine, clock, lease, locks } = await holding()
    watched(locks.mutex('b').acquire())
    await (await engine.next('enter')).answer(held(2n))
    await clock.advance(BEAT)
    // The release waits for this renewal, which is never answered.
    await engine.next('renew')
    const released = watched(lease.release({ after: '1m' }))
    const closed = watched(locks.close())
    for (let second = 0; second < 15; second += 1) {
      await clock.advance(1000)
      for (const call of await engine.unseen())
        if (call.startsWith('leave')) await (await engine.next('leave')).answer(true)
    }
    expect(closed.state).toBe('resolved')
    expect(released.state).toBe('resolved')
  })

  test('ends, although nothing is answered any more', async () => {
    const { engine, clock, locks } = await holding({ callTimeout: 1000 })
    void locks
      .mutex('b')
      .acquire()
      .catch(() => {})
    await engine.next('enter')
    const closed = watched(locks.close())
    await clock.advance(10_000)
    expect(closed.state).toBe('resolved')
    expect(engine.disposed).toBe(1)
  })

  test('ends, although a subscription is never answered', async () => {
    const { engine, clock, locks } = scripted({ callTimeout: 1000 })
    engine.subscribing = () => new Promise(() => {})
    watched(locks.mutex('a').acquire())
    await settled()
    const closed = watched(locks.close())
    await clock.advance(10_000)
    expect(closed.state).toBe('resolved')
    expect(engine.disposed).toBe(1)
  })

  test('refuses what its own signals make others ask for, and is not begun anew by them', async () => {
    const { engine, lease, locks } = await holding()
    const asked: Watched<Lease>[] = []
    lease.signal.addEventListener('abort', () => {
      asked.push(watched(locks.mutex('a').acquire()))
      watched(locks.close())
    })
    const closed = watched(locks.close())
    await (await engine.next('leave')).answer(true)
    await settled()
    expect(asked.map(({ error }) => error)).toMatchObject([{ message: 'scripted: the locks were closed' }])
    expect(closed.state).toBe('resolved')
    expect(engine.log.slice(1)).toEqual(['enter a', 'leave a', 'unsubscribe', 'dispose'])
  })

  test('takes no longer than one call, however many leaves are to be repeated', async () => {
    const { engine, clock, locks } = scripted({ callTimeout: 1000 })
    const leases: Lease[] = []
    for (const key of ['a', 'b', 'c', 'd', 'e']) {
      const asked = watched(locks.mutex(key).acquire())
      await (await engine.next('enter')).answer(held(1n))
      leases.push(asked.value)
    }
    // Leaves that are never answered, at different times: at any time, one of them or of their repeats is on its way.
    const released: Watched<boolean>[] = []
    for (const lease of leases) {
      released.push(watched(lease.release()))
      await clock.advance(400)
    }
    const closed = watched(locks.close())
    await clock.advance(1000)
    expect(closed.state).toBe('resolved')
    expect(released.map(({ value }) => value)).toEqual([false, false, false, false, false])
    const { timers, alive } = clock
    expect({ timers, alive, disposed: engine.disposed }).toEqual({ timers: 0, alive: 0, disposed: 1 })
  })

  test('takes no longer than one call, though the engine is never closed', async () => {
    const { engine, clock, locks } = await holding({ callTimeout: 1000 })
    engine.disposing = () => new Promise(() => {})
    const closed = watched(locks.close())
    await (await engine.next('leave')).answer(true)
    await clock.advance(999)
    expect(closed.state).toBe('pending')
    await clock.advance(1)
    expect(closed.state).toBe('resolved')
    expect(clock.alive).toBe(0)
  })

  test('rejects if the engine cannot be closed', async () => {
    const { engine, locks } = scripted()
    engine.disposing = () => Promise.reject(new Error('stuck'))
    await expect(locks.close()).rejects.toThrow('stuck')
  })

  test('tells a release that waits for an enter which is never answered', async () => {
    const { engine, clock, locks } = scripted({ callTimeout: 1000 })
    const asked = watched(locks.mutex('a').acquire())
    const first = await engine.next('enter')
    await clock.advance(2500)
    await engine.next('enter')
    await first.answer(held(1n))
    const released = watched(asked.value.release())
    const closed = watched(locks.close())
    await clock.advance(1000)
    expect([closed.state, released.value]).toEqual(['resolved', false])
  })

  test('keeps the process alive until it is done', async () => {
    const { engine, clock, locks } = await holding()
    let dispose = (): void => {}
    engine.disposing = () =>
      new Promise((resolve) => {
        dispose = resolve
      })
    const closed = watched(locks.close())
    await (await engine.next('leave')).answer(true)
    await settled()
    expect(closed.state).toBe('pending')
    expect(clock.alive).toBeGreaterThan(0)
    dispose()
    await settled()
    expect([closed.state, clock.alive]).toEqual(['resolved', 0])
  })

  test('twice is once: both wait until it is done', async () => {
    const { engine, locks } = await holding()
    const first = watched(locks.close())
    const second = watched(locks.close())
    await settled()
    expect([first.state, second.state]).toEqual(['pending', 'pending'])
    await (await engine.next('leave')).answer(true)
    await settled()
    expect([first.state, second.state]).toEqual(['resolved', 'resolved'])
    expect(engine.disposed).toBe(1)
  })

  test('refuses callers that ask afterwards', async () => {
    const { engine, locks } = scripted()
    await locks.close()
    await expect(locks.mutex('a').acquire()).rejects.toMatchObject({ message: 'scripted: the locks were closed' })
    await expect(locks.mutex('a').tryAcquire()).rejects.toBeInstanceOf(EngineError)
    expect(engine.log).toEqual(['dispose'])
  })

  test('is the last call: a lease that is released afterwards asks the closed engine for nothing', async () => {
    const { engine, clock, lease, locks } = await holding()
    const closed = locks.close()
    await (await engine.next('leave')).answer(true)
    await closed
    const released = watched(lease.release())
    await clock.advance(TTL)
    expect(released.value).toBe(false)
    expect(engine.log.at(-1)).toBe('dispose')
    expect(clock.timers).toBe(0)
  })

  test('is the last call: an enter that is answered afterwards asks the closed engine for nothing', async () => {
    const { engine, clock, locks } = scripted({ callTimeout: 1000 })
    watched(locks.mutex('a').acquire())
    const enter = await engine.next('enter')
    const closed = watched(locks.close())
    await clock.advance(5000)
    expect(closed.state).toBe('resolved')
    await enter.answer(held(1n))
    await clock.advance(TTL)
    expect(engine.log.at(-1)).toBe('dispose')
    expect(clock.timers).toBe(0)
  })

  test('leaves no timer and nothing that keeps the process alive, also with calls on their way', async () => {
    const { engine, clock, locks } = await holding()
    void locks
      .mutex('b')
      .acquire()
      .catch(() => {})
    await (await engine.next('enter')).answer(waiting(1))
    await clock.advance(BEAT)
    // This renewal is never answered.
    await engine.next('renew')
    const closed = watched(locks.close())
    await (await engine.next('leave')).answer(true, true)
    await settled()
    expect(closed.state, 'a renewal is not waited for').toBe('resolved')
    expect({ timers: clock.timers, alive: clock.alive }).toEqual({ timers: 0, alive: 0 })
  })
})

describe('staying alive', () => {
  test('a waiter keeps the process alive; a holder does not', async () => {
    const { engine, clock, locks } = scripted()
    const asked = watched(locks.mutex('a').acquire())
    const enter = await engine.next('enter')
    expect(clock.alive, 'on its way').toBe(1)
    await enter.answer(waiting(1))
    expect(clock.alive, 'waiting').toBe(1)
    await engine.tell({ key: 'a', id: enter.ids[0] as string, standing: held(1n) })
    expect(asked.value.held).toBe(true)
    expect(clock.alive, 'holding').toBe(0)
  })

  test('nothing is left after many cycles of acquire, cancel and release', async () => {
    const { clock, locks } = inMemory()
    for (let cycle = 0; cycle < 300; cycle += 1) {
      const lease = await locks.mutex('a').acquire()
      const controller = new AbortController()
      const waiter = watched(locks.mutex('a').acquire({ signal: controller.signal, wait: '1h' }))
      await settled()
      controller.abort()
      await lease.release()
      expect(waiter.state).toBe('rejected')
    }
    await settled()
    expect(clock.alive).toBe(0)
    expect(
      clock.timers,
      'the timers of the heartbeat and of the batches, which serve the callers to come',
    ).toBeLessThan(6)
    await locks.close()
    expect(clock.timers).toBe(0)
  })
})
