/**
 * Nested leases take turns. Work that has the turn itself and asks for it again would wait for ever: it is told so at
 * once. Work that only waits for others waits.
 */
import { describe, expect, test } from 'vitest'
import { DeadlockError } from '../../src/core/errors.ts'
import type { Lease } from '../../src/core/lease.ts'
import { gate, inMemory, settled, TTL, watched } from './world.ts'

const reentrant = { reentrant: true }

describe('a DeadlockError is thrown at once', () => {
  test('where work nested in a lease asks for another turn in that same lease', async () => {
    const { locks } = inMemory()
    const lock = locks.mutex('a')
    const outer = await lock.acquire()
    const asked: (() => Promise<unknown>)[] = [
      () => lock.using({ within: outer }, () => 'never'),
      () => lock.using({ within: outer, wait: '1s' }, () => 'never'),
      () => lock.acquire({ within: outer }),
      () => lock.using({ within: outer, signal: new AbortController().signal }, () => 'never'),
      () => locks.mutex('b').using(() => lock.acquire({ within: outer })),
    ]
    for (const ask of asked) {
      const nested = watched(lock.using({ within: outer }, ask))
      await settled()
      await settled()
      expect(nested.state).toBe('rejected')
      expect(nested.error).toBeInstanceOf(DeadlockError)
      expect(nested.error).toMatchObject({ key: 'a', message: expect.stringMatching(/'a'.*within/) })
    }
    expect(outer.held).toBe(true)
    expect(await lock.tryAcquire({ within: outer }), 'and each of them has given the turn back').toBeDefined()
  })

  test('however deep the work is nested', async () => {
    const { locks } = inMemory()
    const lock = locks.mutex('a')
    const outer = await lock.acquire()
    const middle = await lock.acquire({ within: outer })
    const asked = (within: Lease) => watched(lock.using({ within: middle }, () => lock.acquire({ within })))
    const [first, second] = [asked(outer), asked(outer)]
    await settled()
    for (const { error } of [first, second]) expect(error).toBeInstanceOf(DeadlockError)
    const deeper = watched(
      lock.using({ within: middle }, (inner) =>
        lock.using({ within: inner }, () => lock.using({ within: middle }, () => 'never')),
      ),
    )
    await settled()
    expect(deeper.error).toBeInstanceOf(DeadlockError)
  })

  test('where the nested lease was lost by its maxHold, and its work asks for the reentrant lock again', async () => {
    const { locks, clock } = inMemory()
    const lock = locks.mutex('a', reentrant)
    const asked: (() => Promise<unknown>)[] = [
      () => lock.using(() => 'never'),
      () => lock.acquire(),
      () => lock.acquire({ wait: '1s' }),
    ]
    for (const ask of asked) {
      const late = gate()
      let again = watched<unknown>(Promise.resolve())
      const work = watched(
        lock.using(() =>
          lock.using({ maxHold: '1s' }, async (inner) => {
            await late.opened
            expect(inner.held).toBe(false)
            again = watched(ask())
            await settled()
          }),
        ),
      )
      await clock.advance('1s')
      late.open()
      await settled()
      await settled()
      expect(again.error).toBeInstanceOf(DeadlockError)
      expect(work.error, 'the loss is told as ever').toMatchObject({ code: 'LEASE_LOST', why: 'maxHold' })
    }
  })

  test('where it was lost by its maxHold, and its work asks for the key of the lease that it is nested in', async () => {
    const { locks, clock, log } = inMemory()
    const lock = locks.mutex('a')
    const acquired = await lock.acquire()
    const asked: (() => Promise<unknown>)[] = [
      () => lock.acquire(),
      () => lock.using(() => 'never'),
      () => locks.all([lock, locks.mutex('b')]).acquire(),
      () => locks.rw('a').read.acquire(),
    ]
    for (const ask of asked) {
      const late = gate()
      let again = watched<unknown>(Promise.resolve())
      const work = watched(
        lock.using({ within: acquired, maxHold: '1s' }, async () => {
          await late.opened
          again = watched(ask())
          await settled()
        }),
      )
      await clock.advance('1s')
      late.open()
      await settled()
      await settled()
      expect(again.error).toBeInstanceOf(DeadlockError)
      expect(work.error).toMatchObject({ code: 'LEASE_LOST', why: 'maxHold' })
    }
    expect(log.filter((call) => call.startsWith('enter'))).toEqual(['enter a'])
    expect(acquired.held).toBe(true)
  })
})

describe('no DeadlockError is thrown', () => {
  test('where siblings wait for one another, also in the lease of another one that is around both', async () => {
    const { locks } = inMemory()
    const lock = locks.mutex('a', reentrant)
    const order: string[] = []
    const sibling = (name: string, within: Lease) =>
      lock.using({ within }, async () => {
        order.push(`${name} in`)
        await settled()
        order.push(`${name} out`)
      })
    await lock.using((outer) =>
      lock.using({ within: outer }, (middle) =>
        Promise.all([sibling('one', middle), lock.using(() => order.push('two')), sibling('three', middle)]),
      ),
    )
    expect(order).toEqual(['one in', 'one out', 'two', 'three in', 'three out'])
  })

  test('where work that has given its nested lease back asks again', async () => {
    const { locks } = inMemory()
    const lock = locks.mutex('a', reentrant)
    const outer = await lock.acquire()
    const nested = lock.using({ within: outer }, async (inner) => {
      await inner.release()
      const another = await lock.acquire({ within: outer })
      const waiting = watched(lock.acquire({ within: outer }))
      await settled()
      expect(waiting.state, 'it waits for that other one').toBe('pending')
      await another.release()
      await settled()
      return waiting.value.held
    })
    await expect(nested).resolves.toBe(true)
  })

  test('where work goes on after the nested using has ended, and a sibling has the turn', async () => {
    const { locks } = inMemory()
    const lock = locks.mutex('a', reentrant)
    const ended = gate()
    await lock.using(async (outer) => {
      const detached = await lock.using(() => ({
        lease: ended.opened.then(() => lock.acquire({ within: outer })),
      }))
      const sibling = await lock.acquire({ within: outer })
      ended.open()
      const waiting = watched(detached.lease)
      await settled()
      expect(waiting.state).toBe('pending')
      await sibling.release()
      expect((await detached.lease).held).toBe(true)
    })
  })

  test('where one try is asked for: it is told that it is busy, as ever', async () => {
    const { locks } = inMemory()
    const lock = locks.mutex('a')
    const outer = await lock.acquire()
    await lock.using({ within: outer }, async () => {
      expect(await lock.tryAcquire({ within: outer })).toBeUndefined()
      await expect(lock.acquire({ within: outer, wait: 0 })).rejects.toMatchObject({ code: 'ACQUIRE_TIMEOUT' })
    })
  })

  test('where readers nest in a reader, beside the work that they are inside of', async () => {
    const { locks } = inMemory()
    const { read } = locks.rw('a')
    const outer = await read.acquire()
    const nested = read.using({ within: outer }, () => read.using({ within: outer }, () => 'read'))
    await expect(nested).resolves.toBe('read')
  })

  test('where work whose nested lease it has given back stands in line for the lock itself', async () => {
    const { locks } = inMemory()
    const lock = locks.mutex('a')
    const outer = await lock.acquire()
    let asked = watched<Lease>(new Promise(() => {}))
    await lock.using({ within: outer }, async (inner) => {
      await inner.release()
      asked = watched(lock.acquire())
      await settled()
    })
    expect(asked.state).toBe('pending')
    await outer.release()
    await settled()
    expect(asked.value.held).toBe(true)
  })

  test('where the outermost lease was lost: the line lets the work in when its entry has gone', async () => {
    const { locks, clock } = inMemory()
    const lock = locks.mutex('a')
    const outer = await lock.acquire()
    let asked = watched<Lease>(new Promise(() => {}))
    const nested = watched(
      lock.using({ within: outer }, async () => {
        clock.stall(TTL)
        asked = watched(lock.acquire())
        await settled()
        await settled()
      }),
    )
    await settled()
    await settled()
    await settled()
    expect(asked.value.held).toBe(true)
    expect(nested.error).toMatchObject({ code: 'LEASE_LOST', why: 'deadline' })
  })
})
