/** The deadline: until when a holder may believe that it holds, and how it learns that it does not. */
import { describe, expect, test } from 'vitest'
import { EngineError } from '../../src/core/errors.ts'
import type { Lease } from '../../src/core/lease.ts'
import { gone, held, unreachable, waiting } from './scripted-engine.ts'
import { BEAT, MARGIN, scripted, TTL, watched } from './world.ts'

describe('the deadline counts from the send of the last answered request', () => {
  test('of the enter, however late its answer comes', async () => {
    const { engine, clock, locks } = scripted()
    const asked = watched(locks.mutex('a').acquire())
    const enter = await engine.next('enter')
    await clock.advance(4000)
    await enter.answer(held(1n))
    expect(asked.value.remainingMs).toBe(TTL - MARGIN - 4000)
  })

  test('of the renewal, however late its answer comes', async () => {
    const { engine, clock, locks } = scripted()
    const asked = watched(locks.mutex('a').acquire())
    await (await engine.next('enter')).answer(held(1n))
    await clock.advance(BEAT)
    const renewal = await engine.next('renew')
    await clock.advance(4000)
    await renewal.answer(held(1n))
    expect(asked.value.remainingMs).toBe(TTL - MARGIN - 4000)
  })

  test('of the waiter, when the grant is learned from news, and not from the arrival of the news', async () => {
    const { engine, clock, locks } = scripted()
    const asked = watched(locks.mutex('a').acquire())
    const enter = await engine.next('enter')
    await enter.answer(waiting(1))
    await clock.advance(BEAT)
    await (await engine.next('renew')).answer(waiting(0))
    await clock.advance(5000)
    await engine.tell({ key: 'a', id: enter.ids[0] as string, standing: held(1n, 25_000) })
    expect(asked.value.remainingMs).toBe(TTL - MARGIN - 5000)
  })

  test('of the waiter, by no more than what the engine gave it to live, where that is less than its ttl', async () => {
    const { engine, clock, locks } = scripted()
    const asked = watched(locks.mutex('a').acquire())
    const enter = await engine.next('enter')
    await enter.answer({ state: 'waiting', ahead: 1, livesForMs: 20_000 })
    await clock.advance(1000)
    await engine.tell({ key: 'a', id: enter.ids[0] as string, standing: held(1n, 19_000) })
    expect(asked.value.remainingMs).toBe(20_000 - MARGIN - 1000)
  })

  test('a request that is not answered extends nothing', async () => {
    const { engine, clock, locks } = scripted()
    const asked = watched(locks.mutex('a').acquire())
    await (await engine.next('enter')).answer(held(1n))
    await clock.advance(BEAT)
    await engine.next('renew')
    expect(asked.value.remainingMs).toBe(TTL - MARGIN - BEAT)
  })

  test('an answer that comes after that of a later request does not take time away', async () => {
    const { engine, clock, locks } = scripted({ callTimeout: 1000 })
    const asked = watched(locks.mutex('a').acquire())
    await (await engine.next('enter')).answer(held(1n))
    await clock.advance(BEAT)
    const first = await engine.next('renew')
    await clock.advance(2000)
    await (await engine.next('renew')).answer(held(1n))
    const { remainingMs } = asked.value
    await first.answer(held(1n))
    expect(asked.value.remainingMs).toBe(remainingMs)
  })
})

describe('how long', () => {
  test('never longer than the ttl, whatever the engine says', async () => {
    const { engine, locks } = scripted()
    const asked = watched(locks.mutex('a').acquire())
    await (await engine.next('enter')).answer(held(1n, 10 * TTL))
    expect(asked.value.remainingMs).toBe(TTL - MARGIN)
  })

  test('no longer than the engine says', async () => {
    const { engine, locks } = scripted()
    const asked = watched(locks.mutex('a').acquire())
    await (await engine.next('enter')).answer(held(1n, 20_000))
    expect(asked.value.remainingMs).toBe(20_000 - MARGIN)
  })

  test('a margin of 1 % of the ttl and 2 ms is kept clear of it', async () => {
    for (const ttl of [1000, 30_000, 600_000]) {
      const { engine, clock, locks } = scripted({ ttl })
      const asked = watched(locks.mutex('a').acquire())
      await (await engine.next('enter')).answer(held(1n, ttl))
      clock.stall(ttl * 0.99 - 2.001)
      expect(asked.value.held).toBe(true)
      clock.stall(0.002)
      expect(asked.value.held).toBe(false)
    }
  })
})

describe('a grant with less than half the ttl left is renewed before it is said to be held', () => {
  test('when it is learned from news', async () => {
    const { engine, clock, locks } = scripted({ callTimeout: 60_000 })
    const asked = watched(locks.mutex('a').acquire())
    const enter = await engine.next('enter')
    const id = enter.ids[0] as string
    await enter.answer(waiting(1))
    clock.stall(TTL / 2)
    await engine.tell({ key: 'a', id, standing: held(1n, TTL / 2) })
    expect(asked.state).toBe('pending')
    await (await engine.next('renew')).answer(held(1n))
    expect(asked.value.remainingMs).toBe(TTL - MARGIN)
  })

  test('when it is learned from a slow answer', async () => {
    const { engine, clock, locks } = scripted({ callTimeout: 60_000 })
    const asked = watched(locks.mutex('a').acquire())
    const enter = await engine.next('enter')
    await clock.advance(TTL / 2)
    await enter.answer(held(1n))
    expect(asked.state).toBe('pending')
    await (await engine.next('renew')).answer(held(1n))
    expect(asked.value.remainingMs).toBe(TTL - MARGIN)
  })

  test('also when the news come twice', async () => {
    const { engine, clock, locks } = scripted()
    const asked = watched(locks.mutex('a').acquire())
    const enter = await engine.next('enter')
    const news = { key: 'a', id: enter.ids[0] as string, standing: held(1n, TTL / 2) }
    await enter.answer(waiting(1))
    clock.stall(TTL / 2)
    await engine.tell(news)
    await engine.tell(news)
    expect(asked.state).toBe('pending')
  })

  test('news that come twice to a waiter whose time is up do not end its wait', async () => {
    const { engine, clock, locks } = scripted()
    const asked = watched(locks.mutex('a').acquire())
    const enter = await engine.next('enter')
    const news = { key: 'a', id: enter.ids[0] as string, standing: held(1n, 10) }
    await enter.answer(waiting(1))
    clock.stall(TTL - 10)
    await engine.tell(news)
    await engine.tell(news)
    expect(asked.state).toBe('pending')
    await (await engine.next('renew')).answer(held(1n))
    expect(asked.value.held).toBe(true)
  })

  test('and while a question is on its way already, it is not asked twice in one batch', async () => {
    const { engine, clock, locks } = scripted()
    void locks.mutex('a').acquire()
    const enter = await engine.next('enter')
    const id = enter.ids[0] as string
    await enter.answer(waiting(1))
    clock.stall(TTL / 2)
    // A hint, and in the same turn the grant.
    const hint = engine.tell({ key: 'a', id })
    await engine.tell({ key: 'a', id, standing: held(1n, TTL / 2) })
    await hint
    expect(await engine.unseen()).toEqual(['renew a'])
  })

  test('if it turns out to have expired, it is asked for again', async () => {
    const { engine, clock, locks } = scripted()
    const asked = watched(locks.mutex('a').acquire())
    const enter = await engine.next('enter')
    await enter.answer(waiting(1))
    clock.stall(TTL * 2)
    await engine.tell({ key: 'a', id: enter.ids[0] as string, standing: held(1n, 10) })
    await (await engine.next('renew')).answer(gone('expired'))
    await (await engine.next('enter')).answer(held(5n))
    expect(asked.value.token).toBe(5n)
  })

  test('news of a grant that was not confirmed is not believed when it comes again: it was of an earlier stay', async () => {
    const { engine, clock, locks } = scripted({ callTimeout: 100_000 })
    const asked = watched(locks.mutex('a').acquire())
    const enter = await engine.next('enter')
    await enter.answer(waiting(1))
    const news = { key: 'a', id: enter.ids[0] as string, standing: held(1n, 10) }
    clock.stall(TTL * 2)
    await engine.tell(news)
    // A late duplicate of the enter has put the same id in line again.
    await (await engine.next('renew')).answer(waiting(1))
    await engine.tell(news)
    expect(asked.state).toBe('pending')
    await (await engine.next('renew')).answer(waiting(1))
    await engine.tell({ ...news, standing: held(7n, TTL) })
    await (await engine.next('renew')).answer(held(7n))
    expect(asked.value.token).toBe(7n)
  })

  test('news of a grant is not believed after a silence in which the waiter may have expired and come back: it may be of the stay before', async () => {
    const { engine, clock, locks } = scripted({ callTimeout: 100_000 })
    const asked = watched(locks.mutex('a').acquire())
    const enter = await engine.next('enter')
    await enter.answer(waiting(1))
    clock.stall(TTL + 1)
    await clock.advance(0)
    // A late duplicate of the enter has put the same id in line again.
    await (await engine.next('renew')).answer(waiting(1))
    await engine.tell({ key: 'a', id: enter.ids[0] as string, standing: held(1n, TTL) })
    expect(asked.state).toBe('pending')
    await (await engine.next('renew')).answer(held(7n))
    expect(asked.value.token).toBe(7n)
  })

  test('a lock whose time runs out while it is being acquired is never returned', async () => {
    const { engine, clock, locks } = scripted({ callTimeout: 100_000 })
    const asked = watched(locks.mutex('a').acquire())
    const enter = await engine.next('enter')
    clock.stall(TTL)
    await enter.answer(held(1n))
    const confirming = await engine.next('renew')
    clock.stall(TTL)
    await confirming.answer(held(1n))
    expect(asked.error).toBeInstanceOf(EngineError)
    expect((await engine.next('leave')).keys, 'and it is given back').toEqual(['a'])
  })
})

describe('truth without timers', () => {
  test('after a stall, a look is told the truth although no timer has fired', async () => {
    const looks = {
      held: (lease) => expect(lease.held).toBe(false),
      remainingMs: (lease) => expect(lease.remainingMs).toBe(0),
      assertHeld: (lease) =>
        expect(() => lease.assertHeld()).toThrowError(expect.objectContaining({ why: 'deadline' })),
      aborted: (lease) => expect(lease.signal.aborted).toBe(true),
      reason: (lease) => expect(lease.signal.reason).toMatchObject({ code: 'LEASE_LOST', why: 'deadline' }),
      throwIfAborted: (lease) =>
        expect(() => lease.signal.throwIfAborted()).toThrowError(expect.objectContaining({ why: 'deadline' })),
    } satisfies Record<string, (lease: Lease) => void>
    for (const look of Object.values(looks)) {
      const { engine, clock, locks } = scripted()
      const asked = watched(locks.mutex('a').acquire())
      await (await engine.next('enter')).answer(held(1n))
      void asked.value.signal
      clock.stall(TTL - MARGIN)
      look(asked.value)
    }
  })

  test('the first look also aborts what was derived from the signal', async () => {
    const { engine, clock, locks } = scripted()
    const asked = watched(locks.mutex('a').acquire())
    await (await engine.next('enter')).answer(held(1n))
    const derived = AbortSignal.any([asked.value.signal, new AbortController().signal])
    clock.stall(TTL)
    expect(asked.value.held).toBe(false)
    expect(derived.aborted).toBe(true)
    expect(derived.reason).toBe(asked.value.signal.reason)
  })

  test('without a look, the timer at the deadline aborts, not later', async () => {
    const { engine, clock, locks } = scripted({ callTimeout: 60_000 })
    const asked = watched(locks.mutex('a').acquire())
    await (await engine.next('enter')).answer(held(1n))
    let abortedAt: number | undefined
    asked.value.signal.addEventListener('abort', () => {
      abortedAt = clock.now()
    })
    await clock.advance(TTL * 2)
    expect(abortedAt).toBe(TTL - MARGIN)
  })

  test('loss at the deadline comes also while every renewal fails', async () => {
    const { engine, clock, locks } = scripted()
    const asked = watched(locks.mutex('a').acquire())
    await (await engine.next('enter')).answer(held(1n))
    let abortedAt: number | undefined
    asked.value.signal.addEventListener('abort', () => {
      abortedAt = clock.now()
    })
    for (let second = 0; second < 31; second += 1) {
      await clock.advance(1000)
      for (const call of await engine.unseen())
        await (call === 'renew a' ? engine.next('renew').then((renew) => renew.fail(unreachable())) : undefined)
    }
    expect(abortedAt).toBe(TTL - MARGIN)
    expect(engine.log.filter((call) => call === 'renew a').length, 'it was tried again and again').toBeGreaterThan(5)
  })
})
