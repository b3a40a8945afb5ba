/** `using`: acquire, work, release, and say how it went. */
import { describe, expect, test } from 'vitest'
import { LeaseLostError } from '../../src/core/errors.ts'
import type { Lease } from '../../src/core/lease.ts'
import { held, unreachable } from './scripted-engine.ts'
import { gate, inMemory, scripted, settled, TTL, watched } from './world.ts'

describe('the work', () => {
  test('gets the lease, and its result is the result', async () => {
    const { locks } = inMemory()
    const result = await locks.mutex('a').using(async (lease) => {
      expect(lease).toMatchObject({ key: 'a', held: true, token: 1n })
      return 42
    })
    expect(result).toBe(42)
    expect(await locks.mutex('a').tryAcquire()).toBeDefined()
  })

  test('may be synchronous', async () => {
    const { locks } = inMemory()
    await expect(locks.mutex('a').using(() => 42)).resolves.toBe(42)
    await expect(locks.mutex('a').using(() => fail('sync'))).rejects.toThrow('sync')
  })

  test('that throws: its own error comes out, and the lock is released', async () => {
    const { locks } = inMemory()
    const error = new Error('mine')
    await expect(locks.mutex('a').using(() => Promise.reject(error))).rejects.toBe(error)
    expect(await locks.mutex('a').tryAcquire()).toBeDefined()
  })

  test('takes options first, if there are any', async () => {
    const { clock, locks } = inMemory()
    await locks.mutex('a').acquire()
    const asked = watched(locks.mutex('a').using({ wait: '1s' }, () => 'never'))
    await clock.advance('1s')
    expect(asked.error).toMatchObject({ code: 'ACQUIRE_TIMEOUT' })
  })

  test('that is no function is a TypeError, before anything is asked', async () => {
    const { engine, locks } = scripted()
    const wrong = undefined as unknown as () => void
    await expect(locks.mutex('a').using({}, wrong)).rejects.toThrow(TypeError)
    await expect(locks.all([locks.mutex('a')]).using({}, wrong)).rejects.toThrow(TypeError)
    await expect(locks.election('a').lead({}, wrong)).rejects.toThrow(TypeError)
    expect(engine.log).toEqual([])
  })
})

describe('a lease that was lost before the work settled', () => {
  async function lostDuring(work: (lease: Lease) => Promise<unknown>): Promise<unknown> {
    const { clock, locks } = inMemory()
    const running = watched(
      locks.mutex('a').using(async (lease) => {
        clock.stall(TTL)
        return work(lease)
      }),
    )
    await settled()
    // After a stall the engine lets the event loop turn before it answers the release.
    await settled()
    return running.error
  }

  test('rejects although the work succeeded', async () => {
    const error = await lostDuring(async () => 'done')
    expect(error).toBeInstanceOf(LeaseLostError)
    expect(error).toMatchObject({ key: 'a', token: 1n, why: 'deadline' })
  })

  test('rejects with what the work threw as the cause', async () => {
    const cause = new Error('of the work')
    const error = await lostDuring(() => Promise.reject(cause))
    expect(error).toBeInstanceOf(LeaseLostError)
    expect(error).toMatchObject({ cause })
  })

  test('is not its own cause', async () => {
    const error = await lostDuring(async (lease) => lease.assertHeld())
    expect(error).toBeInstanceOf(LeaseLostError)
    expect(error).not.toHaveProperty('cause')
  })

  test('but released by the work itself in time is no loss', async () => {
    const { clock, locks } = inMemory()
    const running = locks.mutex('a').using(async (lease) => {
      expect(await lease.release()).toBe(true)
      clock.stall(TTL)
      return 'done'
    })
    await expect(running).resolves.toBe('done')
  })

  test('is told to the work at once, by the signal', async () => {
    const { clock, locks } = inMemory()
    const server = watched(
      locks.mutex('a').using(async (lease) => {
        await locks.evict('a', lease.token as bigint, 'now')
        await new Promise((resolve) => lease.signal.addEventListener('abort', resolve))
        return lease.signal.reason as unknown
      }),
    )
    await clock.advance(0)
    expect(server.error).toMatchObject({ code: 'LEASE_LOST', why: 'evicted' })
  })
})

describe('the release', () => {
  test('that fails does not mask the result', async () => {
    const { engine, locks } = scripted()
    const running = watched(locks.mutex('a').using(() => 42))
    await (await engine.next('enter')).answer(held(1n))
    await (await engine.next('leave')).fail(unreachable())
    expect(running.value).toBe(42)
  })

  test('that fails does not mask the error', async () => {
    const { engine, locks } = scripted()
    const error = new Error('mine')
    const running = watched(locks.mutex('a').using(() => Promise.reject(error)))
    await (await engine.next('enter')).answer(held(1n))
    await (await engine.next('leave')).fail(unreachable())
    expect(running.error).toBe(error)
  })

  test('comes also when the caller has aborted meanwhile', async () => {
    const { engine, locks } = scripted()
    const controller = new AbortController()
    const done = gate()
    const running = watched(locks.mutex('a').using({ signal: controller.signal }, () => done.opened))
    await (await engine.next('enter')).answer(held(1n))
    controller.abort(new Error('enough'))
    done.open()
    await (await engine.next('leave')).answer(true)
    expect(running.state).toBe('resolved')
  })

  test('comes at the end of the block, with `await using`', async () => {
    const { locks } = inMemory()
    {
      await using lease = await locks.mutex('a').acquire()
      expect(lease.held).toBe(true)
      expect(await locks.mutex('a').tryAcquire()).toBeUndefined()
    }
    expect(await locks.mutex('a').tryAcquire()).toBeDefined()
  })

  test('of all locks comes at the end of the block, with `await using`', async () => {
    const { locks, engine } = inMemory()
    {
      await using mine = locks
      await mine.mutex('a').acquire()
    }
    expect((await engine.inspect('a')).entries).toEqual([])
  })
})

function fail(message: string): never {
  throw new Error(message)
}
