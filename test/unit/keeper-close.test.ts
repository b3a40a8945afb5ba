/** The end: release, close, and what is left behind, which is nothing. */
import { describe, expect, test } from 'vitest'
import { EngineError } from '../../src/core/errors.ts'
import type { Lease } from '../../src/core/lease.ts'
import { published } from './published.ts'
import { held, unreachable, waiting } from './scripted-engine.ts'
import { BEAT, inMemory, type ScriptedWorld, scripted, settled, TTL, type Watched, watched } from './world.ts'

async function holding(options = {}): Promise<ScriptedWorld & { lease: Lease; id: string }> {
  const world = scripted(options)
  const asked: Watched<Lease> = watched(world.locks.mutex('a').acquire())
  const enter = await world.engine.next('enter')
  await enter.answer(held(1n))
  return { ...world, lease: asked.value, id: enter.ids[0] as string }
}

describe('release', () => {
  test('twice is once, and both are told the same', async () => {
    const { engine, lease } = await holding()
    using events = published('release')
    const first = watched(lease.release())
    const second = watched(lease.release())
    await (await engine.next('leave')).answer(true)
    expect([first.value, second.value, await lease.release()]).toEqual([true, true, true])
    expect(engine.log.filter((call) => call === 'leave a')).toHaveLength(1)
    expect(events.names).toEqual(['release'])
  })

  test('never rejects, whatever the engine does', async () => {
    const { engine, lease } = await holding()
    const released = watched(lease.release())
    await (await engine.next('leave')).fail(new Error('boom'))
    expect(released.value).toBe(false)
  })

  test('that is not answered does not keep the caller longer than a call may take', async () => {
    const { clock, lease } = await holding({ callTimeout: 2000 })
    const released = watched(lease.release())
    await clock.advance(2000)
    expect(released.value).toBe(false)
  })

  test('is no loss: the signal stays silent', async () => {
    const { engine, clock, lease } = await holding()
    const { signal } = lease
    void lease.release()
    await (await engine.next('leave')).answer(true)
    await clock.advance(TTL * 2)
    expect(signal.aborted).toBe(false)
    expect(lease.held).toBe(false)
  })

  test('of a lost lease answers false, and still leaves: something of it may be in the line', async () => {
    const { engine, clock, lease } = await holding()
    clock.stall(TTL)
    const released = watched(lease.release())
    await (await engine.next('leave')).answer(true)
    expect(released.value).toBe(false)
  })

  test('stops renewals: none is sent after it, not even one that was asked for before', async () => {
    const { engine, clock, lease, id } = await holding()
    // A hint asks for a renewal, and in the same turn, before it goes out, the lease is released.
    const told = engine.tell({ key: 'a', id })
    void lease.release()
    await told
    await (await engine.next('leave')).answer(true)
    await clock.advance(TTL * 2)
    expect(engine.log.slice(2)).toEqual(['leave a'])
  })

  test('answers to renewals that were on their way change nothing', async () => {
    const { engine, clock, lease } = await holding()
    await clock.advance(BEAT)
    const renewal = await engine.next('renew')
    void lease.release()
    await (await engine.next('leave')).answer(true)
    await renewal.answer(held(1n))
    expect(lease.held).toBe(false)
    await clock.advance(TTL)
    expect(await engine.unseen()).toEqual([])
  })

  test('with `after` renews once more for that long, and no longer', async () => {
    const { engine, clock, lease } = await holding()
    const released = watched(lease.release({ after: '1m' }))
    const renewal = await engine.next('renew')
    expect(renewal.items).toEqual([{ key: 'a', id: renewal.ids[0], ttlMs: 60_000, outlives: true }])
    await renewal.answer(held(1n, 60_000))
    expect(released.value).toBe(true)
    expect(lease.held).toBe(false)
    await clock.advance('2m')
    expect(await engine.unseen()).toEqual([])
  })

  test('with `after` waits for an enter that is still on its way, and takes out what it brings when the time is over', async () => {
    const { engine, clock, locks } = scripted({ callTimeout: 1000 })
    const asked = watched(locks.mutex('a').acquire())
    const first = await engine.next('enter')
    await clock.advance(2500)
    const second = await engine.next('enter')
    await first.answer(held(1n))
    const released = watched(asked.value.release({ after: '1m' }))
    expect(await engine.unseen(), 'the second enter would renew it for a whole ttl').toEqual([])
    await second.answer(held(1n))
    await (await engine.next('renew')).answer(held(1n, 60_000))
    expect(released.value).toBe(true)
    await clock.advance('59s')
    expect(await engine.unseen()).toEqual([])
    await clock.advance('2s')
    expect((await engine.next('leave')).ids).toEqual(first.ids)
  })

  test('with `after` waits for no renewal but its own', async () => {
    const { engine, clock, locks } = scripted({ callTimeout: TTL })
    const other = watched(locks.mutex('stuck').acquire())
    await (await engine.next('enter')).answer(held(1n))
    expect(other.state).toBe('resolved')
    await clock.advance(TTL / 3)
    expect((await engine.next('renew')).keys).toEqual(['stuck'])
    const asked = watched(locks.mutex('a').acquire())
    await (await engine.next('enter')).answer(held(2n))
    void asked.value.release({ after: '1m' })
    expect((await engine.next('renew')).items).toMatchObject([{ key: 'a', outlives: true }])
  })

  test('with `after` never rejects either', async () => {
    const { engine, lease } = await holding()
    const released = watched(lease.release({ after: '1m' }))
    await (await engine.next('renew')).fail(unreachable())
    expect(released.value).toBe(false)
  })
})

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

  test('refuses whoever waits, and leaves for it', async () => {
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

  test('refuses whoever asks afterwards', async () => {
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

  test('leaves no timer and nobody who keeps the process alive, also with calls on their way', async () => {
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
  test('somebody who waits keeps the process alive; somebody who only holds does not', async () => {
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
    expect(clock.timers, 'the timers of the heartbeat and of the batches, which serve whoever comes next').toBeLessThan(
      6,
    )
    await locks.close()
    expect(clock.timers).toBe(0)
  })
})
