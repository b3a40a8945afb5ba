/** Nesting: asking for a key inside work that already holds it. */
import { describe, expect, test } from 'vitest'
import { AcquireTimeoutError, DeadlockError, LeaseLostError } from '../../src/core/errors.ts'
import { gate, inMemory, settled, TTL, watched } from './world.ts'

describe('without `reentrant`', () => {
  test('asking inside work that holds the key is an immediate, explained DeadlockError', async () => {
    const { locks } = inMemory()
    const nested = locks.mutex('a').using(() => locks.mutex('a').using(() => 'never'))
    await expect(nested).rejects.toBeInstanceOf(DeadlockError)
    await expect(nested).rejects.toMatchObject({
      key: 'a',
      message: expect.stringMatching(/'a'.*exclusive.*reentrant: true.*within/),
    })
    expect(await locks.mutex('a').tryAcquire(), 'and the outer lease was released').toBeDefined()
  })

  test('however deep', async () => {
    const { locks } = inMemory()
    const nested = locks
      .mutex('a')
      .using(() => locks.mutex('b').using(async () => locks.mutex('a').using(() => 'never')))
    await expect(nested).rejects.toBeInstanceOf(DeadlockError)
  })

  test('also by `acquire`, with whatever patience', async () => {
    const { locks, log } = inMemory()
    const mutex = locks.mutex('a')
    for (const options of [undefined, {}, { wait: '5s' }, { signal: new AbortController().signal }] as const)
      await expect(mutex.using(() => mutex.acquire(options))).rejects.toThrow(/'a'.*reentrant: true.*within/)
    await expect(mutex.using(() => locks.all([mutex, locks.mutex('b')]).acquire())).rejects.toThrow(DeadlockError)
    await expect(locks.rw('c').read.using(() => locks.rw('c').write.acquire())).rejects.toThrow(DeadlockError)
    expect(
      log.filter((line) => line.startsWith('enter')),
      'only the outer ones stood in line',
    ).toHaveLength(6)
  })

  test('one try inside is told that it is busy, as ever', async () => {
    const { locks } = inMemory()
    const mutex = locks.mutex('a')
    await mutex.using(async () => {
      expect(await mutex.tryAcquire()).toBeUndefined()
      await expect(mutex.acquire({ wait: 0 })).rejects.toBeInstanceOf(AcquireTimeoutError)
      expect(await locks.all([mutex, locks.mutex('b')]).tryAcquire()).toBeUndefined()
      await expect(locks.all([mutex, locks.mutex('b')]).acquire({ wait: 0 })).rejects.toBeInstanceOf(
        AcquireTimeoutError,
      )
    })
  })

  test('what fits beside the outer lease is acquired as ever', async () => {
    const { locks } = inMemory()
    const gpu = locks.semaphore('gpu', 4)
    await gpu.using({ weight: 3 }, async () => {
      const part = await gpu.acquire()
      expect(part.held).toBe(true)
      await part.release()
      await expect(gpu.acquire({ weight: 2 })).rejects.toThrow(/3 of 4/)
    })
    const { read } = locks.rw('a')
    const inner = await read.using(() => read.acquire())
    expect(inner.held, 'an acquired read outlives the outer one').toBe(true)
  })

  test('work that goes on after the outer `using` has ended may acquire', async () => {
    const { locks } = inMemory()
    const mutex = locks.mutex('a')
    const ended = gate()
    const detached = await mutex.using(() => ({ lease: ended.opened.then(() => mutex.acquire()) }))
    ended.open()
    expect((await detached.lease).held).toBe(true)
  })

  test('a write inside a read, and a read inside a write, of one key', async () => {
    const { locks } = inMemory()
    const { read, write } = locks.rw('a')
    await expect(read.using(() => write.using(() => 'never'))).rejects.toBeInstanceOf(DeadlockError)
    await expect(write.using(() => read.using(() => 'never'))).rejects.toBeInstanceOf(DeadlockError)
  })

  test('a semaphore asked for more than is left beside what is held around it', async () => {
    const { locks } = inMemory()
    const gpu = locks.semaphore('gpu', 4)
    await expect(gpu.using({ weight: 3 }, () => gpu.using({ weight: 2 }, () => 'never'))).rejects.toThrow(/3 of 4/)
    await expect(gpu.using({ weight: 3 }, () => gpu.using({ weight: 1 }, () => 'fits'))).resolves.toBe('fits')
  })

  test('a read inside a read does not wait for ever behind a writer that waits for the outer read', async () => {
    const { locks } = inMemory()
    const { read, write } = locks.rw('a')
    const queued = gate()
    const work = watched(read.using(() => queued.opened.then(() => read.using(() => 'read'))))
    await settled()
    watched(write.acquire())
    await settled()
    queued.open()
    await settled()
    await settled()
    expect(work.state, 'either nested in the outer read, or refused').not.toBe('pending')
  })

  test('other keys, other engines and strangers are not in the way', async () => {
    const { locks } = inMemory()
    const other = inMemory()
    const order: string[] = []
    await locks.mutex('a').using(async () => {
      await locks.mutex('b').using(() => order.push('other key'))
      await other.locks.mutex('a').using(() => order.push('other engine'))
    })
    expect(order).toEqual(['other key', 'other engine'])
  })

  test('work whose outer lease has ended may ask again', async () => {
    const { locks } = inMemory()
    const ended = gate()
    let forgotten: Promise<string> | undefined
    await locks.mutex('a').using(() => {
      forgotten = ended.opened.then(() => locks.mutex('a').using(() => 'again'))
    })
    ended.open()
    await expect(forgotten).resolves.toBe('again')
  })

  test('work whose outer lease was lost may ask again', async () => {
    const { clock, locks } = inMemory()
    const work = locks.mutex('a').using(() => {
      clock.stall(TTL)
      return locks.mutex('a').using(() => 'again')
    })
    await expect(work).rejects.toMatchObject({ code: 'LEASE_LOST' })
  })

  test('siblings queue like strangers', async () => {
    const { locks } = inMemory()
    const order: string[] = []
    const sibling = (name: string) =>
      locks.mutex('a').using(async () => {
        order.push(`${name} in`)
        await settled()
        order.push(`${name} out`)
      })
    await Promise.all([sibling('one'), sibling('two')])
    expect(order).toEqual(['one in', 'one out', 'two in', 'two out'])
  })
})

describe('with `reentrant`', () => {
  const reentrant = { reentrant: true }

  test('the nested lease has the same token and takes no place in the line', async () => {
    const { locks, log } = inMemory()
    const lock = locks.mutex('a', reentrant)
    await lock.using((outer) =>
      lock.using((middle) =>
        lock.using((inner) => {
          expect([middle.token, inner.token]).toEqual([outer.token, outer.token])
          expect(inner).toMatchObject({ key: 'a', held: true })
          expect(inner.remainingMs).toBe(outer.remainingMs)
          expect(inner.signal.aborted).toBe(false)
        }),
      ),
    )
    expect(log).toEqual(['enter a', 'leave a'])
  })

  test('the outermost release leaves the line, no inner one', async () => {
    const { locks } = inMemory()
    const lock = locks.mutex('a', reentrant)
    await lock.using(async (outer) => {
      const inner = await lock.using(async (lease) => {
        expect(await lease.release()).toBe(true)
        expect(await lease.release(), 'told the same again').toBe(true)
        expect(lease.held).toBe(false)
        expect(lease.remainingMs).toBe(0)
        expect(() => lease.assertHeld()).toThrowError(expect.objectContaining({ why: 'released' }))
        return lease
      })
      expect(inner.held).toBe(false)
      expect(outer.held).toBe(true)
      expect(await locks.mutex('a').tryAcquire()).toBeUndefined()
    })
    expect(await locks.mutex('a').tryAcquire()).toBeDefined()
  })

  test('siblings inside one outer lease take turns', async () => {
    const { locks } = inMemory()
    const lock = locks.mutex('a', reentrant)
    const order: string[] = []
    const sibling = (name: string) =>
      lock.using(async () => {
        order.push(`${name} in`)
        await settled()
        order.push(`${name} out`)
      })
    await lock.using(() => Promise.all([sibling('one'), sibling('two'), sibling('three')]))
    expect(order).toEqual(['one in', 'one out', 'two in', 'two out', 'three in', 'three out'])
  })

  test('a sibling whose wait runs out, or who is cancelled, is told so and does not take a turn', async () => {
    const { clock, locks } = inMemory()
    const lock = locks.mutex('a', reentrant)
    const done = gate()
    await lock.using(async () => {
      const first = lock.using(() => done.opened)
      const impatient = watched(lock.using({ wait: '1s' }, () => 'never'))
      const cancelled = watched(lock.using({ signal: AbortSignal.abort('no') }, () => 'never'))
      const last = watched(lock.using(() => 'last'))
      await clock.advance('1s')
      expect(impatient.error).toMatchObject({ code: 'ACQUIRE_TIMEOUT', key: 'a', waitedMs: 1000 })
      expect(cancelled.error).toBe('no')
      done.open()
      await first
      await settled()
      expect(last.value).toBe('last')
    })
  })

  test('losing the outer lease is losing the nested one', async () => {
    const { clock, locks } = inMemory()
    const lock = locks.mutex('a', reentrant)
    const inner = watched(
      lock.using(() =>
        lock.using((lease) => {
          clock.stall(TTL)
          expect(lease.held).toBe(false)
          expect(() => lease.assertHeld()).toThrow(LeaseLostError)
        }),
      ),
    )
    await settled()
    // After a stall the engine lets the event loop turn before it answers the release.
    await settled()
    expect(inner.error).toMatchObject({ code: 'LEASE_LOST', why: 'deadline' })
  })

  test('a caller that waits for a turn is told when the outer lease is lost', async () => {
    const { clock, locks } = inMemory()
    const lock = locks.mutex('a', reentrant)
    const never = gate()
    let second = watched(Promise.resolve())
    void lock
      .using(async () => {
        void lock.using(() => never.opened).catch(() => {})
        second = watched(lock.using(() => {}))
        await never.opened
      })
      .catch(() => {})
    await settled()
    clock.stall(TTL)
    await clock.advance(0)
    expect(second.state).toBe('rejected')
    never.open()
  })

  test('a caller that gets a turn in an outer lease that was released meanwhile is told so', async () => {
    const { locks } = inMemory()
    const outer = await locks.mutex('a').acquire()
    const first = await locks.mutex('a').acquire({ within: outer })
    const second = watched(locks.mutex('a').acquire({ within: outer }))
    await outer.release()
    await first.release()
    await settled()
    expect(second.error).toMatchObject({ code: 'LEASE_LOST', why: 'released' })
  })

  test('a write inside a read is refused; a read inside a write and inside a read is nested', async () => {
    const { locks, log } = inMemory()
    const { read, write } = locks.rw('a', reentrant)
    await expect(read.using(() => write.using(() => 'never'))).rejects.toBeInstanceOf(DeadlockError)
    await expect(write.using(() => read.using(({ token }) => token))).resolves.toBeTypeOf('bigint')
    await expect(read.using(() => read.using(() => 'read'))).resolves.toBe('read')
    expect(log.filter((call) => call.startsWith('enter'))).toHaveLength(3)
  })

  test('inside `all`, each of its keys is known to be held', async () => {
    const { locks } = inMemory()
    const both = locks.all([locks.mutex('a'), locks.mutex('b')])
    await expect(both.using(() => locks.mutex('b').using(() => 'never'))).rejects.toBeInstanceOf(DeadlockError)
    await both.using(async (all) => {
      const token = await locks.mutex('b', reentrant).using((lease) => lease.token)
      expect(token).toBe(all.tokens.get('b'))
    })
    await expect(locks.mutex('a').using(() => both.using(() => 'never'))).rejects.toBeInstanceOf(DeadlockError)
  })

  test('one try inside is told that it is busy, as ever', async () => {
    const { locks } = inMemory()
    const lock = locks.mutex('a', reentrant)
    await lock.using(async () => expect(await lock.tryAcquire()).toBeUndefined())
  })

  test('`acquire` nests, too, and its lease ends with the outer one', async () => {
    const { locks, log } = inMemory()
    const lock = locks.mutex('a', reentrant)
    const inner = await lock.using(async (outer) => {
      const nested = await lock.acquire({ wait: '5s' })
      expect(nested.token).toBe(outer.token)
      return nested
    })
    expect(inner.held).toBe(false)
    expect(log).toEqual(['enter a', 'leave a'])
    expect((await lock.acquire()).token, 'outside it stands in line').not.toBe(inner.token)
  })
})

test('siblings at any depth give the turn to each other', async () => {
  const { locks } = inMemory()
  const lock = locks.mutex('a')
  const outer = await lock.acquire()
  const middle = await lock.acquire({ within: outer })
  const first = await lock.acquire({ within: middle })
  const second = watched(lock.acquire({ within: middle }))
  await settled()
  expect(second.state).toBe('pending')
  await first.release()
  await settled()
  expect(second.value.held).toBe(true)
})
