/** `once` on the memory engine: executions that die, are paused, or throw, and what of them is kept. */
import { afterEach, describe, expect, test } from 'vitest'
import { LeaseLostError } from '../../src/core/errors.ts'
import type { LocksOptions } from '../../src/core/locks-options.ts'
import type { Change } from '../../src/core/store.ts'
import { MemoryServer, memory } from '../../src/engines/memory/index.ts'
import {
  type Attempt,
  InProgressError,
  KeyReusedError,
  type OnceOptions,
  once,
  ReplayedFailureError,
  UnknownOutcomeError,
} from '../../src/recipes/once/index.ts'
import { fakeClock } from '../../src/testing.ts'
import { closeAll, FakeProcess, fleet, gate, locksOn, turns } from './once-world.ts'

afterEach(closeAll)

describe('unless a ttl is given, here or to the locks,', () => {
  async function crashed(ofLocks: LocksOptions, options: OnceOptions = {}) {
    const clock = fakeClock()
    const server = new MemoryServer({ clock })
    const [first, second] = [0, 1].map(() => new FakeProcess(server, { clock, ...ofLocks })) as [
      FakeProcess,
      FakeProcess,
    ]
    const begun = gate()
    const asked = once(first.locks, options).run('a', () => {
      begun.open()
      return new Promise(() => {})
    })
    asked.catch(() => {})
    await begun.opened
    await turns()
    first.stopped = true
    const duplicate = once(second.locks, options).run('a', (attempt) => attempt.number)
    return { clock, duplicate: duplicate.catch((error: unknown) => error) }
  }

  test('a duplicate that comes right after a crash takes over within its wait', async () => {
    const { clock, duplicate } = await crashed({})
    await clock.advance('11s')
    expect(await duplicate).toMatchObject({ value: 2, replayed: false })
  })

  test.each([
    ['here', {}, { ttl: '12s' }],
    ['to the locks', { ttl: '12s' }, {}],
    ['to the locks, and it is their default', { ttl: '30s' }, {}],
  ] as const)('and one that is given %s is kept to', async (_, ofLocks, options) => {
    const { clock, duplicate } = await crashed(ofLocks, options)
    await clock.advance('11s')
    expect(await duplicate).toBeInstanceOf(InProgressError)
  })
})

describe.each([
  ['on a store that enters and leaves lines', true],
  ['on any store', false],
])('an execution that died, %s,', (_, inOneStep) => {
  /** One process runs and stops; another one asks for the same. */
  async function taken(options: OnceOptions = {}) {
    const { clock, of } = fleet(2, undefined, inOneStep)
    const working = gate<unknown>()
    const attempts: Attempt[] = []
    const first = once(of(0).locks, options).run('a', { fingerprint: 'body' }, async (attempt) => {
      attempts.push(attempt)
      await attempt.step('charge', () => ({ charge: 1 }))
      return working.opened
    })
    first.catch(() => {})
    await turns()
    await expect.poll(() => attempts.length).toBe(1)
    await turns()
    of(0).stopped = true
    return { clock, first, working, attempts, other: once(of(1).locks, options), of }
  }

  test('is taken over after its ttl, with the same id and a higher number, and steps that were done are skipped', async () => {
    const { clock, attempts, other } = await taken()
    const second = other.run('a', async (attempt) => {
      attempts.push(attempt)
      const charge = await attempt.step('charge', () => 'again')
      return { charge, at: attempt.number }
    })
    await clock.advance('4s')
    const [one, two] = attempts as [Attempt, Attempt]
    expect(await second).toEqual({
      value: { charge: { charge: 1 }, at: 2 },
      replayed: false,
      attempt: { id: one.id, number: 2 },
    })
    expect(two.id).toBe(one.id)
    expect(two.token as bigint).toBeGreaterThan(one.token as bigint)
    expect(one.signal.aborted).toBe(true)
  })

  test('and lives on cannot store its result any more: it is given that of the execution after it', async () => {
    const { clock, first, working, other } = await taken()
    const second = other.run('a', () => 'second')
    await clock.advance('4s')
    await second
    working.open('first')
    expect(await first).toMatchObject({ value: 'second', replayed: true, attempt: { number: 2 } })
    expect((await other.run('a', () => 'third')).value).toBe('second')
  })

  test('and lives on, while the one after it still works, learns that it was replaced', async () => {
    const { clock, first, working, other } = await taken()
    const second = gate<string>()
    const running = other.run('a', () => second.opened)
    await clock.advance('4s')
    working.open('first')
    await expect(first).rejects.toThrow(LeaseLostError)
    second.open('second')
    expect(await running).toMatchObject({ value: 'second', replayed: false })
  })

  test('and lives on stores its result if no other execution has begun meanwhile', async () => {
    const { clock, first, working, other } = await taken()
    await clock.advance('10s')
    working.open('late')
    expect(await first).toMatchObject({ value: 'late', replayed: false })
    expect(await other.run('a', () => 'second')).toMatchObject({ value: 'late', replayed: true })
  })

  test('is left to the user, if that is asked for', async () => {
    const { clock, attempts, other } = await taken({ crashed: 'ask' })
    const asked = other.run('a', () => 'second')
    const refused = expect(asked).rejects.toMatchObject({ code: 'UNKNOWN_OUTCOME', attempt: { number: 1 } })
    await clock.advance('4s')
    await refused
    await expect(asked).rejects.toThrow(UnknownOutcomeError)
    await expect(other.run('a', { fingerprint: 'else' }, () => 1)).rejects.toThrow(KeyReusedError)
    const again = await other.run('a', { crashed: 'retry' }, () => 'looked it up')
    expect(again).toMatchObject({ value: 'looked it up', attempt: { id: attempts[0]?.id, number: 2 } })
  })

  test('cannot store a step any more once it was replaced', async () => {
    const { clock, attempts, other } = await taken()
    const second = other.run('a', () => 'second')
    await clock.advance('4s')
    await second
    let worked = 0
    await expect(attempts[0]?.step('mail', () => ++worked)).rejects.toThrow(LeaseLostError)
    expect(worked).toBe(0)
  })
})

describe('a failure', () => {
  test('is given to its caller, and the next one runs the work again, without the steps that were done', async () => {
    const pay = once(locksOn(memory()))
    const ids: string[] = []
    const failing = pay.run('a', async (attempt) => {
      ids.push(attempt.id)
      await attempt.step('charge', () => 'charged')
      throw new Error('no mail')
    })
    await expect(failing).rejects.toThrow('no mail')
    const again = await pay.run('a', { crashed: 'ask' }, async (attempt) => {
      ids.push(attempt.id)
      return [attempt.number, await attempt.step('charge', () => 'again')]
    })
    expect(again).toMatchObject({ value: [2, 'charged'], replayed: false })
    expect(new Set(ids).size).toBe(1)
  })

  test('is not given to the duplicates that wait: the next of them runs the work', async () => {
    const { of } = fleet(3)
    const working = gate()
    const numbers: number[] = []
    const work = async (attempt: Attempt): Promise<number> => {
      numbers.push(attempt.number)
      await working.opened
      if (attempt.number < 4) throw new Error(`failed ${attempt.number}`)
      return attempt.number
    }
    const asked = [0, 1, 2].flatMap((nth) => {
      const pay = once(of(nth).locks)
      return [pay.run('a', work), pay.run('a', work)]
    })
    const settled = Promise.allSettled(asked)
    await expect.poll(() => numbers).toEqual([1])
    working.open()
    const results = await settled
    expect(numbers).toEqual([1, 2, 3, 4])
    expect(results.filter(({ status }) => status === 'rejected')).toHaveLength(3)
    for (const result of results) if (result.status === 'fulfilled') expect(result.value.value).toBe(4)
  })

  test.each(['final', 'keep'] as const)('that is %s is replayed, with its fields', async (how) => {
    const pay = once(locksOn(memory()), how === 'keep' ? { failures: 'keep' } : {})
    const declined = Object.assign(new RangeError('no money'), {
      code: 'card_declined',
      circle: {} as unknown,
      big: 1n,
    })
    declined.circle = declined
    const first = pay.run('a', (attempt) => {
      throw how === 'keep' ? declined : attempt.final(declined)
    })
    await expect(first).rejects.toBe(declined)
    const replay = pay.run('a', () => 'again')
    await expect(replay).rejects.toThrow(ReplayedFailureError)
    await expect(replay).rejects.toMatchObject({
      attempt: { number: 1 },
      failure: { name: 'RangeError', message: 'no money', fields: { code: 'card_declined' } },
    })
  })

  test('to store the result is final: the work is done, and is not done again', async () => {
    const pay = once(locksOn(memory()))
    await expect(pay.run('a', () => 'x'.repeat(70_000))).rejects.toThrow(/at most 65536 can be stored/)
    await expect(pay.run('a', () => 'again')).rejects.toThrow(/failed for good before: RangeError/)
    await expect(pay.run('b', () => 1n)).rejects.toThrow(/cannot be stored/)
  })
})

describe('steps', () => {
  test('can run side by side, and are stored each by its name', async () => {
    const pay = once(locksOn(memory()))
    let runs = 0
    const failing = pay.run('a', async (attempt) => {
      const both = await Promise.all([
        attempt.step('a', () => ++runs),
        attempt.step('b', () => ++runs),
        attempt.step('a', () => ++runs),
      ])
      expect(both).toEqual([1, 2, 1])
      await expect(attempt.step('c', () => Promise.reject(new Error('once')))).rejects.toThrow('once')
      expect(await attempt.step('c', () => 'twice')).toBe('twice')
      throw new Error('crash')
    })
    await expect(failing).rejects.toThrow('crash')
    const again = await pay.run('a', (attempt) =>
      Promise.all(['a', 'b', 'c'].map((name) => attempt.step(name, () => 'again'))),
    )
    expect(again.value).toEqual([1, 2, 'twice'])
  })
})

/** What these tests are worth: each of the conditions left out is seen. */
describe('with a store that leaves out', () => {
  test('holding, duplicates take an execution for dead', async () => {
    const without = (change: Change): Change => {
      const { holding: _, ...when } = change.when
      return { ...change, when }
    }
    const outcomes = async (change?: (change: Change) => Change): Promise<ReadonlySet<string>> => {
      const { of } = fleet(2, change)
      // The put of the holder comes behind that of the duplicate, and before the duplicate can take it back.
      of(0).putDelay = () => 5
      of(1).putDelay = (nth) => (nth === 1 ? 0 : 20)
      const asked = [0, 1].map((nth) =>
        once(of(nth).locks, { crashed: 'ask' })
          .run('a', () => 'paid')
          .then(
            ({ value }) => value,
            (error: Error) => error.name,
          ),
      )
      return new Set(await Promise.all(asked))
    }
    expect(await outcomes()).toEqual(new Set(['paid']))
    expect(await outcomes(without)).toContain('UnknownOutcomeError')
  })

  test('every condition, the result of a paused execution lands on that of the next', async () => {
    const last = async (change?: (change: Change) => Change): Promise<unknown> => {
      const { clock, of } = fleet(2, change)
      const working = gate<string>()
      const first = once(of(0).locks).run('a', () => working.opened)
      await turns()
      of(0).stopped = true
      const other = once(of(1).locks)
      const second = other.run('a', () => 'second')
      await clock.advance('4s')
      await second
      working.open('first')
      await first.catch(() => {})
      return (await other.run('a', { crashed: 'ask' }, () => 'third')).value
    }
    expect(await last()).toBe('second')
    // `started` still has its condition: without it, every call would run.
    const isResult = ({ value }: Change): boolean => Buffer.from(value ?? []).includes('"state":"done"')
    expect(await last((change) => (isResult(change) ? { ...change, when: {} } : change))).toBe('first')
  })
})

test('a duplicate is not told to wait for longer than the lease of an execution that died', async () => {
  const { clock, of } = fleet(2)
  once(of(0).locks)
    .run('a', () => new Promise(() => {}))
    .catch(() => {})
  await clock.advance('10s')
  of(0).stopped = true
  // Its lease has 3 s from its last renewal on, of which at most 1 s had passed.
  await clock.advance('1500ms')
  const other = once(of(1).locks)
  const told = async (wait: number): Promise<number> => {
    const asked = other.run('a', { wait }, () => 'again').catch((error: unknown) => error as InProgressError)
    await turns()
    if (wait > 0) await clock.advance(wait)
    return ((await asked) as InProgressError).retryAfterMs
  }
  expect(await told(0)).toBeLessThanOrEqual(1_500)
  expect(await told(100)).toBeLessThanOrEqual(1_400)
  expect(await told(100), 'and not to come at once').toBeGreaterThanOrEqual(1_000)
})
