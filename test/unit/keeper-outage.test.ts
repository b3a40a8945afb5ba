/** Outages: what the core bears in silence, what it tells whom, and when. */
import { describe, expect, test } from 'vitest'
import { EngineError } from '../../src/core/errors.ts'
import type { Lease } from '../../src/core/lease.ts'
import type { LocksOptions } from '../../src/core/locks-options.ts'
import { published } from './published.ts'
import { held, unknownOutcome, unreachable, waiting, wrongPassword } from './scripted-engine.ts'
import {
  BEAT,
  evenChance,
  MARGIN,
  outage,
  type ScriptedWorld,
  scripted,
  settled,
  TTL,
  type Watched,
  watched,
} from './world.ts'

describe('an outage shorter than the ttl is our business', () => {
  test('for a caller that is about to enter', async () => {
    const world = scripted()
    const asked = watched(world.locks.mutex('a').acquire())
    await outage(world, TTL - 1500)
    expect(asked.state).toBe('pending')
    await world.clock.advance(1000)
    await (await world.engine.next('enter')).answer(held(1n))
    expect(asked.value.held).toBe(true)
  })

  test('for a waiter', async () => {
    const world = scripted()
    const asked = watched(world.locks.mutex('a').acquire())
    await (await world.engine.next('enter')).answer(waiting(1))
    await outage(world, TTL)
    expect(asked.state).toBe('pending')
    await world.clock.advance(1000)
    await (await world.engine.next('renew')).answer(waiting(1))
    expect(asked.state).toBe('pending')
  })

  test('for a holder', async () => {
    const world = scripted()
    const asked = watched(world.locks.mutex('a').acquire())
    await (await world.engine.next('enter')).answer(held(1n))
    await outage(world, TTL - MARGIN - 1500)
    await world.clock.advance(1000)
    await (await world.engine.next('renew')).answer(held(1n))
    expect(asked.value.remainingMs).toBeGreaterThan(TTL / 2)
  })
})

/** A holder whose renewals are answered, except during the blip. */
async function throughBlip(
  world: ScriptedWorld,
  ttl: number,
  blip: { readonly from: number; readonly to: number; readonly how: 'refused' | 'unanswered' },
): Promise<Watched<Lease>> {
  const { engine, clock, locks } = world
  const asked = watched(locks.mutex('a', { ttl }).acquire())
  await (await engine.next('enter')).answer(held(1n, ttl))
  for (const stepMs = ttl / 1000; clock.now() < ttl * 1.3; ) {
    await clock.advance(stepMs)
    for (const call of await engine.unseen()) {
      if (!call.startsWith('renew')) continue
      const renewal = await engine.next('renew')
      if (clock.now() < blip.from || clock.now() >= blip.to) await renewal.answer(held(1n, ttl))
      else if (blip.how === 'refused') await renewal.fail(unreachable())
    }
  }
  return asked
}

describe('a blip that begins right before a renewal', () => {
  const worlds = [300, 4_000, 30_000].flatMap((ttl) =>
    (['refused', 'unanswered'] as const).flatMap((how) => [0, 0.999].map((jitter) => ({ ttl, how, jitter }))),
  )
  const chances = (jitter: number): LocksOptions => ({ chance: { ...evenChance(), fraction: () => jitter } })

  test.each(worlds)('and lasts for 60 % of a ttl of $ttl ms costs no lease ($how, jitter $jitter)', async (it) => {
    const from = it.ttl / 3 - 1
    const blip = { from, to: from + 0.6 * it.ttl, how: it.how }
    const asked = await throughBlip(scripted(chances(it.jitter)), it.ttl, blip)
    expect(asked.value.held).toBe(true)
  })

  test.each(worlds)('and lasts for two thirds of it costs the lease ($ttl ms, $how, jitter $jitter)', async (it) => {
    const from = it.ttl / 3 - 1
    const asked = await throughBlip(scripted(chances(it.jitter)), it.ttl, { from, to: it.ttl, how: it.how })
    expect(asked.value.signal.reason).toMatchObject({ code: 'LEASE_LOST', why: 'deadline' })
  })
})

describe('news that the engine is there again', () => {
  test('renew at once what could not be renewed, held or waiting', async () => {
    const { engine, clock, locks } = scripted()
    const asked = watched(locks.mutex('a').acquire())
    await (await engine.next('enter')).answer(held(1n))
    await clock.advance(BEAT)
    await (await engine.next('renew')).fail(unreachable())
    expect(await engine.unseen()).toEqual([])
    await engine.tell({ gap: true })
    await (await engine.next('renew')).answer(held(1n))
    expect(asked.value.remainingMs).toBe(TTL - MARGIN)
  })

  test('renew at once what fails only after them, because it was sent before', async () => {
    const { engine, clock, locks } = scripted()
    watched(locks.mutex('a').acquire())
    await (await engine.next('enter')).answer(held(1n))
    await clock.advance(BEAT)
    const before = await engine.next('renew')
    await engine.tell({ gap: true })
    await before.fail(unreachable())
    expect(await engine.unseen()).toEqual(['renew a'])
  })
})

describe('a ping', () => {
  test('is one round trip, and says how long it took', async () => {
    const { engine, clock, locks } = scripted()
    engine.inspecting = async (key) => {
      await clock.advance(7)
      return { key, entries: [] }
    }
    expect(await locks.ping()).toBe(7)
  })

  test('rejects with an EngineError when the engine is away, or does not answer', async () => {
    const { engine, clock, locks } = scripted({ callTimeout: 1000 })
    for (const error of [unreachable(), new Error('ECONNREFUSED')]) {
      engine.inspecting = () => Promise.reject(error)
      await expect(locks.ping()).rejects.toBeInstanceOf(EngineError)
    }
    engine.inspecting = () => new Promise(() => {})
    const pinged = watched(locks.ping())
    await clock.advance(1000)
    expect(pinged.error).toMatchObject({ code: 'ENGINE', message: 'scripted: inspect: no answer within 1000 ms' })
  })
})

describe('a stall of our own is no outage', () => {
  test('for a waiter: it asks once more before it gives up', async () => {
    const world = scripted()
    const asked = watched(world.locks.mutex('a').acquire())
    await (await world.engine.next('enter')).answer(waiting(1))
    await world.clock.advance(BEAT)
    await world.engine.next('renew')
    // The process is stopped while its renewal is on the way, and wakes up long after.
    world.clock.stall(2 * TTL)
    await world.clock.advance(0)
    expect(asked.state).toBe('pending')
    await world.clock.advance(1500)
    await (await world.engine.next('renew')).answer(waiting(1))
    expect(asked.state).toBe('pending')
  })
})

describe('an outage longer than the ttl is told', () => {
  test('to a caller that is about to enter', async () => {
    const world = scripted()
    const asked = watched(world.locks.mutex('a').acquire())
    await outage(world, TTL + 2000)
    expect(asked.error).toBeInstanceOf(EngineError)
    expect(asked.error).toMatchObject({
      message: expect.stringMatching(/^scripted: no answer for 30\.?\d?s while 'a' was waited for: cannot be reached$/),
      cause: { message: 'scripted: cannot be reached' },
    })
  })

  test('to a waiter, and the entry is taken out of the line', async () => {
    const world = scripted()
    const asked = watched(world.locks.mutex('a').acquire())
    await (await world.engine.next('enter')).answer(waiting(1))
    await world.clock.advance(BEAT)
    const renewal = await world.engine.next('renew')
    await renewal.fail(unreachable())
    for (let second = 0; second < TTL / 1000 + 2 && asked.state === 'pending'; second += 1) {
      await world.clock.advance(1000)
      if ((await world.engine.unseen()).includes('renew a'))
        await (await world.engine.next('renew')).fail(unreachable())
    }
    expect(asked.error).toBeInstanceOf(EngineError)
    expect((await world.engine.next('leave')).ids).toEqual(renewal.ids)
  })

  test('to a waiter, also when calls are not answered at all', async () => {
    const { engine, clock, locks } = scripted()
    const asked = watched(locks.mutex('a').acquire())
    await clock.advance(TTL + 1)
    expect(asked.error).toMatchObject({ code: 'ENGINE', outcome: 'unknown' })
    expect(engine.log.length).toBeGreaterThan(3)
  })

  test('to a holder, as a loss', async () => {
    const world = scripted()
    const asked = watched(world.locks.mutex('a').acquire())
    await (await world.engine.next('enter')).answer(held(1n))
    await outage(world, TTL)
    expect(asked.value.signal.reason).toMatchObject({ code: 'LEASE_LOST', why: 'deadline' })
  })
})

describe('one try', () => {
  test('rejects at once when the engine is down: no caller is told that the lock is busy', async () => {
    for (const error of [unreachable(), unknownOutcome(), wrongPassword(), new Error('ECONNREFUSED')]) {
      const { engine, locks } = scripted()
      const tried = watched(locks.mutex('a').tryAcquire())
      await (await engine.next('enter')).fail(error)
      expect(tried.error).toBeInstanceOf(EngineError)
    }
  })

  test('keeps what the client said as the cause', async () => {
    const { engine, locks } = scripted()
    const tried = watched(locks.mutex('a').tryAcquire())
    const cause = new Error('ECONNREFUSED')
    await (await engine.next('enter')).fail(cause)
    expect(tried.error).toMatchObject({ outcome: 'unknown', cause, message: 'scripted: enter: ECONNREFUSED' })
  })
})

describe('a subscription that fails', () => {
  test('is tried again, and no enter is sent before it stands', async () => {
    const { engine, clock, locks } = scripted()
    engine.subscribing = () => Promise.reject(new Error('no route'))
    const asked = watched(locks.mutex('a').acquire())
    await settled()
    expect(engine.log).toEqual(['subscribe'])
    engine.subscribing = () => Promise.resolve()
    await clock.advance(1000)
    await (await engine.next('enter')).answer(held(1n))
    expect(engine.log).toEqual(['subscribe', 'subscribe', 'enter a'])
    expect(asked.value.held).toBe(true)
  })

  test('rejects one try, and says why', async () => {
    const { engine, locks } = scripted()
    engine.subscribing = () => Promise.reject(new Error('no route'))
    const tried = watched(locks.mutex('a').tryAcquire())
    await settled()
    expect(tried.error).toMatchObject({ code: 'ENGINE', outcome: 'not-applied', message: 'scripted: no route' })
  })

  test('says to a caller that waits that it was about to listen', async () => {
    const { engine, clock, locks } = scripted()
    engine.subscribing = () => Promise.reject(new Error('no route'))
    const asked = watched(locks.mutex('a').acquire({ wait: '1s' }))
    await clock.advance('1s')
    expect(asked.error).toMatchObject({
      message: expect.stringMatching(/: no route \(while it began to listen for its turn\)$/),
    })
  })

  test('is not waited for by later enters for ever: a frozen server that recovers is asked anew', async () => {
    const { engine, clock, locks } = scripted({ callTimeout: 1000 })
    engine.subscribing = () => new Promise(() => {})
    const asked = watched(locks.mutex('a').acquire())
    await clock.advance(1500)
    engine.subscribing = () => Promise.resolve()
    await clock.advance(TTL / 2)
    await (await engine.next('enter')).answer(held(1n))
    expect(asked.value.held).toBe(true)
  })

  test('and answers late does not disturb the one that took its place', async () => {
    const { engine, clock, locks } = scripted({ callTimeout: 1000 })
    const gates: (() => void)[] = []
    engine.subscribing = () => new Promise((resolve) => gates.push(resolve))
    const asked = watched(locks.mutex('a').acquire())
    await clock.advance(2500)
    expect(gates, 'the second attempt is on its way').toHaveLength(2)
    gates[0]?.()
    await settled()
    expect(
      engine.log.filter((call) => call === 'unsubscribe'),
      'the late one is ended',
    ).toHaveLength(1)
    gates[1]?.()
    await (await engine.next('enter')).answer(held(1n))
    expect(asked.value.held).toBe(true)
    expect(engine.subscriptions).toBe(2)
  })
})

describe('jeopardy', () => {
  test('is told when two thirds of the time have gone without a renewal, before the loss, and once', async () => {
    using events = published('jeopardy', 'loss')
    const { engine, clock, locks } = scripted()
    watched(locks.mutex('a').acquire())
    await (await engine.next('enter')).answer(held(1n))
    await clock.advance(TTL * 2)
    expect(events.names).toEqual(['jeopardy', 'loss'])
    expect(events.of('jeopardy')[0]).toMatchObject({
      operation: { engine: 'scripted', key: 'a' },
      token: 1n,
      remainingMs: TTL / 3 - MARGIN,
      error: { outcome: 'unknown' },
    })
  })

  test('is not told as long as renewals are answered', async () => {
    using events = published('jeopardy')
    const { engine, clock, locks } = scripted()
    watched(locks.mutex('a').acquire())
    await (await engine.next('enter')).answer(held(1n))
    for (let beat = 0; beat < 10; beat += 1) {
      await clock.advance(BEAT)
      await (await engine.next('renew')).answer(held(1n))
    }
    expect(events.names).toEqual([])
  })

  test('is told again when it happens again', async () => {
    using events = published('jeopardy')
    const { engine, clock, locks } = scripted()
    watched(locks.mutex('a').acquire())
    await (await engine.next('enter')).answer(held(1n))
    for (let time = 0; time < 2; time += 1) {
      await clock.advance(BEAT)
      const renewal = await engine.next('renew')
      await clock.advance(BEAT)
      await renewal.answer(held(1n))
    }
    expect(events.names).toEqual(['jeopardy', 'jeopardy'])
  })
})

test('a short lease is renewed while the renewal of a long one of the same key is not answered', async () => {
  const { engine, clock, locks } = scripted()
  watched(locks.semaphore('a', 2).acquire())
  await (await engine.next('enter')).answer(held(1n))
  await clock.advance(BEAT)
  await engine.next('renew')
  const short = watched(locks.semaphore('a', 2, { ttl: '3s' }).acquire())
  await (await engine.next('enter')).answer(held(2n, 3000))
  await clock.advance(1000)
  await (await engine.next('renew')).answer(held(2n, 3000))
  await clock.advance(2500)
  expect(short.value.held).toBe(true)
})
