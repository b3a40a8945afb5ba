/** `once` on the memory engine: answers that are lost, callers that give up, and what is left of them in records. */
import { afterEach, describe, expect, test } from 'vitest'
import { faulty, type PlannedFault } from '../../conformance/faulty.ts'
import type { Engine } from '../../src/core/engine.ts'
import { EngineError, LeaseLostError } from '../../src/core/errors.ts'
import type { Store } from '../../src/core/store.ts'
import { MemoryServer, memory } from '../../src/engines/memory/index.ts'
import {
  type Once,
  type OnceWork,
  once,
  ReplayedFailureError,
  UnknownOutcomeError,
} from '../../src/recipes/once/index.ts'
import { fakeClock } from '../../src/testing.ts'
import { closeAll, fleet, gate, locksOn, turns } from './once-world.ts'

afterEach(closeAll)

/** A store that can only get and put. */
function plain(engine: Engine): Engine {
  const { traits, get, put, list } = engine.store as Store
  const store = engine.store as Store
  const own: Store = {
    traits,
    get: (keys) => get.call(store, keys),
    put: (changes) => put.call(store, changes),
    list: (prefix) => list.call(store, prefix),
  }
  return Object.assign(engine, { store: own })
}

async function world(inOneStep = true) {
  const clock = fakeClock()
  const server = new MemoryServer({ clock })
  const engineOf = (): Engine => (inOneStep ? memory({ server }) : plain(memory({ server })))
  const engine = faulty(engineOf())
  const options = { clock, ttl: '3s', callTimeout: '2s' } as const
  const asked = { crashed: 'ask', wait: '20s' } as const
  const pay = once(locksOn(engine, options), asked)
  const other = once(locksOn(engineOf(), options), asked)
  // The first call of a process also subscribes to news.
  await pay.run('warm', () => 1)
  await turns()
  return { clock, engine, pay, other }
}

const runs = async (pay: Once): Promise<unknown> => (await pay.run('a', ({ number }) => number)).value

test.each([
  ['that finds it', '4s', true],
  ['that finds it', '4s', false],
  ['that waits for it', '0s', true],
  ['that waits for it', '0s', false],
] as const)(
  'a caller %s and asks about a crash has nothing to take back (after %s, in one step: %s)',
  async (_, after, inOneStep) => {
    const { clock, of } = fleet(2, undefined, inOneStep)
    const asking = { crashed: 'ask', wait: '20s' } as const
    void once(of(0).locks, asking).run('a', () => new Promise(() => {}))
    await turns()
    of(0).stopped = true
    await clock.advance(after)
    const asked = once(of(1).locks, asking).run('a', () => 1)
    asked.catch(() => {})
    await clock.advance('5s')
    await expect(asked).rejects.toThrow(UnknownOutcomeError)
    await turns()
    const calls = [...of(1).turns]
    await clock.advance('20m')
    expect(of(1).turns).toEqual(calls)
  },
)

describe('an execution whose beginning was stored, and whose answer was lost,', () => {
  test.each([
    ['putEntering', true],
    ['enter', false],
    ['put', false],
  ] as const)('is no crash for its own caller, nor for others (%s)', async (verb, inOneStep) => {
    const { clock, engine, pay, other } = await world(inOneStep)
    const lost = engine.next(verb, 'lose reply')
    const asked = runs(pay)
    await lost.reached
    await clock.advance('4s')
    expect(await asked).toBe(1)
    expect(await runs(other)).toBe(1)
  })

  test('is taken back if its caller gives up', async () => {
    const { clock, engine, pay, other } = await world()
    const lost = engine.next('putEntering', 'lose reply')
    const asked = pay.run('a', { wait: 0 }, () => 1)
    await expect(asked).rejects.toThrow(EngineError)
    await lost.over
    await turns()
    await clock.advance('4s')
    expect(await runs(other)).toBe(1)
  })

  test('is taken back if its caller is cancelled before the answer comes', async () => {
    const { engine, pay, other } = await world()
    const held = engine.next('putEntering', 'hold reply')
    const stop = new AbortController()
    const asked = pay.run('a', { signal: stop.signal }, () => 1)
    await held.reached
    stop.abort(new Error('enough'))
    await expect(asked).rejects.toThrow('enough')
    held.release()
    await turns()
    expect(await runs(other)).toBe(1)
  })

  test.each([[true], [false]])('is taken back when the engine is there again (in one step: %s)', async (inOneStep) => {
    const { clock, engine, pay, other } = await world(inOneStep)
    const verb = inOneStep ? 'putEntering' : 'put'
    const held = engine.next(verb, 'hold reply')
    const asked = pay.run('a', { wait: 0 }, () => 1)
    asked.catch(() => {})
    await held.reached
    engine.cut()
    held.release()
    await clock.advance('10s')
    await expect(asked).rejects.toThrow(EngineError)
    engine.heal()
    await clock.advance('70s')
    expect(await runs(other)).toBe(1)
  })

  test.each(['0s', '10m'] as const)('is taken back if it arrives %s after its caller has given up', async (after) => {
    const { clock, engine, pay, other } = await world()
    const late = engine.next('putEntering', 'hold request, lose reply')
    const asked = pay.run('a', { wait: 0 }, () => 1)
    asked.catch(() => {})
    await late.reached
    await clock.advance('2500ms')
    await expect(asked).rejects.toThrow(EngineError)
    await turns()
    await clock.advance(after)
    late.release()
    await turns()
    await clock.advance('70s')
    expect(await runs(other)).toBe(1)
  })

  test('leaves what an execution before it has left: its id is not forgotten', async () => {
    const { clock, engine, pay, other } = await world()
    const first = await other.run('a', ({ id }) => Promise.reject(new Error(id))).catch((error: Error) => error.message)
    // The first entrance finds the failure. The second one is to run the work again, and is lost.
    engine.next('putEntering', 'repeat')
    const lost = engine.next('putEntering', 'lose reply')
    await expect(pay.run('a', { wait: 0 }, () => 1)).rejects.toThrow(EngineError)
    await lost.over
    await clock.advance('10s')
    const { attempt } = await other.run('a', () => 2)
    expect(attempt.id).toBe(first)
  })
})

describe('a result whose answer was lost', () => {
  test.each([['lose reply'], ['lose request'], ['repeat']] as const)(
    'is told, and not made again (%s)',
    async (fault) => {
      const { clock, engine, pay, other } = await world()
      let count = 0
      const lost = engine.next('putLeaving', fault)
      const asked = pay.run('a', () => ++count)
      await lost.over
      await clock.advance('1s')
      expect(await asked).toMatchObject({ value: 1, replayed: false })
      expect(await other.run('a', () => ++count)).toMatchObject({ value: 1, replayed: true })
      await clock.advance('1s')
      const locks = locksOn(engine)
      expect((await locks.inspect('once::a')).entries).toEqual([])
    },
  )
})

describe('an execution that has stored its end, and has no answer to that until its lease is lost,', () => {
  // Unless given, a call may take 5 s, and a lease has 8 s. The next renewal finds no entry: it has left its line.
  test.each(['8s', '3s'] as const)('answers what it has stored (ttl %s)', async (ttl) => {
    const clock = fakeClock()
    const engine = faulty(memory({ server: new MemoryServer({ clock }) }))
    const pay = once(locksOn(engine, { clock, ttl }))
    const declined = new Error('declined')
    const ends: Readonly<Record<string, OnceWork<string>>> = {
      charged: () => 'paid',
      declined: (attempt) => Promise.reject(attempt.final(declined)),
    }
    const told: Record<string, unknown> = {}
    for (const [key, end] of Object.entries(ends)) {
      const held = engine.next('putLeaving', 'hold reply')
      pay.run(key, end).then(
        (result) => Object.assign(told, { [key]: result }),
        (error: unknown) => Object.assign(told, { [key]: error }),
      )
      await held.reached
      await clock.advance('30s')
      held.release()
    }
    expect(told.charged).toMatchObject({ value: 'paid', replayed: false })
    expect(told.declined).toBe(declined)
  })
})

test('a final failure that was stored, and is put again for lack of an answer, is told as it was thrown', async () => {
  const clock = fakeClock()
  const engine = faulty(memory({ server: new MemoryServer({ clock }) }))
  const store = locksOn(engine, { clock, callTimeout: '2s' })
  const pay = once(locksOn(memory(), { clock, ttl: '10s' }), { store, crashed: 'ask', wait: '20s' })
  const planned = gate<PlannedFault>()
  const thrown = new Error('declined')
  const asked = pay.run('a', (attempt) => {
    engine.next('put', 'lose reply')
    planned.open(engine.next('put', 'hold request'))
    throw attempt.final(thrown)
  })
  asked.catch(() => {})
  const again = await planned.opened
  await clock.advance('1s')
  await again.reached
  // It gives up, and begins with a new put.
  await clock.advance('2s')
  await expect(asked).rejects.toBe(thrown)
  await expect(pay.run('a', () => 1)).rejects.toThrow(ReplayedFailureError)
  again.release()
})

describe('a process that stands still when it has begun, and before it is told so,', () => {
  test.each([[true], [false]])('does not work: others may (in one step: %s)', async (inOneStep) => {
    const { clock, engine, pay, other } = await world(inOneStep)
    const failing = gate<never>()
    const first = other.run('a', () => failing.opened)
    await turns()
    const ran: number[] = []
    const asked = pay.run('a', ({ number }) => ran.push(number))
    await turns()
    const held = engine.next('put', 'hold reply')
    failing.open(Promise.reject(new Error('failed')) as never)
    await expect(first).rejects.toThrow('failed')
    await held.reached
    clock.stall('4s')
    held.release()
    await expect(asked).rejects.toThrow(LeaseLostError)
    expect(ran).toEqual([])
    await turns()
    // It has not run, and is no crash.
    expect(await runs(other)).toBe(2)
  })
})

test('a process that has died is still told as a crash', async () => {
  const { clock, engine, pay, other } = await world()
  const died = pay.run('a', () => new Promise(() => {}))
  died.catch(() => {})
  await turns()
  engine.cut()
  await clock.advance('10s')
  await expect(runs(other)).rejects.toThrow(UnknownOutcomeError)
})
