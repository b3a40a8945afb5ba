/** `cache` on the memory engine and a clock that the test moves: who fills, who waits, and what is served meanwhile. */
import { afterEach, describe, expect, test } from 'vitest'
import { delegate } from '../../conformance/delegate.ts'
import { UnsupportedError } from '../../src/core/errors.ts'
import { memory } from '../../src/engines/memory/index.ts'
import type { Locks } from '../../src/locks.ts'
import { type CacheOptions, cache } from '../../src/recipes/cache/index.ts'
import { closeAll, fleet, gate, locksOn, turns } from './once-world.ts'

afterEach(closeAll)

/** Without jitter, so that tests can tell when something ends. */
const PLAIN: CacheOptions = { ttl: '10s', jitter: 0 }

/** Counts its calls, and answers their number. */
function counter(): { calls: number; fill(): string } {
  const made = {
    calls: 0,
    fill: () => {
      made.calls += 1
      return `value ${made.calls}`
    },
  }
  return made
}

describe('a value', () => {
  test('is made once, served while it is fresh, and made again after that', async () => {
    const { clock, of } = fleet(2)
    const made = counter()
    const [first, second] = [cache(of(0).locks, PLAIN), cache(of(1).locks, PLAIN)]
    expect(await first.get('page', made.fill)).toBe('value 1')
    expect(await second.get('page', made.fill)).toBe('value 1')
    await clock.advance('9.999s')
    expect(await first.get('page', made.fill)).toBe('value 1')
    await clock.advance('1ms')
    expect(await second.get('page', made.fill)).toBe('value 2')
    expect(await first.get('other page', made.fill)).toBe('value 3')
  })

  test.each([[undefined], [null], [false], ['']])('can be %j', async (value) => {
    const pages = cache(locksOn(memory()), PLAIN)
    expect(await pages.get('a', () => value)).toBe(value)
    expect(await pages.get<unknown>('a', () => 'again')).toBe(value)
  })

  test('is the same for the one who made it and for all others, and each has a copy of its own', async () => {
    const { of } = fleet(1)
    const pages = cache(of(0).locks, { ...PLAIN, local: { max: 10, ttl: '1s' } })
    const work = gate<{ at: unknown }>()
    const asked = [1, 2].map(() => pages.get('a', () => work.opened))
    await turns()
    work.open({ at: new Date(0) })
    const [one, other] = await Promise.all(asked)
    expect(one).toEqual({ at: '1970-01-01T00:00:00.000Z' })
    if (one !== undefined) one.at = 'changed'
    expect(other).toEqual({ at: '1970-01-01T00:00:00.000Z' })
    expect(await pages.get('a', () => ({ at: 'again' }))).toEqual(other)
  })

  test('of one name is not one of another, whatever they are called', async () => {
    const locks = locksOn(memory())
    const made = counter()
    expect(await cache(locks, { ...PLAIN, name: 'a' }).get('b:c', made.fill)).toBe('value 1')
    expect(await cache(locks, { ...PLAIN, name: 'a:b' }).get('c', made.fill)).toBe('value 2')
    expect(await cache(locks, { ...PLAIN, name: 'a' }).get('b:c', made.fill)).toBe('value 1')
  })

  test('can say by itself how long it is fresh, and a call can', async () => {
    const { clock, of } = fleet(1)
    const made = counter()
    const pages = cache(of(0).locks, PLAIN)
    await pages.get('token', (fill) => {
      fill.ttl('2s')
      return made.fill()
    })
    await pages.get('brief', { ttl: '3s' }, made.fill)
    await clock.advance('2s')
    expect(await pages.get('token', made.fill)).toBe('value 3')
    expect(await pages.get('brief', made.fill)).toBe('value 2')
    await clock.advance('1s')
    expect(await pages.get('brief', made.fill)).toBe('value 4')
  })

  test('lives a little shorter than others, by chance, and never longer', async () => {
    const { clock, of } = fleet(1)
    const pages = cache(of(0).locks, { ttl: '10s', jitter: 0.5 })
    const keys = Array.from({ length: 100 }, (_, index) => `page ${index}`)
    let calls = 0
    const askAll = () => Promise.all(keys.map((key) => pages.get(key, () => ++calls)))
    await askAll()
    await clock.advance('4.999s')
    await askAll()
    expect(calls).toBe(100)
    await clock.advance('2.5s')
    await askAll()
    // About half of them: all or none by chance is less likely than anything else that could go wrong here.
    expect(calls).toBeGreaterThan(110)
    expect(calls).toBeLessThan(190)
  })
})

test('a hit takes one call, a fill two more, and callers of one turn go together', async () => {
  const { of } = fleet(1)
  const process = of(0)
  const pages = cache(process.locks, PLAIN)
  await pages.get('page', () => {
    expect(process.turns).toEqual(['get', 'putEntering'])
    return 1
  })
  expect(process.turns).toEqual(['get', 'putEntering', 'putLeaving'])
  process.turns.length = 0
  const keys = Array.from({ length: 200 }, () => 'page')
  expect(new Set(await Promise.all(keys.map((key) => pages.get(key, () => 2))))).toEqual(new Set([1]))
  expect(process.turns).toEqual(['get'])
  expect((await process.locks.inspect('cache:page')).entries).toEqual([])
})

describe.each([
  ['in one step', true],
  ['in several', false],
])('callers that come while it is filled, where a line is entered and left %s', (_, inOneStep) => {
  test('wait, in all processes, and are given what one fill has made', async () => {
    const { of } = fleet(5, undefined, inOneStep)
    const work = gate<string>()
    let fills = 0
    const asked = [0, 1, 2, 3, 4].flatMap((nth) => {
      const pages = cache(of(nth).locks, PLAIN)
      const fill = (): Promise<string> => {
        fills += 1
        return work.opened
      }
      return Array.from({ length: 50 }, () => pages.get('page', fill))
    })
    await expect.poll(() => fills).toBe(1)
    await turns()
    // One entry for each process: a writer, and readers behind it.
    const { entries } = await of(0).locks.inspect('cache:page')
    expect(entries.map(({ limit }) => limit === 1)).toEqual([true, false, false, false, false])
    work.open('rendered')
    expect(new Set(await Promise.all(asked))).toEqual(new Set(['rendered']))
    expect(fills).toBe(1)
  })

  test('are one more fill if the filler dies, and not one each', async () => {
    const { clock, of } = fleet(5, undefined, inOneStep)
    let fills = 0
    void cache(of(0).locks, PLAIN)
      .get('page', () => new Promise(() => {}))
      .catch(() => {})
    await turns()
    const asked = [1, 2, 3, 4].flatMap((nth) => {
      const pages = cache(of(nth).locks, PLAIN)
      return Array.from({ length: 10 }, () => pages.get('page', () => ++fills))
    })
    await turns()
    expect(fills).toBe(0)
    of(0).stopped = true
    await clock.advance('3s')
    expect(new Set(await Promise.all(asked))).toEqual(new Set([1]))
    expect(fills).toBe(1)
  })

  test('can be cancelled, the first one too, and the others get the value', async () => {
    const { of } = fleet(2, undefined, inOneStep)
    const work = gate<string>()
    const controller = new AbortController()
    const why = new Error('the client has gone')
    const [here, there] = [cache(of(0).locks, PLAIN), cache(of(1).locks, PLAIN)]
    let told: AbortSignal | undefined
    const first = here.get('page', { signal: controller.signal }, (fill) => {
      told = fill.signal
      return work.opened
    })
    await turns()
    const others = [here, there].map((pages) => pages.get('page', () => 'made again'))
    await turns()
    controller.abort(why)
    await expect(first).rejects.toBe(why)
    expect(told?.aborted).toBe(false)
    work.open('rendered')
    expect(await Promise.all(others)).toEqual(['rendered', 'rendered'])
    await expect(here.get('page', { signal: controller.signal }, () => 'never')).rejects.toBe(why)
  })
})

describe('a stale value', () => {
  const STALE: CacheOptions = { ...PLAIN, stale: '20s' }

  test('is served while one process of all makes a new one', async () => {
    const { clock, of } = fleet(3)
    const caches = [0, 1, 2].map((nth) => cache(of(nth).locks, STALE))
    const [first] = caches
    await first?.get('page', () => 'old')
    await clock.advance('10s')
    const work = gate<string>()
    let fills = 0
    const fill = (): Promise<string> => {
      fills += 1
      return work.opened
    }
    const ask = () => Promise.all(caches.flatMap((pages) => [pages.get('page', fill), pages.get('page', fill)]))
    expect(new Set(await ask())).toEqual(new Set(['old']))
    await turns()
    expect(new Set(await ask())).toEqual(new Set(['old']))
    expect(fills).toBe(1)
    work.open('new')
    await turns()
    expect(new Set(await ask())).toEqual(new Set(['new']))
    expect(fills).toBe(1)
  })

  test('is not served beyond its time', async () => {
    const { clock, of } = fleet(1)
    const pages = cache(of(0).locks, STALE)
    await pages.get('page', () => 'old')
    await clock.advance('30s')
    expect(await pages.get('page', () => 'new')).toBe('new')
  })

  test('is served after the soft wait, if the new one takes longer', async () => {
    const { clock, of } = fleet(2)
    const [here, there] = [cache(of(0).locks, STALE), cache(of(1).locks, STALE)]
    await here.get('page', () => 'old')
    await clock.advance('10s')
    const work = gate<string>()
    const asked = [here, there].map((pages) => pages.get('page', { softWait: '100ms' }, () => work.opened))
    await turns()
    await clock.advance('99ms')
    expect(await Promise.race([...asked, Promise.resolve('nothing yet')])).toBe('nothing yet')
    await clock.advance('1ms')
    expect(await Promise.all(asked)).toEqual(['old', 'old'])
    const soon = [here, there].map((pages) => pages.get('page', { softWait: '100ms' }, () => work.opened))
    await turns()
    work.open('new')
    expect(await Promise.all(soon)).toEqual(['new', 'new'])
  })

  test('that cannot be refreshed is served until its end, and tried to be once in a while by all', async () => {
    const { clock, of } = fleet(2)
    const options: CacheOptions = { ...STALE, negative: '6s' }
    const caches = [0, 1].map((nth) => cache(of(nth).locks, options))
    const [first] = caches
    await first?.get('page', () => 'old')
    await clock.advance('10s')
    let fills = 0
    const fill = (): string => {
      fills += 1
      throw new Error('the database is down')
    }
    const served: unknown[] = []
    for (let second = 0; second < 24; second += 1) {
      for (const pages of caches) served.push(await pages.get('page', fill).catch((error: Error) => error.message))
      await turns()
      await clock.advance('1s')
    }
    const failure = "the fill of 'page' has failed before: Error: the database is down"
    expect(served).toEqual([...Array(40).fill('old'), ...Array(8).fill(failure)])
    // At 0, 6, 12 and 18 seconds: that of the last one is remembered beyond the end of the value.
    expect(fills).toBe(4)
  })
})

test('what is wrong is told before anything is done', async () => {
  const locks = locksOn(memory())
  const made = (options: object) => (): unknown => cache(locks, { ...PLAIN, ...options })
  expect(made({ tll: 1 })).toThrow("unknown option 'tll' in cache(); did you mean 'ttl'?")
  expect(made({ ttl: 0 })).toThrow('ttl must be at least 1 ms')
  expect(made({ ttl: '8785h' })).toThrow('ttl must be at most 366 days')
  expect(made({ early: 'yes' })).toThrow('early must be true or a number from 0 to 100')
  expect(made({ jitter: 1 })).toThrow('jitter must be from 0 up to, not including, 1')
  expect(made({ outage: 'allow' })).toThrow("outage must be 'fail' or 'fill'; got 'allow'")
  expect(made({ local: { max: 0, ttl: 1 } })).toThrow('local.max must be a whole number from 1')
  expect(made({ local: { max: 1, ttl: 0 } })).toThrow('local.ttl must be more than 0')
  expect(made({ name: '' })).toThrow('name must be a string that is not empty')
  expect(made({ leaseTtl: '25h' })).toThrow('ttl must be from')
  const pages = cache(locks, PLAIN)
  await expect(pages.get('', () => 1)).rejects.toThrow("the key of a value must be a string that is not empty; got ''")
  await expect(pages.get('a', {} as never)).rejects.toThrow('get takes a key, options, and the fill as a function')
  await expect(pages.get('a', { wait: 1 } as never, () => 1)).rejects.toThrow("unknown option 'wait' in get()")
})

describe('what is stored under the key of a value', () => {
  const key = 'replace:group:7'
  const put = async (locks: Locks, text: string): Promise<void> => {
    await locks.engine.store?.put([{ key, value: Buffer.from(text), ttlMs: null, when: {} }])
  }

  test.each([
    ['of replace', '{"latest":1,"won":1,"removedTo":0,"past":[]}'],
    ['of once', '{"state":"done","by":"a","value":1}'],
    ['of a stock', 'pool1 {"items":[],"holds":[]}'],
    ['that is text of several lines', '"by"\n"is"'],
    ['that is null', 'null\n'],
    ['that is empty', ''],
  ])('and is a record %s is told of, and is neither replaced nor removed', async (_, text) => {
    const locks = locksOn(memory())
    await put(locks, text)
    const told = {
      code: 'ENGINE',
      outcome: 'not-applied',
      transient: false,
      message:
        "memory: what is stored under 'replace:group:7' is no record of cache(): " +
        "another recipe has the name 'replace', so give cache() another one",
    }
    for (const outage of ['fail', 'fill'] as const) {
      const pages = cache(locks, { ...PLAIN, name: 'replace', outage })
      await expect(pages.get('group:7', () => expect.unreachable())).rejects.toMatchObject(told)
      await expect(pages.invalidate('group:7')).rejects.toMatchObject(told)
    }
    const [got] = (await locks.engine.store?.get([key])) ?? []
    expect(got?.state === 'read' && Buffer.from(got.stored.value ?? 'nothing').toString()).toBe(text)
  })

  test.each(['{"is":"filling","by":"a"}\n', '{"is":"of a later release","by":"a"}\n1'])(
    'and is a record of a cache without a value is replaced: %j',
    async (text) => {
      const locks = locksOn(memory())
      const pages = cache(locks, { ...PLAIN, name: 'replace' })
      await put(locks, text)
      expect(await pages.get('group:7', () => 'value')).toBe('value')
      await put(locks, text)
      await pages.invalidate('group:7')
      // There is nothing to remove.
      await pages.invalidate('group:7')
      expect(await pages.get('group:7', () => 'new')).toBe('new')
    },
  )
})

test('an engine without a store is told of, and takes the store of another one', async () => {
  const { store: _, ...poor } = delegate(memory())
  const [locks, store] = [locksOn(poor), locksOn(memory())]
  expect(() => cache(locks, PLAIN)).toThrow(UnsupportedError)
  const pages = cache(locks, { ...PLAIN, store })
  expect(await Promise.all([pages.get('page', () => 1), pages.get('page', () => 2)])).toEqual([1, 1])
  await pages.invalidate('page')
  expect(await pages.get('page', () => 3)).toBe(3)
})
