/** `cache` on the memory engine: when it refreshes early, and what becomes of fills that fail. */
import { afterEach, describe, expect, test } from 'vitest'
import { memory } from '../../src/engines/memory/index.ts'
import { CachedFailureError, type CacheOptions, cache } from '../../src/recipes/cache/index.ts'
import { closeAll, fleet, gate, locksOn, turns } from './once-world.ts'

afterEach(closeAll)

/** Without jitter, so that tests can tell when something ends. */
const PLAIN: CacheOptions = { ttl: '10s', jitter: 0 }

describe('early refresh', () => {
  test('begins before the end, behind a caller that is given the old value', async () => {
    const { clock, of } = fleet(1)
    const pages = cache(of(0).locks, { ...PLAIN, early: true })
    const slow = gate<string>()
    const first = pages.get('page', () => slow.opened)
    await turns()
    // It takes 2 s, and so the chance is high when less than that is left.
    await clock.advance('2s')
    slow.open('old')
    await first
    await clock.advance('8s')
    let calls = 0
    for (let ask = 0; ask < 200 && calls === 0; ask += 1) {
      expect(await pages.get('page', () => `new ${++calls}`)).toBe('old')
      await turns(5)
    }
    expect(calls).toBe(1)
    expect(await pages.get('page', () => 'again')).toBe('new 1')
  })

  test('does not begin when the end is far away', async () => {
    const { clock, of } = fleet(1)
    const pages = cache(of(0).locks, { ttl: '1h', early: true })
    await pages.get('page', () => 'old')
    await clock.advance('1m')
    for (let ask = 0; ask < 100; ask += 1) await pages.get('page', () => 'new')
    await turns()
    expect(await pages.get('page', () => 'new')).toBe('old')
  })
})

describe('a fill that fails', () => {
  test('is told to its callers, and to all others for a while', async () => {
    const { clock, of } = fleet(3)
    const caches = [0, 1, 2].map((nth) => cache(of(nth).locks, { ...PLAIN, negative: '5s' }))
    const down = Object.assign(new Error('no such page'), { code: 'GONE' })
    let fills = 0
    const fill = async (): Promise<string> => {
      fills += 1
      await turns(10)
      throw down
    }
    const errors = await Promise.all(
      caches.flatMap((pages) => [1, 2].map(() => pages.get('page', fill).catch((error: unknown) => error))),
    )
    expect(fills).toBe(1)
    expect(errors.filter((error) => error === down)).toHaveLength(2)
    const cached = errors.filter((error) => error instanceof CachedFailureError)
    expect(cached).toHaveLength(4)
    expect(cached[0]).toMatchObject({
      code: 'CACHED_FAILURE',
      key: 'page',
      failure: { name: 'Error', message: 'no such page', fields: { code: 'GONE' } },
    })
    await clock.advance('4.999s')
    await expect(caches[1]?.get('page', fill)).rejects.toThrow(CachedFailureError)
    await clock.advance('1ms')
    expect(await caches[2]?.get('page', () => 'back')).toBe('back')
    expect(fills).toBe(1)
  })

  test('is not remembered with negative: 0', async () => {
    const { of } = fleet(2)
    const [here, there] = [0, 1].map((nth) => cache(of(nth).locks, { ...PLAIN, negative: 0 }))
    await expect(here?.get('page', () => Promise.reject(new Error('once')))).rejects.toThrow('once')
    expect(await there?.get('page', () => 'back')).toBe('back')
  })

  test('because the process was stopped is no failure: another fills, and its value is given', async () => {
    const { clock, of } = fleet(2)
    const [here, there] = [0, 1].map((nth) => cache(of(nth).locks, PLAIN))
    const stopped = here?.get('page', ({ signal }) => {
      return new Promise<string>((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)))
    })
    await turns()
    of(0).stopped = true
    const other = there?.get('page', () => 'made there')
    await turns()
    await clock.advance('3s')
    expect(await other).toBe('made there')
    expect(await stopped).toBe('made there')
  })

  test('also by a value that cannot be stored', async () => {
    const pages = cache(locksOn(memory()), PLAIN)
    await expect(pages.get('large', () => 'x'.repeat(65_536))).rejects.toThrow(
      "the value of 'large' has 65538 bytes, which is too many for a record: give cache() the option values, a key-value store for large ones",
    )
    await expect(pages.get('function', () => () => 1)).rejects.toThrow('JSON has no word for a function')
    await expect(pages.get('large', () => 'small')).rejects.toThrow(CachedFailureError)
  })
})

test('a refresh that takes longer than the value lives is stored, and no other fill is needed', async () => {
  const { clock, of } = fleet(2, undefined, false)
  const [here, there] = [0, 1].map((nth) => cache(of(nth).locks, { ...PLAIN, stale: '1s' }))
  await here?.get('page', () => 'old')
  await clock.advance('10.9s')
  const work = gate<string>()
  expect(await here?.get('page', () => work.opened)).toBe('old')
  await turns()
  await clock.advance('2s')
  const waiting = there?.get('page', () => 'one too many')
  await turns()
  work.open('new')
  expect(await waiting).toBe('new')
})

test('a large value is kept when its refresh fails, also if there is no room for all of the failure', async () => {
  const { clock, of } = fleet(1)
  const pages = cache(of(0).locks, { ...PLAIN, stale: '1m', negative: '20s' })
  const large = 'x'.repeat(65_000)
  await pages.get('page', () => large)
  await clock.advance('10s')
  let fills = 0
  const fill = (): string => {
    fills += 1
    throw new Error('y'.repeat(1000))
  }
  for (let ask = 0; ask < 3; ask += 1) {
    expect(await pages.get('page', fill)).toBe(large)
    await turns()
  }
  expect(fills).toBe(1)
})

test('the bytes of a serializer that changes nothing are not shared', async () => {
  const serialize = { encode: (value: unknown) => value as Uint8Array, decode: (bytes: Uint8Array) => bytes }
  const { of } = fleet(1)
  const pages = cache(of(0).locks, { ...PLAIN, serialize, local: { max: 10, ttl: '5s' } })
  const fill = (): Uint8Array => Buffer.from('value')
  const first = await pages.get('page', fill)
  first[0] = 0
  expect(Buffer.from(await pages.get('page', fill)).toString()).toBe('value')
})
