/** `once` on the memory engine: who runs, what is replayed, and what becomes of crashes and failures. */
import { afterEach, describe, expect, test } from 'vitest'
import { delegate } from '../../conformance/delegate.ts'
import { EngineError, UnsupportedError } from '../../src/core/errors.ts'
import { memory } from '../../src/engines/memory/index.ts'
import {
  InProgressError,
  KeyReusedError,
  type OnceOptions,
  type OnceRunOptions,
  once,
} from '../../src/recipes/once/index.ts'
import { closeAll, FakeProcess, fleet, gate, locksOn, turns } from './once-world.ts'

afterEach(closeAll)

test('the first call runs the work, and those after it are given what it answered', async () => {
  const pay = once(locksOn(memory()))
  let runs = 0
  const work = (): object => ({ paid: ++runs })
  const first = await pay.run('order-1', work)
  expect(first).toEqual({ value: { paid: 1 }, replayed: false, attempt: { id: expect.any(String), number: 1 } })
  expect(await pay.run('order-1', work)).toEqual({ ...first, replayed: true })
  expect((await pay.run('order-2', work)).value).toEqual({ paid: 2 })
})

test.each([[undefined], [null], [false], ['']])('%j is a result, too', async (value) => {
  const pay = once(locksOn(memory()))
  expect(await pay.run('a', () => value)).toMatchObject({ value, replayed: false })
  expect(await pay.run('a', () => 'again')).toMatchObject({ value, replayed: true })
})

test('the first caller and the others get the same, as it was stored', async () => {
  const pay = once(locksOn(memory()))
  const at = new Date(0)
  const first = await pay.run<unknown>('a', () => ({ at }))
  expect(first.value).toEqual({ at: at.toISOString() })
  expect((await pay.run('a', () => 1)).value).toEqual(first.value)
})

test('an execution takes two calls, and a replay takes one, where the store enters and leaves lines', async () => {
  const process = new FakeProcess()
  const pay = once(process.locks)
  await pay.run('a', () => {
    expect(process.turns).toEqual(['putEntering'])
    return 1
  })
  await turns()
  expect(process.turns).toEqual(['putEntering', 'putLeaving'])
  process.turns.length = 0
  expect(await pay.run('a', () => 2)).toMatchObject({ value: 1, replayed: true })
  await turns()
  expect(process.turns).toEqual(['putEntering'])
  expect((await process.locks.inspect('once::a')).entries).toEqual([])
})

test('an execution takes two round trips, and a replay takes one, on any store', async () => {
  const process = new FakeProcess(undefined, {}, undefined, false)
  const pay = once(process.locks)
  // The first call of a process also subscribes to news.
  await pay.run('warm', () => 1)
  await turns()
  process.turns.length = 0
  await pay.run('a', () => {
    expect(process.turns).toEqual(['enter + put'])
    return 1
  })
  // The leave is not waited for: it follows.
  expect(process.turns).toEqual(['enter + put', 'put'])
  await turns()
  expect(process.turns).toEqual(['enter + put', 'put', 'leave'])
  process.turns.length = 0
  expect(await pay.run('a', () => 2)).toMatchObject({ value: 1, replayed: true })
  expect(process.turns).toEqual(['enter + put'])
})

describe('duplicates', () => {
  test('wait, and are answered by one execution, in all processes', async () => {
    const { of } = fleet(4)
    const working = gate<string>()
    let runs = 0
    const work = async (): Promise<string> => {
      runs += 1
      return working.opened
    }
    const asked = [0, 1, 2, 3].flatMap((nth) => {
      const pay = once(of(nth).locks)
      return Array.from({ length: 20 }, () => pay.run('a', work))
    })
    await expect.poll(() => runs).toBe(1)
    working.open('paid')
    const results = await Promise.all(asked)
    expect(new Set(results.map(({ value }) => value))).toEqual(new Set(['paid']))
    expect(results.filter(({ replayed }) => !replayed)).toHaveLength(1)
    expect(runs).toBe(1)
    // One entry for each process: the duplicates of a process wait inside of it.
    const { entries } = await of(0).locks.inspect('once::a')
    expect(entries.length).toBeLessThanOrEqual(4)
  })

  test('that do not wait, or not for long enough, are told when to ask again', async () => {
    const { clock, of } = fleet(2)
    const working = gate<string>()
    const running = once(of(0).locks).run('a', () => working.opened)
    const other = once(of(1).locks, { wait: '1s' })
    await turns()
    const now = other.run('a', { wait: 0 }, () => 'again')
    await expect(now).rejects.toMatchObject({ code: 'IN_PROGRESS', retryAfterMs: 1_000, attempt: { number: 1 } })
    const later = expect(other.run('a', () => 'again')).rejects.toThrow(InProgressError)
    const same = expect(other.run('a', () => 'again')).rejects.toThrow(/'a' is in progress \(attempt 1\): ask again in/)
    await clock.advance('2s')
    await later
    await same
    const long = other.run('a', { wait: 0 }, () => 'again')
    await expect(long).rejects.toMatchObject({ retryAfterMs: 2_000 })
    working.open('paid')
    expect((await running).value).toBe('paid')
    expect((await other.run('a', { wait: 0 }, () => 'again')).value).toBe('paid')
  })

  test('can be cancelled while they wait, and leave nothing behind', async () => {
    const { of } = fleet(2)
    const working = gate<string>()
    const running = once(of(0).locks).run('a', () => working.opened)
    await turns()
    const controller = new AbortController()
    const other = once(of(1).locks)
    const asked = [other, other].map((pay) => pay.run('a', { signal: controller.signal }, () => 'again'))
    await turns()
    controller.abort(new Error('gone home'))
    for (const one of asked) await expect(one).rejects.toThrow('gone home')
    working.open('paid')
    await running
    await turns()
    expect((await of(0).locks.inspect('once::a')).entries).toEqual([])
    expect(await other.run('a', { signal: AbortSignal.abort(new Error('before')) }, () => 1).catch(String)).toMatch(
      /before/,
    )
  })

  test('a call that is cancelled before its work begins is not taken for a crash', async () => {
    const { clock, of } = fleet(1)
    const pay = once(of(0).locks, { crashed: 'ask' })
    const controller = new AbortController()
    const asked = expect(pay.run('a', { signal: controller.signal }, () => 1)).rejects.toThrow('gone home')
    controller.abort(new Error('gone home'))
    await asked
    await clock.advance('1s')
    expect(await pay.run('a', () => 2)).toMatchObject({ value: 2, attempt: { number: 1 } })
  })

  test('a request inside the work of the same request waits for itself, and not for ever', async () => {
    const { clock, of } = fleet(1)
    const pay = once(of(0).locks, { wait: '1s' })
    const nested = expect(pay.run('a', async () => pay.run('a', () => 1))).rejects.toThrow(InProgressError)
    await turns()
    await clock.advance('2s')
    await nested
  })
})

describe('a fingerprint', () => {
  test('that differs is refused, before and after the result, and while the first one is in progress', async () => {
    const { of } = fleet(2)
    const working = gate<string>()
    const [pay, other] = [once(of(0).locks), once(of(1).locks)]
    const running = pay.run('a', { fingerprint: { cents: 5, to: 'x' } }, () => working.opened)
    await turns()
    for (const recipe of [pay, other]) {
      await expect(recipe.run('a', { fingerprint: { cents: 6 } }, () => 1)).rejects.toThrow(KeyReusedError)
      await expect(recipe.run('a', { fingerprint: { cents: 6 }, wait: 0 }, () => 1)).rejects.toThrow(KeyReusedError)
    }
    const duplicate = other.run('a', { fingerprint: { to: 'x', cents: 5 } }, () => 'again')
    working.open('paid')
    expect(await duplicate).toMatchObject({ value: 'paid', replayed: true })
    await running
    await expect(other.run('a', { fingerprint: 'other' }, () => 1)).rejects.toThrow(KeyReusedError)
    expect((await other.run('a', () => 1)).value).toBe('paid')
  })

  test('of a call that waits is looked at again when its turn comes', async () => {
    const { of } = fleet(2)
    const [pay, other] = [once(of(0).locks), once(of(1).locks)]
    // The holder has not stored anything yet: this is the line without a record.
    const lease = await of(0).locks.mutex('once::a').acquire()
    const first = pay.run('a', { fingerprint: 1 }, () => 'paid')
    await turns()
    const second = expect(other.run('a', { fingerprint: 2 }, () => 'again')).rejects.toThrow(KeyReusedError)
    await turns()
    await lease.release()
    expect((await first).value).toBe('paid')
    await second
  })
})

test('the keys of two scopes, and of two names, never meet', async () => {
  const locks = locksOn(memory())
  const pay = once(locks)
  const calls: [string, string | undefined, string][] = [
    ['once', undefined, 'a'],
    ['once', 'x', 'a'],
    ['once', 'x:a', 'a'],
    ['once', 'x', 'a:a'],
    ['once', 'x%3Aa', 'a'],
    ['refund', 'x', 'a'],
    ['once:x', undefined, 'a'],
  ]
  const values = []
  for (const [name, scope, key] of calls) {
    const recipe = name === 'once' ? pay : once(locks, { name })
    values.push((await recipe.run(key, scope === undefined ? {} : { scope }, () => values.length)).value)
  }
  expect(values).toEqual(calls.map((_, index) => index))
})

test('nothing is forgotten before keep is over, and then a retry is a new request', async () => {
  const { clock, of } = fleet(1)
  const pay = once(of(0).locks, { keep: '1h' })
  const first = await pay.run('a', () => 1)
  await clock.advance('0.99h')
  expect(await pay.run('a', () => 2)).toMatchObject({ value: 1, replayed: true })
  await clock.advance('0.02h')
  const later = await pay.run('a', () => 3)
  expect(later).toMatchObject({ value: 3, replayed: false, attempt: { number: 1 } })
  expect(later.attempt.id).not.toBe(first.attempt.id)
})

test('work that takes longer than keep is stored all the same', async () => {
  const { clock, of } = fleet(1)
  const pay = once(of(0).locks, { keep: '5s' })
  const working = gate<string>()
  const running = pay.run('a', () => working.opened)
  await clock.advance('9s')
  working.open('late')
  expect(await running).toMatchObject({ value: 'late', replayed: false })
  expect(await pay.run('a', () => 2)).toMatchObject({ value: 'late', replayed: true })
})

describe('a store on another engine', () => {
  test('keeps the records, by versions', async () => {
    const { store: _, ...poor } = delegate(memory())
    const [locks, store] = [locksOn(poor), locksOn(memory())]
    expect(() => once(locks)).toThrow(UnsupportedError)
    const pay = once(locks, { store, crashed: 'ask' })
    const results = await Promise.all(Array.from({ length: 5 }, () => pay.run('a', () => 'paid')))
    expect(results.map(({ value }) => value)).toEqual(Array.from({ length: 5 }, () => 'paid'))
    expect(results.filter(({ replayed }) => !replayed)).toHaveLength(1)
  })
})

test('commit() where records cannot be in a transaction says where they can', async () => {
  const pay = once(locksOn(memory()))
  const asked = pay.run('a', (attempt) => attempt.commit({}, 1))
  await expect(asked).rejects.toThrow(/memory has no transactions of yours.*postgres, mysql or sqlite/)
})

test('wrong arguments are told at once', async () => {
  const locks = locksOn(memory())
  expect(() => once(locks, { keep: '1s' })).toThrow(/keep must be at least the ttl/)
  expect(() => once(locks, { crashed: 'repeat' as 'retry' })).toThrow(/crashed must be 'retry' or 'ask'/)
  expect(() => once(locks, { failures: 'ask' as 'retry' })).toThrow(/failures must be/)
  expect(() => once(locks, { name: '' })).toThrow(/name must be/)
  expect(() => once(locks, { ttl: 1, retain: 1 } as OnceOptions)).toThrow(/unknown option 'retain' in once\(\)/)
  const pay = once(locks)
  await expect(pay.run('', () => 1)).rejects.toThrow(/must be a string that is not empty/)
  await expect(pay.run('k'.repeat(600), () => 1)).rejects.toThrow(/at most 512 bytes/)
  await expect(pay.run('a', { scope: 1 as unknown as string }, () => 1)).rejects.toThrow(/scope must be a string/)
  // As of a user that is not known yet: it would share the records of all.
  const unknown = { scope: undefined } as unknown as OnceRunOptions
  await expect(pay.run('a', unknown, () => 1)).rejects.toThrow(/scope must be a string; got undefined.*leave it out/)
  await expect(pay.run('a', { fingerprint: () => 1 }, () => 1)).rejects.toThrow(/fingerprint must be/)
  await expect(pay.run('a', {} as () => number)).rejects.toThrow(/the work as a function/)
})

test('an engine that is closed is told to those who ask', async () => {
  const locks = locksOn(memory())
  const pay = once(locks)
  await locks.close()
  await expect(pay.run('a', () => 1)).rejects.toThrow(EngineError)
})
