/** Waiting: patience, cancelling, and what becomes of a grant that comes too late. */
import { describe, expect, test } from 'vitest'
import { AcquireTimeoutError, EngineError, LineFullError } from '../../src/core/errors.ts'
import { busy, gone, held, lineEntry, unreachable, waiting } from './scripted-engine.ts'
import { BEAT, inMemory, scripted, settled, TTL, watched } from './world.ts'

describe('a limited wait', () => {
  test('that runs out is an AcquireTimeoutError: how long, how many were ahead, and who held it', async () => {
    const { engine, clock, locks } = scripted()
    const holders = [lineEntry({ id: 'x', holder: 'api-7', heldMs: 7000 })]
    engine.inspecting = async (key) => ({ key, entries: [...holders, lineEntry({ id: 'y', state: 'waiting' })] })
    const asked = watched(locks.mutex('order:42').acquire({ wait: '5s' }))
    await (await engine.next('enter')).answer(waiting(2))
    await clock.advance(4999)
    expect(asked.state).toBe('pending')
    await clock.advance(1)
    expect(asked.error).toBeInstanceOf(AcquireTimeoutError)
    expect(asked.error).toMatchObject({
      key: 'order:42',
      waitedMs: 5000,
      ahead: 2,
      holders,
      message: "did not get 'order:42' within 5s, 2 ahead in line; held by api-7 for 7s",
    })
    expect((await engine.next('leave')).keys, 'nothing of it remains in the line').toEqual(['order:42'])
  })

  test('does not wait long for the names in the message, and does without them', async () => {
    const naming = [() => new Promise<never>(() => {}), () => Promise.reject(new Error('down')), () => fail('thrown')]
    for (const inspecting of naming) {
      const { engine, clock, locks } = scripted()
      engine.inspecting = inspecting
      const asked = watched(locks.mutex('a').acquire({ wait: '1s' }))
      await (await engine.next('enter')).answer(waiting(1))
      await clock.advance(1000 + 250)
      expect(asked.error).toMatchObject({ code: 'ACQUIRE_TIMEOUT', waitedMs: 1000, ahead: 1, holders: [] })
    }
  })

  test('is not shortened or lengthened by calls that are not answered', async () => {
    const { clock, locks } = scripted()
    const asked = watched(locks.mutex('a').acquire({ wait: '1s' }))
    await clock.advance(1000)
    expect(asked.error).toMatchObject({
      message: "scripted: did not answer during the wait of 1s for 'a'",
      outcome: 'unknown',
      transient: true,
    })
  })

  test('in which the engine was never reached is an EngineError, not contention', async () => {
    const { engine, clock, locks } = scripted()
    const asked = watched(locks.mutex('a').acquire({ wait: '900ms' }))
    const cause = unreachable()
    await (await engine.next('enter')).fail(cause)
    await clock.advance(900)
    expect(asked.error).toBeInstanceOf(EngineError)
    expect(asked.error).toMatchObject({
      message: "scripted: did not answer during the wait of 900ms for 'a': cannot be reached",
      outcome: 'not-applied',
      transient: true,
      cause,
    })
  })

  test('that runs out during an outage, in line, has the outage as its cause', async () => {
    const { engine, clock, locks } = scripted()
    const asked = watched(locks.mutex('a').acquire({ wait: BEAT + 100 }))
    await (await engine.next('enter')).answer(waiting(1))
    await clock.advance(BEAT)
    const cause = unreachable()
    await (await engine.next('renew')).fail(cause)
    await clock.advance(100)
    expect(asked.error).toBeInstanceOf(AcquireTimeoutError)
    expect(asked.error).toMatchObject({ ahead: 1, cause })
  })

  test('that runs out after an outage has no cause', async () => {
    const { engine, clock, locks } = scripted()
    const asked = watched(locks.mutex('a').acquire({ wait: '5s' }))
    await (await engine.next('enter')).fail(unreachable())
    await clock.advance(1000)
    await (await engine.next('enter')).answer(waiting(1))
    await clock.advance(4000)
    expect(asked.error).toBeInstanceOf(AcquireTimeoutError)
    expect(asked.error).not.toHaveProperty('cause')
  })

  test('is absolute: entering again at the back does not begin it anew', async () => {
    const { engine, clock, locks } = scripted()
    const asked = watched(locks.mutex('a').acquire({ wait: TTL }))
    await (await engine.next('enter')).answer(waiting(1))
    await clock.advance(BEAT)
    await (await engine.next('renew')).answer(gone('expired'))
    await (await engine.next('enter')).answer(waiting(5))
    await clock.advance(TTL - BEAT - 1)
    expect(asked.state).toBe('pending')
    await clock.advance(1)
    expect(asked.error).toMatchObject({ code: 'ACQUIRE_TIMEOUT', waitedMs: TTL, ahead: 5 })
  })

  test('of 0 is one try, and a time-out when it is busy', async () => {
    const { engine, locks } = scripted()
    const asked = watched(locks.mutex('a').acquire({ wait: 0 }))
    const enter = await engine.next('enter')
    expect(enter.items[0]).toMatchObject({ wait: false })
    await enter.answer(busy(1))
    await settled()
    expect(asked.error).toMatchObject({ code: 'ACQUIRE_TIMEOUT', waitedMs: 0 })
    expect(await engine.unseen()).toEqual([])
  })

  test('that is not given never ends', async () => {
    const { clock, locks } = inMemory()
    await locks.mutex('a').acquire()
    const asked = watched(locks.mutex('a').acquire())
    await clock.advance('24h')
    expect(asked.state).toBe('pending')
  })

  test('that ends in the moment of the grant takes it', async () => {
    const { engine, clock, locks } = scripted()
    let runOut = (): void => {}
    const { timer } = clock
    clock.timer = (ms, fire) => {
      if (ms === 1234) runOut = fire
      return timer(ms, fire)
    }
    const asked = watched(locks.mutex('a').acquire({ wait: 1234 }))
    const enter = await engine.next('enter')
    await enter.answer(waiting(1))
    // The grant is heard, and in the same turn, before the acquire could be resolved, the wait runs out.
    const told = engine.tell({ key: 'a', id: enter.ids[0] as string, standing: held(1n) })
    runOut()
    await told
    expect(asked.value.held).toBe(true)
    expect(await engine.unseen()).toEqual([])
  })
})

describe('one try', () => {
  test('holds, or is undefined and leaves no trace', async () => {
    const { locks } = inMemory()
    const lease = await locks.mutex('a').tryAcquire()
    expect(lease?.held).toBe(true)
    expect(await locks.mutex('a').tryAcquire()).toBeUndefined()
    expect((await locks.inspect('a')).entries).toHaveLength(1)
  })

  test('takes no part of the key when the line is full', async () => {
    const { engine, locks } = scripted()
    const asked = watched(locks.mutex('a').acquire())
    const error = new LineFullError('a', 10)
    await (await engine.next('enter')).answer({ state: 'failed', error })
    expect(asked.error).toBe(error)
    expect(await engine.unseen()).toEqual([])
  })
})

describe('cancelling', () => {
  const reason = { any: 'reason of the caller' }

  test('before anything was asked: nothing is sent', async () => {
    const { engine, locks } = scripted()
    await expect(locks.mutex('a').acquire({ signal: AbortSignal.abort(reason) })).rejects.toBe(reason)
    await expect(locks.mutex('a').tryAcquire({ signal: AbortSignal.abort(reason) })).rejects.toBe(reason)
    await expect(locks.mutex('a').using({ signal: AbortSignal.abort(reason) }, () => 1)).rejects.toBe(reason)
    expect(engine.log).toEqual([])
  })

  test('in the turn of the asking: nothing is sent', async () => {
    const { engine, locks } = scripted()
    const controller = new AbortController()
    const asked = watched(locks.mutex('a').acquire({ signal: controller.signal }))
    controller.abort(reason)
    await settled()
    expect(asked.error).toBe(reason)
    expect(engine.log).toEqual([])
  })

  test('while the enter is on its way: rejected at once, left when it is answered', async () => {
    const { engine, locks } = scripted()
    const controller = new AbortController()
    const asked = watched(locks.mutex('a').acquire({ signal: controller.signal }))
    const enter = await engine.next('enter')
    controller.abort(reason)
    await settled()
    expect(asked.error).toBe(reason)
    await enter.answer(held(1n))
    await engine.next('leave')
  })

  test('while waiting: rejected at once, and the place in line is given up at once', async () => {
    const { engine, locks } = scripted()
    const controller = new AbortController()
    const asked = watched(locks.mutex('a').acquire({ signal: controller.signal }))
    const enter = await engine.next('enter')
    await enter.answer(waiting(1))
    controller.abort(reason)
    expect((await engine.next('leave')).ids).toEqual(enter.ids)
    expect(asked.error).toBe(reason)
  })

  test('in the very turn of the grant: given back', async () => {
    const { engine, locks } = scripted()
    const controller = new AbortController()
    const asked = watched(locks.mutex('a').acquire({ signal: controller.signal }))
    const enter = await engine.next('enter')
    await enter.answer(waiting(1))
    const told = engine.tell({ key: 'a', id: enter.ids[0] as string, standing: held(1n) })
    controller.abort(reason)
    await told
    expect(asked.error).toBe(reason)
    expect((await engine.next('leave')).ids).toEqual(enter.ids)
  })

  test('by a signal that many wait under, each of them leaves', async () => {
    const { engine, locks } = scripted()
    const controller = new AbortController()
    const warnings: Error[] = []
    const listener = (warning: Error): number => warnings.push(warning)
    process.on('warning', listener)
    const asked = Array.from({ length: 20 }, (_, index) =>
      watched(locks.mutex(`k${index}`).acquire({ signal: controller.signal })),
    )
    await (await engine.next('enter')).answer(...asked.map(() => waiting(1)))
    controller.abort(reason)
    expect((await engine.next('leave')).keys).toHaveLength(20)
    for (const each of asked) expect(each.error).toBe(reason)
    process.off('warning', listener)
    expect(warnings).toEqual([])
  })

  test('after the grant changes nothing: the lease is held, and its owner releases it', async () => {
    const { clock, locks } = inMemory()
    const controller = new AbortController()
    const lease = await locks.mutex('a').acquire({ signal: controller.signal })
    controller.abort()
    await clock.advance(TTL * 2)
    expect(lease.held).toBe(true)
    expect(lease.signal.aborted).toBe(false)
  })

  test('by the loss of another lease, noticed at the latest when it is looked at', async () => {
    const { clock, locks } = inMemory()
    await locks.mutex('b').acquire()
    const outer = await locks.mutex('a').acquire()
    clock.stall(TTL)
    await expect(locks.mutex('b').acquire({ signal: outer.signal })).rejects.toMatchObject({
      code: 'LEASE_LOST',
      key: 'a',
    })
  })

  test('leaves nothing behind on the signal', async () => {
    const { locks } = inMemory()
    const controller = new AbortController()
    const { signal } = controller
    let listening = 0
    const [add, remove] = [signal.addEventListener.bind(signal), signal.removeEventListener.bind(signal)]
    signal.addEventListener = (...args: Parameters<typeof add>) => {
      listening += 1
      add(...args)
    }
    signal.removeEventListener = (...args: Parameters<typeof remove>) => {
      listening -= 1
      remove(...args)
    }
    for (let cycle = 0; cycle < 10; cycle += 1) await locks.mutex('a').using({ signal, wait: '1s' }, () => {})
    expect(listening).toBe(0)
  })
})

function fail(message: string): never {
  throw new Error(message)
}
