/** Elections: leading, resigning, being replaced, and watching who leads. */
import { describe, expect, test } from 'vitest'
import { DeadlockError, LeaseLostError } from '../../src/core/errors.ts'
import type { Lease } from '../../src/core/lease.ts'
import { MemoryServer, memory } from '../../src/engines/memory/index.ts'
import { createLocks, type Locks } from '../../src/locks.ts'
import type { Leader } from '../../src/primitives/election.ts'
import { lineEntry } from './scripted-engine.ts'
import { type CountingClock, countingClock, gate, scripted, settled, TTL, watched } from './world.ts'

interface World {
  readonly clock: CountingClock
  /** Each candidate is a process of its own. */
  candidate(name: string): Locks
}

function world(): World {
  const clock = countingClock()
  const server = new MemoryServer({ clock })
  return { clock, candidate: (holder) => createLocks(memory({ server }), { clock, ttl: TTL, holder }) }
}

describe('leading', () => {
  test('is work under a lease; returning resigns, and the next one leads', async () => {
    const { candidate } = world()
    const done = gate()
    const first = watched(
      candidate('one')
        .election('jobs')
        .lead(async (lease) => {
          await done.opened
          return lease.token
        }),
    )
    await settled()
    const second = watched(
      candidate('two')
        .election('jobs')
        .lead((lease) => lease.token),
    )
    await settled()
    expect(second.state).toBe('pending')
    done.open()
    await settled()
    expect(first.value).toBe(1n)
    expect(second.value, 'a later term has a higher token').toBe(2n)
  })

  test('is given up when campaigning is: by patience or by the signal', async () => {
    const { clock, candidate } = world()
    const never = gate()
    void candidate('one')
      .election('jobs')
      .lead(() => never.opened)
    await settled()
    const election = candidate('two').election('jobs')
    const impatient = watched(election.lead({ wait: '1s' }, () => 'led'))
    const controller = new AbortController()
    const cancelled = watched(election.lead({ signal: controller.signal }, () => 'led'))
    await clock.advance('1s')
    controller.abort('enough')
    await settled()
    expect(impatient.error).toMatchObject({ code: 'ACQUIRE_TIMEOUT' })
    expect(cancelled.error).toBe('enough')
  })

  test('inside leading is a DeadlockError', async () => {
    const election = world().candidate('one').election('jobs')
    await expect(election.lead(() => election.lead(() => 'never'))).rejects.toBeInstanceOf(DeadlockError)
  })

  test('that is lost rejects, unless asked to campaign again', async () => {
    const { clock, candidate } = world()
    const lead = (again: boolean): Promise<bigint | null> => {
      let terms = 0
      return candidate('one')
        .election('jobs')
        .lead({ again }, async (lease) => {
          terms += 1
          if (terms === 1) {
            clock.stall(TTL)
            lease.assertHeld()
          }
          return lease.token
        })
    }
    await expect(lead(false)).rejects.toBeInstanceOf(LeaseLostError)
    await expect(lead(true)).resolves.toBe(3n)
  })

  test('again ends with the first error that is not a loss of this lease', async () => {
    const { clock, candidate } = world()
    const locks = candidate('one')
    let terms = 0
    const elsewhere = locks.election('jobs').lead({ again: true }, async () => {
      terms += 1
      if (terms > 3) return 'endless'
      throw new LeaseLostError('something else', 1n, 'expired')
    })
    await expect(elsewhere).rejects.toMatchObject({ key: 'something else' })
    expect(terms).toBe(1)
    await clock.advance(0)
    await expect(
      locks.election('jobs').lead({ again: true }, () => {
        throw new Error('mine')
      }),
    ).rejects.toThrow('mine')
  })

  test('again ends with the loss of a lease that was nested in this one, which is no loss of the term', async () => {
    const { clock, candidate } = world()
    const locks = candidate('one')
    const ends: ((term: Lease) => unknown)[] = [
      (term) => locks.mutex('a').using({ within: term, maxHold: '10ms' }, () => clock.stall('20ms')),
      async (term) => {
        const around = await locks.mutex('a').acquire({ within: term })
        await locks.mutex('a').acquire({ within: around })
        const waiting = locks.mutex('a').acquire({ within: around })
        await around.release()
        await waiting
      },
      async (term) => {
        await term.release()
        term.assertHeld()
      },
    ]
    const told: unknown[] = []
    for (const end of ends) {
      let terms = 0
      const led = locks.election('a').lead({ again: true }, (term) => (++terms > 1 ? 'stood again' : end(term)))
      told.push(await led.catch(({ why }) => why))
    }
    expect(told).toEqual(['maxHold', 'released', 'released'])
  })

  test('again ends when the locks are closed, and when the signal is aborted', async () => {
    const { clock, candidate } = world()
    const locks = candidate('one')
    const never = gate()
    const closed = watched(
      locks.election('jobs').lead({ again: true }, (lease) => {
        lease.signal.addEventListener('abort', () => never.open())
        return never.opened
      }),
    )
    await settled()
    await locks.close()
    await settled()
    expect(closed.error).toMatchObject({ code: 'LEASE_LOST', why: 'closed' })

    const controller = new AbortController()
    const cancelled = candidate('two')
      .election('jobs')
      .lead({ again: true, signal: controller.signal }, () => {
        controller.abort('enough')
        clock.stall(TTL)
      })
    await expect(cancelled).rejects.toBe('enough')
  })
})

describe('who leads', () => {
  test('is the holder and its term, or undefined', async () => {
    const { candidate } = world()
    const election = candidate('one').election('jobs')
    expect(await election.leader()).toBeUndefined()
    await election.lead(async () => expect(await election.leader()).toEqual({ holder: 'one', token: 1n }))
    expect(await election.leader()).toBeUndefined()
  })

  /** What an observer sees. */
  function observe(
    election: ReturnType<Locks['election']>,
    signal?: AbortSignal,
  ): { seen: (string | undefined)[]; ended: Promise<void> } {
    const seen: (string | undefined)[] = []
    const watch = async (): Promise<void> => {
      for await (const leader of election.observe(signal === undefined ? {} : { signal }))
        seen.push(leader && `${leader.holder} ${leader.token}`)
    }
    return { seen, ended: watch() }
  }

  test('is observed from now on, change by change, until the signal ends it', async () => {
    const { clock, candidate } = world()
    const controller = new AbortController()
    const { seen, ended } = observe(candidate('observer').election('jobs'), controller.signal)
    await settled()
    expect(seen).toEqual([undefined])
    for (const name of ['one', 'two']) {
      await candidate(name)
        .election('jobs')
        .lead(() => settled())
      await settled()
    }
    expect(seen).toEqual([undefined, 'one 1', undefined, 'two 2', undefined])
    controller.abort()
    await ended
    expect(clock.alive).toBe(0)
  })

  test('is observed also when a leader dies without a word, as soon as its time is over', async () => {
    const { clock, candidate } = world()
    const controller = new AbortController()
    const { seen, ended } = observe(candidate('observer').election('jobs'), controller.signal)
    await settled()
    // It enters, and is not renewed.
    await candidate('dying').engine.enter([
      { key: 'jobs', id: 'x', holder: 'dying', weight: 1, limit: 1, ttlMs: 1000, wait: true },
    ])
    await clock.advance(999)
    expect(seen).toEqual([undefined, 'dying 1'])
    await clock.advance(1)
    expect(seen).toEqual([undefined, 'dying 1', undefined])
    controller.abort()
    await ended
  })

  test('is not repeated when nothing has changed', async () => {
    const { clock, candidate } = world()
    const controller = new AbortController()
    await candidate('one').mutex('jobs').acquire()
    const { seen, ended } = observe(candidate('observer').election('jobs'), controller.signal)
    await clock.advance('10m')
    expect(seen).toEqual(['one 1'])
    controller.abort()
    await ended
  })

  test('is observed also without news from the engine, by looking now and then', async () => {
    const { engine, clock, locks } = scripted()
    let leader: Leader | undefined
    engine.inspecting = async (key) => ({ key, entries: leader === undefined ? [] : [lineEntry(leader)] })
    const controller = new AbortController()
    const { seen, ended } = observe(locks.election('jobs'), controller.signal)
    await settled()
    leader = { holder: 'one', token: 1n }
    await clock.advance(TTL / 10)
    expect(seen).toEqual([undefined, 'one 1'])
    controller.abort()
    await ended
  })

  test('goes on being observed after a passing error of the engine', async () => {
    const { engine, clock, locks } = scripted()
    engine.inspecting = () => Promise.reject(new Error('blip'))
    const controller = new AbortController()
    const { seen, ended } = observe(locks.election('jobs'), controller.signal)
    const state = watched(ended)
    await clock.advance(TTL / 10)
    engine.inspecting = async (key) => ({ key, entries: [lineEntry({ holder: 'one', token: 1n })] })
    await clock.advance(TTL / 5)
    expect(state.state).toBe('pending')
    expect(seen).toEqual(['one 1'])
    controller.abort()
    await ended
  })

  test('goes on being observed after a passing error also by an observer who took its time', async () => {
    const { engine, clock, locks } = scripted()
    const leaders = locks.election('jobs').observe()
    await leaders.next()
    await clock.advance(2 * TTL)
    engine.inspecting = () => Promise.reject(new Error('blip'))
    const next = watched(leaders.next())
    await clock.advance(TTL / 10)
    engine.inspecting = async (key) => ({ key, entries: [lineEntry({ holder: 'one', token: 1n })] })
    await clock.advance(TTL / 5)
    expect(next.value).toMatchObject({ value: { holder: 'one' } })
    await leaders.return()
  })

  test('ends for an observer who leaves the loop', async () => {
    const { clock, candidate } = world()
    for await (const leader of candidate('observer').election('jobs').observe()) {
      expect(leader).toBeUndefined()
      break
    }
    expect(clock.alive).toBe(0)
  })

  test('ends for an observer who asks for the end while it waits for the next leader', async () => {
    const { clock, candidate } = world()
    const leaders = candidate('observer').election('jobs').observe()
    await leaders.next()
    const next = watched(leaders.next())
    await settled()
    const ended = watched(leaders.return())
    await clock.advance('10m')
    expect([next.state, ended.state]).toEqual(['resolved', 'resolved'])
    expect(clock.alive).toBe(0)
  })

  test('an aborted signal yields nothing', async () => {
    const { candidate } = world()
    const { seen, ended } = observe(candidate('observer').election('jobs'), AbortSignal.abort())
    await ended
    expect(seen).toEqual([])
  })
})
