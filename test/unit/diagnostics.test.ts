/** What is published on `diagnostics_channel`, event by event. */

import { AsyncLocalStorage } from 'node:async_hooks'
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { describe, expect, test } from 'vitest'
import { channels, type Operation } from '../../src/core/diagnostics.ts'
import { once } from '../../src/recipes/once/index.ts'
import { published } from './published.ts'
import { busy, gone, held, type ScriptedEngine, unknownOutcome, unreachable, waiting } from './scripted-engine.ts'
import { BEAT, type CountingClock, inMemory, MARGIN, scripted, settled, TTL, watched } from './world.ts'

const everything = Object.keys(channels) as (keyof typeof channels)[]

describe('an acquire', () => {
  test('is request, grant and release, with one operation for all three', async () => {
    using events = published(...everything)
    const { clock, locks } = inMemory()
    const lease = await locks.semaphore('gpu', 4).acquire({ weight: 3 })
    await clock.advance(2000)
    await lease.release()
    expect(events.names).toEqual(['request', 'grant', 'release'])
    const operation: Operation = { engine: 'memory', key: 'gpu', weight: 3, limit: 4 }
    expect(events.of('request')).toEqual([{ operation }])
    expect(events.of('grant')).toEqual([{ operation, token: 1n, waitedMs: 0, queued: false }])
    expect(events.of('release')).toEqual([{ operation, heldMs: 2000 }])
    const same = [events.of('request')[0], events.of('grant')[0], events.of('release')[0]].map(
      (message) => message?.operation,
    )
    expect(new Set(same).size).toBe(1)
  })

  test('that had to stand in line says so, and how long it waited', async () => {
    const { clock, locks } = inMemory()
    const first = await locks.mutex('a').acquire()
    using events = published('grant')
    const second = watched(locks.mutex('a').acquire())
    await clock.advance(3000)
    await first.release()
    await settled()
    expect(second.state).toBe('resolved')
    expect(events.of('grant')).toMatchObject([{ token: 2n, waitedMs: 3000, queued: true }])
  })

  test('that is granted in the moment of a close is granted first, and lost then', async () => {
    using events = published('grant', 'loss')
    const { engine, locks } = scripted()
    const asked = watched(locks.mutex('a').acquire())
    const enter = await engine.next('enter')
    await enter.answer(waiting(1))
    void engine.tell({ key: 'a', id: enter.ids[0] as string, standing: held(5n) })
    void locks.close()
    await settled()
    expect(events.names).toEqual(['grant', 'loss'])
    expect(events.of('loss')).toMatchObject([{ token: 5n, why: 'closed' }])
    expect(asked.value.held).toBe(false)
  })

  test('that entered again at the back has stood in line, too', async () => {
    using events = published('grant', 'request')
    const { engine, clock, locks } = scripted()
    watched(locks.mutex('a').acquire())
    await (await engine.next('enter')).answer(waiting(1))
    await clock.advance(BEAT)
    await (await engine.next('renew')).answer(gone())
    await (await engine.next('enter')).answer(held(5n))
    expect(events.names).toEqual(['request', 'grant'])
    expect(events.of('grant')).toMatchObject([{ token: 5n, waitedMs: BEAT, queued: true }])
  })

  test('is asked in the async context of the caller', async () => {
    const request = new AsyncLocalStorage<string>()
    const seen: (string | undefined)[] = []
    const listener = (): number => seen.push(request.getStore())
    subscribe('holdfast:request', listener)
    const { locks } = inMemory()
    await request.run('request 7', () => locks.mutex('a').acquire())
    unsubscribe('holdfast:request', listener)
    expect(seen).toEqual(['request 7'])
  })
})

describe('a refusal', () => {
  test('says why: busy, timeout, cancelled or error', async () => {
    using events = published('refusal')
    const { engine, clock, locks } = scripted()
    const [a, b, c, d] = ['a', 'b', 'c', 'd'].map((key) => locks.mutex(key))
    watched(a?.tryAcquire() as Promise<unknown>)
    await (await engine.next('enter')).answer(busy(1))
    watched(b?.acquire({ wait: 1000 }) as Promise<unknown>)
    await (await engine.next('enter')).answer(waiting(1))
    await clock.advance(1000)
    const controller = new AbortController()
    watched(c?.acquire({ signal: controller.signal }) as Promise<unknown>)
    await settled()
    controller.abort()
    watched(d?.tryAcquire() as Promise<unknown>)
    await (await engine.next('enter')).answer(held(1n))
    const error = unreachable()
    await (await engine.next('enter')).fail(error)
    expect(events.of('refusal').map(({ operation, waitedMs, why }) => [operation.key, waitedMs, why])).toEqual([
      ['a', 0, 'busy'],
      ['b', 1000, 'timeout'],
      ['c', 0, 'cancelled'],
      ['d', 0, 'error'],
    ])
    expect(events.of('refusal').map((message) => message.error)).toEqual([undefined, undefined, undefined, error])
  })
})

test('an acquire that is to change a record which cannot be stored is refused: it waits no more', async () => {
  const { locks, log } = inMemory()
  const encode = (): never => {
    throw new RangeError('too large')
  }
  const calls = once(locks, { serialize: { encode, decode: () => undefined } })
  using events = published('request', 'refusal')
  const asked = watched(calls.run('order:42', () => 'never'))
  await settled()
  expect(asked.error).toMatchObject({ message: expect.stringContaining('too large') })
  const [request] = events.of('request')
  expect(events.of('refusal')).toEqual([
    { operation: request?.operation, waitedMs: 0, why: 'error', error: asked.error },
  ])
  expect(log, 'and the engine is asked for nothing').toEqual([])
})

describe('a lease', () => {
  test('that is renewed: how many were, and how much time the most pressed one had left', async () => {
    using events = published('renewal')
    const { clock, locks } = inMemory()
    await locks.mutex('a').acquire()
    await clock.advance(1000)
    await locks.mutex('b').acquire()
    await clock.advance(BEAT - 1000)
    expect(events.of('renewal')).toEqual([{ engine: 'memory', count: 2, marginMs: TTL - MARGIN - BEAT }])
  })

  test('that is lost: which, and why; and the release that follows says so, too', async () => {
    using events = published('loss', 'release')
    const { engine, clock, locks } = scripted()
    const asked = watched(locks.mutex('a').acquire())
    await (await engine.next('enter')).answer(held(7n))
    await clock.advance(BEAT)
    await (await engine.next('renew')).answer(gone('evicted'))
    void asked.value.release()
    const operation = { engine: 'scripted', key: 'a', weight: 1, limit: 1 }
    expect(events.of('loss')).toEqual([{ operation, token: 7n, why: 'evicted' }])
    expect(events.of('release')).toMatchObject([{ operation, why: 'evicted' }])
  })
})

describe('a call', () => {
  const operation: Operation = { engine: 'scripted', key: 'a', weight: 1, limit: 1 }

  test('that fails: which verb, for which key, and how', async () => {
    using events = published('failure')
    const { engine, clock, locks } = scripted()
    const asked = watched(locks.mutex('a').acquire())
    const errors = [unreachable(), unknownOutcome(), unreachable()]
    await (await engine.next('enter')).fail(errors[0])
    await clock.advance(1000)
    await (await engine.next('enter')).answer(held(1n))
    await clock.advance(BEAT)
    await (await engine.next('renew')).fail(errors[1])
    void asked.value.release()
    await (await engine.next('leave')).fail(errors[2])
    expect(events.of('failure')).toEqual([
      { operation, verb: 'enter', held: false, error: errors[0] },
      { operation, verb: 'renew', held: true, error: errors[1] },
      { operation, verb: 'leave', held: true, error: errors[2] },
    ])
  })

  test('of unknown outcome that was cleaned up: whether it had been applied', async () => {
    for (const wasThere of [true, false]) {
      using events = published('cleanup')
      const { engine, locks } = scripted()
      watched(locks.mutex('a').tryAcquire())
      await (await engine.next('enter')).fail(unknownOutcome())
      await (await engine.next('leave')).answer(wasThere)
      expect(events.of('cleanup')).toEqual([{ operation, wasThere }])
    }
  })
})

describe('a cleanup', () => {
  test('is no release: a lease whose first enter was not answered has none', async () => {
    for (const end of ['released', 'maxHold'] as const) {
      using events = published('cleanup')
      const { engine, clock, locks } = scripted({ callTimeout: 1000 })
      const asked = watched(locks.mutex('a').acquire(end === 'maxHold' ? { maxHold: '1s' } : {}))
      await engine.next('enter')
      await clock.advance(2500)
      await (await engine.next('enter')).answer(held(1n))
      await clock.advance(2000)
      void asked.value.release()
      await answerLeaves(engine, clock, true)
      expect(events.all, end).toEqual([])
    }
  })

  test('is told once for an enter that was given up, however often its leave is repeated', async () => {
    for (const wasThere of [true, false]) {
      using events = published('cleanup')
      const { engine, clock, locks } = scripted()
      watched(locks.mutex('a').tryAcquire())
      await (await engine.next('enter')).fail(unknownOutcome())
      await answerLeaves(engine, clock, wasThere)
      expect(engine.log.filter((call) => call === 'leave a').length, 'it is repeated').toBeGreaterThan(2)
      expect(events.of('cleanup').map((message) => message.wasThere)).toEqual([wasThere])
    }
  })

  test('is told of an enter that arrives after the first leave, also where that was a release', async () => {
    for (const granted of [true, false]) {
      using events = published('cleanup')
      const { engine, clock, locks } = scripted()
      const asked = watched(granted ? locks.mutex('a').acquire() : locks.mutex('a').tryAcquire())
      await (await engine.next('enter')).fail(unknownOutcome())
      if (granted) {
        await clock.advance(1000)
        await (await engine.next('enter')).answer(held(1n))
        void asked.value?.release()
      }
      await (await engine.next('leave')).answer(granted)
      await clock.advance(BEAT)
      await (await engine.next('leave')).answer(true)
      expect(events.of('cleanup').map(({ wasThere }) => wasThere)).toEqual(granted ? [true] : [false, true])
    }
  })

  test('is told once, and once more for the arrival, though the answer to the enter comes last', async () => {
    using events = published('cleanup')
    const { engine, clock, locks } = scripted({ callTimeout: 1000 })
    watched(locks.mutex('a').tryAcquire())
    const enter = await engine.next('enter')
    await clock.advance(1000)
    await (await engine.next('leave')).answer(false)
    await clock.advance(BEAT)
    await (await engine.next('leave')).answer(true)
    await enter.answer(held(1n))
    await (await engine.next('leave')).answer(false)
    expect(events.of('cleanup').map(({ wasThere }) => wasThere)).toEqual([false, true])
  })

  test('is told of an enter whose answer arrives after the release of what a later one was granted', async () => {
    using events = published('cleanup')
    const { engine, clock, locks } = scripted({ callTimeout: 1000 })
    const asked = watched(locks.mutex('a').acquire())
    const enter = await engine.next('enter')
    await clock.advance(2500)
    await (await engine.next('enter')).answer(held(1n))
    void asked.value.release()
    await (await engine.next('leave')).answer(true)
    await enter.answer(held(2n))
    await (await engine.next('leave')).answer(true)
    expect(events.of('cleanup').map(({ wasThere }) => wasThere)).toEqual([true])
  })

  /** Let a ttl pass: the first leave is answered so, and its repeats, which find nothing any more, by no. */
  async function answerLeaves(engine: ScriptedEngine, clock: CountingClock, first: boolean): Promise<void> {
    await (await engine.next('leave')).answer(first)
    for (let beat = 0; beat < 5; beat += 1) {
      await clock.advance(BEAT)
      for (const _ of await engine.unseen()) await (await engine.next('leave')).answer(false)
    }
  }
})

test('a try that is cancelled before it is asked is no event at all', async () => {
  using events = published(...everything)
  const { locks } = inMemory()
  await expect(locks.mutex('a').acquire({ signal: AbortSignal.abort() })).rejects.toThrow()
  expect(events.names).toEqual([])
})

test('every channel is named after its event', () => {
  for (const name of everything) expect(channels[name].name).toBe(`holdfast:${name}`)
})
