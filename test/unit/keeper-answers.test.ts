/**
 * The order of answers: standing moves from waiting to held to gone, and never back, whatever comes late, twice or out
 * of order.
 */
import { describe, expect, test } from 'vitest'
import { LeaseLostError } from '../../src/core/errors.ts'
import type { Lease } from '../../src/core/lease.ts'
import { gone, held, unknownOutcome, waiting } from './scripted-engine.ts'
import { BEAT, MARGIN, type ScriptedWorld, scripted, settled, TTL, type Watched, watched } from './world.ts'

/** A waiter in the line of `a`, which has been told so. */
async function inLine(options = {}): Promise<ScriptedWorld & { asked: Watched<Lease>; id: string }> {
  const world = scripted(options)
  const asked = watched(world.locks.mutex('a').acquire())
  const enter = await world.engine.next('enter')
  await enter.answer(waiting(1))
  return { ...world, asked, id: enter.ids[0] as string }
}

describe('waiting after held', () => {
  test("a 'waiting' that answers a request sent before the hold was known is ignored", async () => {
    const { engine, clock, asked, id } = await inLine()
    await clock.advance(BEAT)
    const poll = await engine.next('renew')
    await engine.tell({ key: 'a', id, standing: held(7n) })
    await poll.answer(waiting(0))
    expect(asked.value.held).toBe(true)
    expect(asked.value.token).toBe(7n)
  })

  test('after such an answer the lease is renewed at the usual time, without an alarm', async () => {
    const { engine, clock, asked, id } = await inLine()
    await clock.advance(BEAT)
    const poll = await engine.next('renew')
    await engine.tell({ key: 'a', id, standing: held(7n) })
    await poll.answer(waiting(0))
    // The hold counts from the enter at 0, so a third of it has gone already.
    await clock.advance(BEAT / 2)
    expect(await engine.unseen(), 'renewed in time').toEqual(['renew a'])
    expect(asked.value.held).toBe(true)
  })

  test("a 'waiting' that answers a request sent after the hold was known means that it is lost", async () => {
    const { engine, clock, asked, id } = await inLine()
    await engine.tell({ key: 'a', id, standing: held(7n) })
    await clock.advance(BEAT)
    await (await engine.next('renew')).answer(waiting(3))
    expect(asked.value.held).toBe(false)
    expect(asked.value.signal.reason).toMatchObject({ code: 'LEASE_LOST', why: 'expired', token: 7n })
  })
})

describe('held after held', () => {
  test('another token on a renewal is another stay in the line: the lease is lost', async () => {
    const { engine, clock, asked, id } = await inLine()
    await engine.tell({ key: 'a', id, standing: held(7n) })
    await clock.advance(BEAT)
    await (await engine.next('renew')).answer(held(9n))
    expect(asked.value.held).toBe(false)
    expect(asked.value.token, 'the token it worked under').toBe(7n)
  })

  test.for([{}, { after: '1s' }] as const)('that other stay leaves with the release, by %j', async (options) => {
    const { engine, clock, asked, id } = await inLine()
    await engine.tell({ key: 'a', id, standing: held(7n) })
    await clock.advance(BEAT)
    await (await engine.next('renew')).answer(held(9n))
    const released = asked.value.release(options)
    const leave = await engine.next('leave')
    expect(leave.ids).toEqual([id])
    await leave.answer(true)
    expect(await released, 'the lease had been lost').toBe(false)
  })

  test('the same token on a renewal is a renewal', async () => {
    const { engine, clock, asked, id } = await inLine()
    await engine.tell({ key: 'a', id, standing: held(7n) })
    await clock.advance(BEAT)
    await (await engine.next('renew')).answer(held(7n))
    expect(asked.value.remainingMs).toBe(TTL - MARGIN)
  })

  test('a renewal of a lease whose deadline has passed does not bring it back', async () => {
    const { engine, clock, asked, id } = await inLine()
    await engine.tell({ key: 'a', id, standing: held(7n) })
    await clock.advance(BEAT)
    const renewal = await engine.next('renew')
    // No timer runs in this time: the answer is the first thing that is looked at.
    clock.stall(TTL - BEAT - MARGIN)
    await renewal.answer(held(7n))
    expect(asked.value.held).toBe(false)
    expect(asked.value.signal.reason).toMatchObject({ why: 'deadline' })
  })
})

describe('gone', () => {
  test('a waiter that expired in line enters again, at the back, with a fresh id', async () => {
    const { engine, clock, asked, id } = await inLine()
    await clock.advance(BEAT)
    await (await engine.next('renew')).answer(gone('expired'))
    const again = await engine.next('enter')
    expect(again.ids).not.toEqual([id])
    await again.answer(held(9n))
    expect(asked.value.token).toBe(9n)
  })

  test('an entry that the engine does not remember counts as expired', async () => {
    const { engine, clock, asked } = await inLine()
    await clock.advance(BEAT)
    await (await engine.next('renew')).answer(gone('unknown'))
    await (await engine.next('enter')).answer(held(9n))
    expect(asked.value.token).toBe(9n)
  })

  test('an evicted waiter rejects and does not come back', async () => {
    const { engine, clock, asked } = await inLine()
    await clock.advance(BEAT)
    await (await engine.next('renew')).answer(gone('evicted'))
    expect(asked.error).toBeInstanceOf(LeaseLostError)
    expect(asked.error).toMatchObject({ why: 'evicted', key: 'a', token: null })
    // It may have been granted meanwhile: then it stands in the line until it leaves.
    await (await engine.next('leave')).answer(true)
    expect(await engine.unseen()).toEqual([])
  })

  test('a holder that was evicted or expired is told why', async () => {
    for (const why of ['evicted', 'expired'] as const) {
      const { engine, clock, asked, id } = await inLine()
      await engine.tell({ key: 'a', id, standing: held(7n) })
      await clock.advance(BEAT)
      await (await engine.next('renew')).answer(gone(why))
      expect(asked.value.signal.reason).toMatchObject({ code: 'LEASE_LOST', why })
    }
  })

  test('an evicted holder hears of it at once, and leaves when its work has ended, not before', async () => {
    for (const after of [0, '1m'] as const) {
      const { engine, asked, id } = await inLine()
      await engine.tell({ key: 'a', id, standing: held(7n) })
      await engine.tell({ key: 'a', id, standing: gone('evicted') })
      await (await engine.next('renew')).answer(gone('evicted'))
      expect(asked.value.signal.reason).toMatchObject({ why: 'evicted' })
      expect(await engine.unseen()).toEqual([])
      const released = watched(asked.value.release({ after }))
      await (await engine.next('leave')).answer(true)
      expect(released.value).toBe(false)
    }
  })

  test('a leave that answers false is not a loss', async () => {
    const { engine, asked, id } = await inLine()
    await engine.tell({ key: 'a', id, standing: held(7n) })
    const lease = asked.value
    const released = watched(lease.release())
    await (await engine.next('leave')).fail(unknownOutcome())
    expect(released.value).toBe(false)
    expect(lease.signal.aborted).toBe(false)
    expect(() => lease.assertHeld()).toThrowError(expect.objectContaining({ why: 'released' }))
  })
})

describe('an announcement that overtakes the answer to the enter', () => {
  test('counts, once the enter is answered', async () => {
    const { engine, locks } = scripted()
    const asked = watched(locks.mutex('a').acquire())
    const enter = await engine.next('enter')
    await engine.tell({ key: 'a', id: enter.ids[0] as string, standing: held(7n) })
    expect(asked.state, 'nothing tells yet from when to count').toBe('pending')
    await enter.answer(waiting(1))
    expect(asked.value.token).toBe(7n)
    expect(asked.value.remainingMs).toBe(TTL - MARGIN)
  })

  test("does not count against a 'waiting' that answers an enter sent after it", async () => {
    const { engine, clock, locks } = scripted({ callTimeout: 1000 })
    const asked = watched(locks.mutex('a').acquire())
    const first = await engine.next('enter')
    await engine.tell({ key: 'a', id: first.ids[0] as string, standing: held(7n) })
    await clock.advance(3000)
    // The stay that was announced has ended since (evicted, or forgotten by a restarted server), and this enter began
    // another one behind another entry.
    await (await engine.next('enter')).answer(waiting(1))
    expect(asked.state).toBe('pending')
  })

  test('does not count once it was followed by the news that it is over', async () => {
    const { engine, locks } = scripted()
    const asked = watched(locks.mutex('a').acquire())
    const enter = await engine.next('enter')
    const id = enter.ids[0] as string
    await engine.tell({ key: 'a', id, standing: held(7n) })
    await engine.tell({ key: 'a', id, standing: gone('evicted') })
    await enter.answer(waiting(1))
    expect(asked.state).toBe('pending')
  })

  test('is not lost when it is only a hint: the waiter looks as soon as the enter is answered', async () => {
    const { engine, locks } = scripted()
    const asked = watched(locks.mutex('a').acquire())
    const enter = await engine.next('enter')
    await engine.tell({ key: 'a', id: enter.ids[0] as string })
    await enter.answer(waiting(1))
    await (await engine.next('renew')).answer(held(7n))
    expect(asked.value.token).toBe(7n)
  })
})

describe('news for a waiter', () => {
  test('a hint makes it look now', async () => {
    const { engine, asked, id } = await inLine()
    await engine.tell({ key: 'a', id })
    await (await engine.next('renew')).answer(held(7n))
    expect(asked.value.held).toBe(true)
  })

  test('a hint that comes while a look is on its way makes it look once more', async () => {
    const { engine, clock, asked, id } = await inLine()
    await clock.advance(BEAT)
    const poll = await engine.next('renew')
    await engine.tell({ key: 'a', id })
    // The look passed through the engine before the hand-off, and the hint was sent after it.
    await poll.answer(waiting(0))
    await (await engine.next('renew')).answer(held(7n))
    expect(asked.value.held).toBe(true)
  })

  test('a gap makes all waiters look, and no holder', async () => {
    const { engine, locks } = scripted()
    const holder = watched(locks.mutex('h').acquire())
    await (await engine.next('enter')).answer(held(1n))
    for (const key of ['a', 'b']) {
      void locks.mutex(key).acquire()
      await (await engine.next('enter')).answer(waiting(1))
    }
    await engine.tell({ gap: true })
    expect((await engine.next('renew')).keys).toEqual(['a', 'b'])
    expect(holder.value.held).toBe(true)
  })

  test('a gap while an enter is on its way makes that waiter look as soon as it is in line', async () => {
    const { engine, locks } = scripted()
    const other = locks.mutex('b').tryAcquire()
    await (await engine.next('enter')).answer(held(1n))
    await other
    const asked = watched(locks.mutex('a').acquire())
    const enter = await engine.next('enter')
    await engine.tell({ gap: true })
    await enter.answer(waiting(1))
    await (await engine.next('renew')).answer(held(7n))
    expect(asked.value.held).toBe(true)
  })

  test('for an unknown entry is harmless', async () => {
    const { engine, asked } = await inLine()
    await engine.tell({ key: 'a', id: 'no such', standing: held(1n) })
    expect(asked.state).toBe('pending')
    expect(await engine.unseen()).toEqual([])
  })

  test('the subscription stands before the first enter is sent', async () => {
    const { engine, locks } = scripted()
    let ready = (): void => {}
    engine.subscribing = () => new Promise((resolve) => (ready = resolve))
    void locks.mutex('a').acquire()
    await settled()
    expect(engine.log).toEqual(['subscribe'])
    ready()
    await (await engine.next('enter')).answer(held(1n))
    void locks.mutex('b').acquire()
    await engine.next('enter')
    expect(engine.log).toEqual(['subscribe', 'enter a', 'enter b'])
  })
})
