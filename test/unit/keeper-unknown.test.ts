/** Unknown outcomes: what the core does about a call that may or may not have been applied. */
import { describe, expect, test } from 'vitest'
import { EngineError } from '../../src/core/errors.ts'
import { busy, gone, held, unknownOutcome, unreachable, waiting } from './scripted-engine.ts'
import { BEAT, MARGIN, scripted, TTL, watched } from './world.ts'

describe('while an enter is unanswered', () => {
  test('no leave of it is sent; it is sent once the enter is answered', async () => {
    for (const answer of [held(1n), waiting(2)]) {
      const { engine, locks } = scripted()
      const controller = new AbortController()
      const asked = watched(locks.mutex('a').acquire({ signal: controller.signal }))
      const enter = await engine.next('enter')
      controller.abort(new Error('enough'))
      expect(await engine.unseen()).toEqual([])
      expect(asked.error, 'the caller does not wait for it').toEqual(new Error('enough'))
      await enter.answer(answer)
      expect((await engine.next('leave')).ids).toEqual(enter.ids)
    }
  })

  test('no leave is needed when the answer is that nothing of it is there', async () => {
    const { engine, locks } = scripted()
    const controller = new AbortController()
    watched(locks.mutex('a').tryAcquire({ signal: controller.signal }))
    const enter = await engine.next('enter')
    controller.abort()
    await enter.answer(busy())
    expect(await engine.unseen()).toEqual([])
  })

  test('no renewal of it is sent, however long it takes', async () => {
    const { engine, clock, locks } = scripted({ callTimeout: TTL * 2 })
    const asked = watched(locks.mutex('a').acquire())
    const enter = await engine.next('enter')
    await engine.tell({ key: 'a', id: enter.ids[0] as string })
    await engine.tell({ gap: true })
    await clock.advance(TTL - 1)
    expect(engine.log).toEqual(['subscribe', 'enter a'])
    expect(asked.state).toBe('pending')
  })

  test('no leave is sent either when an earlier attempt was answered late', async () => {
    const { engine, clock, locks } = scripted({ callTimeout: 1000 })
    const asked = watched(locks.mutex('a').acquire())
    const first = await engine.next('enter')
    await clock.advance(2500)
    const second = await engine.next('enter')
    await first.answer(held(1n))
    void asked.value.release()
    expect(await engine.unseen(), 'the second enter would arrive after it').toEqual([])
    await second.answer(held(1n))
    expect((await engine.next('leave')).ids).toEqual(first.ids)
  })

  test('no leave is sent for an earlier attempt that is answered, or fails, after both were given up', async () => {
    for (const late of [waiting(1), { state: 'failed', error: unknownOutcome() } as const]) {
      const { engine, clock, locks } = scripted({ callTimeout: 1000 })
      const controller = new AbortController()
      watched(locks.mutex('a').acquire({ signal: controller.signal }))
      const first = await engine.next('enter')
      await clock.advance(2500)
      const second = await engine.next('enter')
      controller.abort()
      await first.answer(late)
      expect(await engine.unseen(), 'the second enter would arrive after it').toEqual([])
      await second.answer(waiting(1))
      expect((await engine.next('leave')).ids).toEqual(second.ids)
    }
  })

  test('no renewal is sent either when an earlier attempt was answered late', async () => {
    const { engine, clock, locks } = scripted({ callTimeout: 9000 })
    void locks.mutex('a').acquire()
    const first = await engine.next('enter')
    await clock.advance(16_000)
    await engine.next('enter')
    // Less than half is left of what this promises.
    await first.answer(held(1n))
    expect(await engine.unseen()).toEqual([])
  })
})

describe('an enter that is not answered in time', () => {
  test('is asked again with the same id, and the late answer to the first still counts', async () => {
    const { engine, clock, locks } = scripted({ callTimeout: 1000 })
    const asked = watched(locks.mutex('a').acquire())
    const first = await engine.next('enter')
    expect(first.signal?.aborted).toBe(false)
    await clock.advance(2500)
    expect(first.signal?.aborted, 'the engine is told to drop what it has not sent').toBe(true)
    expect((await engine.next('enter')).ids).toEqual(first.ids)
    await first.answer(held(1n))
    expect(asked.value.remainingMs).toBe(TTL - MARGIN - 2500)
  })

  test('and whose entry expires in line is left, too: the attempt may still arrive', async () => {
    const { engine, clock, locks } = scripted({ callTimeout: 1000 })
    watched(locks.mutex('a').acquire())
    const first = await engine.next('enter')
    await clock.advance(2500)
    await (await engine.next('enter')).answer(waiting(1))
    await clock.advance(BEAT)
    await (await engine.next('renew')).answer(gone('expired'))
    expect((await engine.next('leave')).ids).toEqual(first.ids)
    expect((await engine.next('enter')).ids).not.toEqual(first.ids)
  })

  test('and then given up is left every beat until one ttl after the last attempt, whatever the leave answers', async () => {
    const { engine, clock, locks } = scripted({ callTimeout: 1000 })
    const tried = watched(locks.mutex('a').tryAcquire())
    await engine.next('enter')
    await clock.advance(1000)
    expect(tried.error).toMatchObject({ code: 'ENGINE', outcome: 'unknown' })
    const leftAt: number[] = []
    while (clock.now() < TTL * 3) {
      for (const call of await engine.unseen()) {
        expect(call).toBe('leave a')
        leftAt.push(clock.now())
        await (await engine.next('leave')).answer(leftAt.length === 2)
      }
      await clock.advance(1000)
    }
    expect(leftAt.slice(0, 3)).toEqual([1000, 1000 + BEAT, 1000 + 2 * BEAT])
    expect(leftAt.at(-1), 'an enter that arrives last of all is swept too').toBe(TTL)
  })

  test('and then given up while it is on its way is left when its time is out', async () => {
    const { engine, clock, locks } = scripted({ callTimeout: 1000 })
    const controller = new AbortController()
    watched(locks.mutex('a').acquire({ signal: controller.signal }))
    await engine.next('enter')
    controller.abort()
    expect(await engine.unseen()).toEqual([])
    await clock.advance(1000)
    await (await engine.next('leave')).answer(false)
    await clock.advance(BEAT)
    await engine.next('leave')
  })

  test('and arrives after all is left again as soon as it is heard of', async () => {
    const { engine, clock, locks } = scripted({ callTimeout: 1000 })
    watched(locks.mutex('a').tryAcquire())
    const enter = await engine.next('enter')
    await clock.advance(1000)
    await (await engine.next('leave')).answer(false)
    await engine.tell({ key: 'a', id: enter.ids[0] as string, standing: held(1n) })
    await clock.advance(0)
    await engine.next('leave')
  })

  test('and is answered after it was given up is left again', async () => {
    const { engine, clock, locks } = scripted({ callTimeout: 1000 })
    watched(locks.mutex('a').tryAcquire())
    const enter = await engine.next('enter')
    await clock.advance(1000)
    await (await engine.next('leave')).answer(false)
    await enter.answer(held(1n))
    await engine.next('leave')
  })

  test('of which nothing can have been applied is not left', async () => {
    const { engine, locks } = scripted()
    const tried = watched(locks.mutex('a').tryAcquire())
    await (await engine.next('enter')).fail(unreachable())
    expect(tried.error).toMatchObject({ outcome: 'not-applied' })
    expect(await engine.unseen()).toEqual([])
  })

  test('and then held and released is left again, in case the first attempt arrives last', async () => {
    const { engine, clock, locks } = scripted({ callTimeout: 1000 })
    const asked = watched(locks.mutex('a').acquire())
    await engine.next('enter')
    await clock.advance(2500)
    await (await engine.next('enter')).answer(held(1n))
    const released = watched(asked.value.release())
    await (await engine.next('leave')).answer(true)
    expect(released.value).toBe(true)
    await clock.advance(BEAT)
    await engine.next('leave')
  })
})

describe('a leave that fails', () => {
  test('is repeated until the entry has surely expired by itself', async () => {
    const { engine, clock, locks } = scripted()
    const asked = watched(locks.mutex('a').acquire())
    await (await engine.next('enter')).answer(held(1n))
    const released = watched(asked.value.release())
    await (await engine.next('leave')).fail(unknownOutcome())
    expect(released.value, 'the caller is not kept waiting').toBe(false)
    for (let second = 0; second < 2 * TTL; second += 1000) {
      await clock.advance(1000)
      if ((await engine.unseen()).length > 0) await (await engine.next('leave')).fail(unknownOutcome())
    }
    const attempts = engine.log.filter((call) => call === 'leave a').length
    expect(attempts).toBeGreaterThan(20)
    await clock.advance(TTL)
    expect(engine.log.filter((call) => call === 'leave a').length, 'and no longer').toBe(attempts)
  })

  test('is repeated until it is answered', async () => {
    const { engine, clock, locks } = scripted()
    const asked = watched(locks.mutex('a').acquire())
    await (await engine.next('enter')).answer(held(1n))
    void asked.value.release()
    await (await engine.next('leave')).fail(unreachable())
    await clock.advance(1000)
    await (await engine.next('leave')).answer(false)
    await clock.advance(TTL)
    expect(await engine.unseen()).toEqual([])
  })
})

describe('a renewal of unknown outcome', () => {
  test('neither extends nor ends the lease, and is tried again until the old deadline', async () => {
    const { engine, clock, locks } = scripted()
    const asked = watched(locks.mutex('a').acquire())
    await (await engine.next('enter')).answer(held(1n))
    await clock.advance(BEAT)
    await (await engine.next('renew')).fail(unknownOutcome())
    expect(asked.value.remainingMs).toBe(TTL - MARGIN - BEAT)
    await clock.advance(1000)
    await (await engine.next('renew')).answer(held(1n))
    expect(asked.value.remainingMs).toBe(TTL - MARGIN)
  })

  test('is tried again in time for each ttl, also when leases of different ttls were renewed together', async () => {
    const { engine, clock, locks } = scripted()
    const brief = watched(locks.mutex('brief', { ttl: 3000 }).acquire())
    void locks.mutex('long', { ttl: 3000 * 2 }).acquire()
    await (await engine.next('enter')).answer(held(1n, 3000), held(2n, 6000))
    await clock.advance(1000)
    const together = await engine.next('renew')
    expect(together.keys).toEqual(['brief', 'long'])
    // This one is lost on the way. There is time to try once more.
    await clock.advance(1800)
    const again = await engine.next('renew')
    await again.answer(...again.ids.map((_, index) => held(BigInt(index + 1), 3000)))
    expect(brief.value.held).toBe(true)
  })
})

test('a failure that will not pass is not tried again', async () => {
  const { engine, clock, locks } = scripted()
  const asked = watched(locks.mutex('a').acquire())
  const error = new EngineError('scripted', 'wrong password', { outcome: 'not-applied', transient: false })
  await (await engine.next('enter')).fail(error)
  expect(asked.error).toBe(error)
  await clock.advance(TTL)
  expect(await engine.unseen()).toEqual([])
})
