/** Nesting in a lease that is passed along, and in whose context what runs. */

import { AsyncResource } from 'node:async_hooks'
import { describe, expect, test } from 'vitest'
import { delegate } from '../../conformance/delegate.ts'
import { DeadlockError } from '../../src/core/errors.ts'
import type { Lease } from '../../src/core/lease.ts'
import { memory } from '../../src/engines/memory/index.ts'
import { createLocks } from '../../src/locks.ts'
import { countingClock, evenChance, gate, inMemory, settled, TTL, watched } from './world.ts'

describe('`within`', () => {
  test('nests in the lease that is passed', async () => {
    const { locks, log } = inMemory()
    const outer = await locks.mutex('a').acquire()
    const inner = await locks.mutex('a').acquire({ within: outer })
    expect(inner.token).toBe(outer.token)
    expect(await inner.release()).toBe(true)
    expect(outer.held).toBe(true)
    await expect(locks.mutex('a').using({ within: outer }, () => 'inside')).resolves.toBe('inside')
    expect(log).toEqual(['enter a'])
  })

  test('takes turns, and one try does not wait for one', async () => {
    const { locks } = inMemory()
    const outer = await locks.mutex('a').acquire()
    const first = await locks.mutex('a').acquire({ within: outer })
    expect(await locks.mutex('a').tryAcquire({ within: outer })).toBeUndefined()
    const second = watched(locks.mutex('a').acquire({ within: outer }))
    await first.release()
    await settled()
    expect(second.value.held).toBe(true)
  })

  test('is refused to a caller whose signal has aborted, also where no turn is waited for', async () => {
    const { locks } = inMemory()
    const signal = AbortSignal.abort(new Error('cancelled'))
    const writing = await locks.rw('a').write.acquire()
    const reading = await locks.rw('b').read.acquire()
    await expect(locks.rw('a').write.acquire({ within: writing, signal })).rejects.toThrow('cancelled')
    await expect(locks.rw('b').read.acquire({ within: reading, signal })).rejects.toThrow('cancelled')
    await expect(locks.rw('b').read.tryAcquire({ within: reading, signal })).rejects.toThrow('cancelled')
  })

  test('asking again inside work nested in a lease that was acquired is a DeadlockError, as inside any other', async () => {
    const { locks, log } = inMemory()
    const mutex = locks.mutex('a')
    const outer = await mutex.acquire()
    const asked: (() => Promise<unknown>)[] = [
      () => mutex.acquire({ wait: '1s' }),
      () => mutex.using({ wait: '1s' }, () => 'never'),
      () => locks.all([mutex, locks.mutex('b')]).acquire({ wait: '1s' }),
    ]
    const refused = asked.map((ask) => watched(mutex.using({ within: outer }, ask)))
    const { read, write } = locks.rw('c')
    const reading = await read.acquire()
    refused.push(watched(read.using({ within: reading }, () => write.acquire({ wait: '1s' }))))
    await settled()
    expect(refused.map(({ state }) => state)).toEqual(refused.map(() => 'rejected'))
    for (const { error } of refused) expect(error).toBeInstanceOf(DeadlockError)
    expect(log, 'only the outer ones stood in line').toEqual(['enter a', 'enter c'])
    const inner = await read.using({ within: reading }, () => read.acquire())
    expect(inner.held, 'what fits beside it is acquired as ever').toBe(true)
  })

  test('refuses what is not a lease of this key, of these locks', async () => {
    const { locks } = inMemory()
    const a = await locks.mutex('a').acquire()
    const foreign = await inMemory().locks.mutex('b').acquire()
    const all = await locks.all([locks.mutex('c')]).acquire()
    await expect(locks.mutex('b').acquire({ within: a })).rejects.toThrow(
      new TypeError("within must be a lease of 'b'; got one of 'a'"),
    )
    await expect(locks.mutex('c').acquire({ within: all })).rejects.toBeInstanceOf(TypeError)
    await expect(locks.mutex('c').acquire({ within: {} as Lease })).rejects.toBeInstanceOf(TypeError)
    await expect(locks.mutex('b').acquire({ within: foreign }), 'of another engine').rejects.toBeInstanceOf(TypeError)
  })

  test('refuses a lease that is over', async () => {
    const { locks } = inMemory()
    const outer = await locks.mutex('a').acquire()
    await outer.release()
    await expect(locks.mutex('a').acquire({ within: outer })).rejects.toMatchObject({
      code: 'LEASE_LOST',
      why: 'released',
    })
  })
})

test("a listener that hears of a loss is not taken to be inside another caller's work, though our timer was set there", async () => {
  const inner = countingClock()
  // As Node does: a timer fires in the async context in which it was set.
  const clock = { ...inner, timer: (ms: number, fire: () => void) => inner.timer(ms, AsyncResource.bind(fire)) }
  const engine = memory({ clock })
  const locks = createLocks(delegate(engine, { renew: () => new Promise(() => {}) }), {
    clock,
    chance: evenChance(),
    ttl: TTL,
  })
  const k = locks.mutex('k', { reentrant: true, ttl: '1h' })
  let overlapped = false
  let meanwhile: Promise<void> | undefined
  const done = gate()
  const victim = await locks.mutex('victim').acquire()
  victim.signal.addEventListener('abort', () => {
    meanwhile = k.using(() => {
      overlapped = true
    })
  })
  // A stranger's work asks for something that has to be renewed soon: from here on, the heartbeat's timer is set in its
  // context.
  const work = k.using(async () => {
    await locks.mutex('brief', { ttl: '1s' }).acquire()
    await done.opened
  })
  await inner.advance(TTL)
  expect(meanwhile, 'the loss was heard').toBeDefined()
  expect(overlapped, 'inside k at the same time as its holder').toBe(false)
  done.open()
  await work
  await meanwhile
})

test("nor when it hears of it because of a look inside that other's work", async () => {
  const { clock, locks } = inMemory()
  const k = locks.mutex('k', { reentrant: true, ttl: '1h' })
  let overlapped = false
  let meanwhile: Promise<void> | undefined
  const victim = await locks.mutex('victim').acquire()
  victim.signal.addEventListener('abort', () => {
    meanwhile = k.using(() => {
      overlapped = true
    })
  })
  await k.using(async () => {
    clock.stall(TTL)
    expect(victim.held).toBe(false)
    expect(meanwhile, 'the loss was heard').toBeDefined()
    await settled()
    expect(overlapped, 'inside k at the same time as its holder').toBe(false)
  })
  await meanwhile
})
