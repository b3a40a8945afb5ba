/** Several locks as one: all or nothing, in one order, and never a circle. */
import { describe, expect, test } from 'vitest'
import { DeadlockError, LeaseLostError } from '../../src/core/errors.ts'
import type { Lock } from '../../src/core/lock.ts'
import { busy, failed, gone, held, unknownOutcome, unreachable, waiting, wrongPassword } from './scripted-engine.ts'
import { BEAT, inMemory, type MemoryWorld, scripted, settled, TTL, watched } from './world.ts'

const mutexes = ({ locks }: Pick<MemoryWorld, 'locks'>, ...keys: readonly string[]): Lock[] =>
  keys.map((key) => locks.mutex(key))

describe('when all are free', () => {
  test('one batch takes them, in bytewise order, and one gives them back', async () => {
    const world = inMemory()
    const all = world.locks.all(mutexes(world, 'b', '🔒', 'a', '\uff5e'))
    const lease = await all.acquire()
    expect(world.log).toEqual(['enter a b \uff5e 🔒'])
    expect(lease.held).toBe(true)
    expect(await lease.release()).toBe(true)
    expect(world.log).toEqual(['enter a b \uff5e 🔒', 'leave a b \uff5e 🔒'])
  })

  test('the lease has a token for each key, and none of its own unless there is one key', async () => {
    const world = inMemory()
    const both = await world.locks.all(mutexes(world, 'b', 'a')).acquire()
    expect(both.token).toBeNull()
    expect([...both.tokens]).toEqual([
      ['a', 1n],
      ['b', 2n],
    ])
    expect(both.key).toBe('a + b')
    const one = await world.locks.all(mutexes(world, 'c')).acquire()
    expect(one.token).toBe(3n)
  })

  test('works with parts of semaphores and with readers', async () => {
    const { locks } = inMemory()
    const all = locks.all([locks.semaphore('gpu', 2), locks.rw('doc').read])
    const [first, second] = [await all.acquire(), await all.acquire()]
    expect(first.held && second.held).toBe(true)
    expect(await all.tryAcquire()).toBeUndefined()
    expect((await locks.inspect('doc')).entries, 'the reader was given back').toHaveLength(2)
  })
})

describe('when one is busy', () => {
  test('one try takes nothing', async () => {
    const world = inMemory()
    await world.locks.mutex('b').acquire()
    expect(await world.locks.all(mutexes(world, 'a', 'b', 'c')).tryAcquire()).toBeUndefined()
    for (const key of ['a', 'c']) expect(await world.locks.mutex(key).tryAcquire()).toBeDefined()
  })

  test('while it is waited for, only those before it are held', async () => {
    const world = inMemory()
    const b = await world.locks.mutex('b').acquire()
    const all = watched(world.locks.all(mutexes(world, 'a', 'b', 'c')).acquire())
    await settled()
    expect(await world.locks.mutex('a').tryAcquire()).toBeUndefined()
    const c = await world.locks.mutex('c').tryAcquire()
    expect(c, 'c is behind b').toBeDefined()
    await b.release()
    await settled()
    expect(all.state).toBe('pending')
    await c?.release()
    await settled()
    expect(all.value.held).toBe(true)
  })

  test('patience that runs out gives back everything, and says for how long it was in all', async () => {
    const world = inMemory()
    const b = await world.locks.mutex('b').acquire()
    await world.locks.mutex('c').acquire()
    const all = watched(world.locks.all(mutexes(world, 'a', 'b', 'c')).acquire({ wait: '5s' }))
    await world.clock.advance('3s')
    await b.release()
    await world.clock.advance('2s')
    expect(all.error).toMatchObject({ code: 'ACQUIRE_TIMEOUT', key: 'c', waitedMs: 5000 })
    for (const key of ['a', 'b']) expect(await world.locks.mutex(key).tryAcquire()).toBeDefined()
  })

  test('cancelling gives back everything, and rejects with the reason of the caller', async () => {
    const world = inMemory()
    await world.locks.mutex('b').acquire()
    const controller = new AbortController()
    const all = watched(world.locks.all(mutexes(world, 'a', 'b')).acquire({ signal: controller.signal }))
    await settled()
    controller.abort('enough')
    await settled()
    expect(all.error).toBe('enough')
    expect(await world.locks.mutex('a').tryAcquire()).toBeDefined()
  })

  test('cancelling rejects at once, also when the engine does not answer', async () => {
    const { engine, locks } = scripted()
    const controller = new AbortController()
    const all = watched(locks.all([locks.mutex('a'), locks.mutex('b')]).acquire({ signal: controller.signal }))
    await (await engine.next('enter')).answer(held(1n), busy())
    await engine.next('enter')
    controller.abort('enough')
    await engine.next('leave')
    expect(all.error).toBe('enough')
  })

  test('a part that is lost meanwhile ends the wait and gives back everything', async () => {
    const { engine, clock, locks } = scripted()
    const all = watched(locks.all([locks.mutex('a'), locks.mutex('b'), locks.mutex('c')]).acquire())
    await (await engine.next('enter')).answer(held(1n), held(2n), busy())
    const enter = await engine.next('enter')
    await enter.answer(waiting(1))
    await clock.advance(BEAT)
    const renewal = await engine.next('renew')
    const answers = { a: held(1n), b: gone('expired'), c: waiting(1) }
    await renewal.answer(...renewal.keys.map((key) => answers[key as 'a' | 'b' | 'c']))
    const left: string[] = []
    while ((await engine.unseen()).length > 0) {
      const leave = await engine.next('leave')
      left.push(...leave.keys)
      await leave.answer(...leave.keys.map(() => true))
    }
    expect(all.error).toBeInstanceOf(LeaseLostError)
    expect(all.error).toMatchObject({ key: 'b' })
    expect(left.toSorted()).toEqual(['a', 'c'])
  })

  test('a part that was lost during a stall is noticed before the lease is returned', async () => {
    const { engine, clock, locks } = scripted()
    const all = watched(locks.all([locks.mutex('a'), locks.mutex('b', { ttl: '10m' })]).acquire())
    await (await engine.next('enter')).answer(held(1n), busy())
    const enter = await engine.next('enter')
    clock.stall(TTL)
    await enter.answer(held(2n, 600_000))
    await (await engine.next('leave')).answer(true, true)
    expect(all.error).toMatchObject({ code: 'LEASE_LOST', key: 'a' })
  })

  test('a try that fails gives back the others and says why', async () => {
    const { engine, locks } = scripted()
    const all = watched(locks.all([locks.mutex('a'), locks.mutex('b')]).tryAcquire())
    const error = unreachable()
    await (await engine.next('enter')).answer(held(1n), { state: 'failed', error })
    await (await engine.next('leave')).answer(true)
    expect(all.error).toBe(error)
  })
})

describe('the outcome of a refusal', () => {
  test('is unknown where it is not known that what was taken was given back', async () => {
    const { engine, locks } = scripted()
    const all = watched(locks.all(mutexes({ locks }, 'a', 'b')).tryAcquire())
    await (await engine.next('enter')).answer(held(1n), failed(wrongPassword()))
    await (await engine.next('leave')).fail(unreachable())
    const { message } = wrongPassword()
    expect(all.error).toMatchObject({ code: 'ENGINE', message, outcome: 'unknown', transient: false })
  })

  test('is unknown where that of another part is', async () => {
    const { engine, locks } = scripted()
    const all = watched(locks.all(mutexes({ locks }, 'a', 'b')).tryAcquire())
    await (await engine.next('enter')).answer(failed(wrongPassword()), failed(unknownOutcome()))
    expect(all.error).toMatchObject({ code: 'ENGINE', message: wrongPassword().message, outcome: 'unknown' })
  })

  test('is unknown for a waiter that is told while what it has taken is still being given back', async () => {
    const { engine, locks } = scripted()
    const before = watched(locks.all(mutexes({ locks }, 'a', 'b')).acquire())
    await (await engine.next('enter')).answer(held(1n), busy(1))
    await (await engine.next('enter')).fail(wrongPassword())
    expect(before.error).toMatchObject({ code: 'ENGINE', outcome: 'unknown' })
    expect((await engine.next('leave')).keys).toEqual(['a'])

    const behind = watched(locks.all(mutexes({ locks }, 'c', 'd')).acquire())
    await (await engine.next('enter')).answer(failed(wrongPassword()), held(2n))
    expect(behind.error).toMatchObject({ code: 'ENGINE', outcome: 'unknown' })
  })

  test('is unknown for a waiter whose first try was not answered', async () => {
    const { engine, locks } = scripted()
    const all = watched(locks.all(mutexes({ locks }, 'a', 'b')).acquire())
    await (await engine.next('enter')).fail(unknownOutcome())
    await settled()
    await (await engine.next('enter')).fail(wrongPassword())
    expect(all.error).toMatchObject({ code: 'ENGINE', outcome: 'unknown' })
  })
})

describe('an outage', () => {
  const two = ({ locks }: Pick<MemoryWorld, 'locks'>): Lock => locks.all(mutexes({ locks }, 'a', 'b'))

  test('that is shorter than the ttl is not noticed, as with one lock', async () => {
    const { clock, engine, locks } = scripted()
    const all = watched(two({ locks }).acquire())
    await (await engine.next('enter')).fail(unreachable())
    await settled()
    await (await engine.next('enter')).fail(unreachable())
    await clock.advance(1000)
    await (await engine.next('enter')).answer(held(1n))
    await (await engine.next('enter')).answer(held(2n))
    expect(all.value.held).toBe(true)
  })

  test('that time cannot mend is told at once', async () => {
    const { engine, locks } = scripted()
    const all = watched(two({ locks }).acquire())
    const error = wrongPassword()
    await (await engine.next('enter')).fail(error)
    expect(all.error).toBe(error)
  })

  test('that takes the whole wait is told as such', async () => {
    const { clock, engine, locks } = scripted()
    const all = watched(two({ locks }).acquire({ wait: '500ms' }))
    await (await engine.next('enter')).fail(unreachable())
    await settled()
    await (await engine.next('enter')).fail(unreachable())
    await clock.advance(500)
    expect(all.error).toMatchObject({ code: 'ENGINE', transient: true })
  })

  test('in which the rest of the wait runs out is the cause of the time-out', async () => {
    const { clock, engine, locks } = scripted()
    const all = watched(two({ locks }).acquire({ wait: '500ms' }))
    await (await engine.next('enter')).answer(held(1n), busy(1))
    await (await engine.next('enter')).fail(unreachable())
    await clock.advance(500)
    expect(all.error).toMatchObject({ code: 'ACQUIRE_TIMEOUT', key: 'b', waitedMs: 500, cause: { code: 'ENGINE' } })
  })

  test('that is over leaves too little time for the second lock: a time-out, because the engine has answered', async () => {
    const { clock, engine, locks } = scripted()
    const all = watched(two({ locks }).acquire({ wait: '500ms' }))
    await (await engine.next('enter')).fail(unreachable())
    await settled()
    const first = await engine.next('enter')
    await clock.advance(497)
    await first.answer(held(1n))
    await engine.next('enter')
    await clock.advance(3)
    await clock.advance(250)
    expect(all.error).toMatchObject({ code: 'ACQUIRE_TIMEOUT', key: 'b', cause: { code: 'ENGINE' } })
  })

  test('is not taken for the whole wait because a timer fired a fraction early', async () => {
    const { clock, engine, locks } = scripted()
    const { timer } = clock
    Object.assign(clock, { timer: (ms: number, fire: () => void) => timer(ms - 0.4, fire) })
    const all = watched(two({ locks }).acquire({ wait: '500ms' }))
    await (await engine.next('enter')).answer(held(1n), busy(1))
    await (await engine.next('enter')).fail(unreachable())
    await clock.advance(499.7)
    expect(all.error).toMatchObject({ code: 'ACQUIRE_TIMEOUT', key: 'b', cause: { code: 'ENGINE' } })
  })
})

describe('what is refused', () => {
  test('the same key twice: the second would wait for the first for ever', () => {
    const { locks } = inMemory()
    expect(() => locks.all([locks.mutex('a'), locks.mutex('b'), locks.mutex('a')])).toThrow(DeadlockError)
    const { read, write } = locks.rw('doc')
    expect(() => locks.all([read, write])).toThrow(DeadlockError)
  })

  test('locks of another createLocks, `all` inside `all`, none at all', () => {
    const { locks } = inMemory()
    const foreign = inMemory().locks.mutex('a')
    expect(() => locks.all([foreign])).toThrow(TypeError)
    expect(() => locks.all([locks.all([locks.mutex('a')])])).toThrow(TypeError)
    expect(() => locks.all([{} as Lock])).toThrow(TypeError)
    expect(() => locks.all([])).toThrow(new RangeError('all takes at least one lock'))
  })
})

describe('the lease of all', () => {
  test('is lost as soon as one part is, and its signal says which', async () => {
    const world = inMemory()
    const lease = await world.locks.all(mutexes(world, 'a', 'b')).acquire()
    const { signal } = lease
    await world.locks.evict('b', lease.tokens.get('b') as bigint, 'now')
    await settled()
    expect(signal.aborted).toBe(true)
    expect(signal.reason).toMatchObject({ code: 'LEASE_LOST', key: 'b', why: 'evicted' })
    expect(lease.held).toBe(false)
    expect(() => lease.assertHeld()).toThrow(LeaseLostError)
    expect(await lease.release(), 'the rest is given back').toBe(false)
    expect(await world.locks.mutex('a').tryAcquire()).toBeDefined()
  })

  test('tells the truth after a stall', async () => {
    const world = inMemory()
    const lease = await world.locks.all(mutexes(world, 'a', 'b')).acquire()
    const { signal } = lease
    const derived = AbortSignal.any([signal])
    world.clock.stall(TTL)
    expect(lease.remainingMs).toBe(0)
    expect(signal.aborted).toBe(true)
    expect(derived.aborted).toBe(true)
  })

  test('whose work is done under `using` rejects when a part was lost', async () => {
    const world = inMemory()
    const work = world.locks.all(mutexes(world, 'a', 'b')).using(async ({ tokens }) => {
      await world.locks.evict('a', tokens.get('a') as bigint, 'now')
      await settled()
      return 'done'
    })
    await expect(work).rejects.toMatchObject({ code: 'LEASE_LOST', key: 'a' })
  })
})

test('many tasks that take random sets in random order never deadlock, and never overlap', async () => {
  const world = inMemory()
  const keys = ['a', 'b', 'c', 'd', 'e']
  const inside = new Set<string>()
  let seed = 7
  const below = (bound: number): number => {
    seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648
    return seed % bound
  }
  const task = async (): Promise<void> => {
    const chosen = keys.toSorted(() => below(3) - 1).slice(0, 1 + below(3))
    await world.locks.all(mutexes(world, ...chosen)).using(async () => {
      for (const key of chosen) {
        expect(inside.has(key), key).toBe(false)
        inside.add(key)
      }
      await settled()
      for (const key of chosen) inside.delete(key)
    })
  }
  await Promise.all(Array.from({ length: 200 }, task))
  for await (const line of world.locks.list()) expect(line).toBeUndefined()
})
