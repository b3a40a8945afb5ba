/** `rateLimit` when the server cannot be asked; its options; its headers. */
import { afterEach, describe, expect, test } from 'vitest'
import { delegate } from '../../conformance/delegate.ts'
import { UnsupportedError } from '../../src/core/errors.ts'
import { memory } from '../../src/engines/memory/index.ts'
import { headers, type RateLimitOptions, rateLimit, takeAll } from '../../src/recipes/rate-limit/index.ts'
import { closeAll, locksOn } from './once-world.ts'
import { clock, down, isPending, newKey, newProcess, server } from './rate-limit-world.ts'

afterEach(closeAll)

describe('an outage', () => {
  const options = { limit: 100, per: '1s' } as const

  test('rejects unless told otherwise', async () => {
    const world = newProcess()
    world.trouble = down()
    await expect(rateLimit(world.locks, options).take('a')).rejects.toThrow('no answer')
  })

  test('denies or allows, and says why', async () => {
    const world = newProcess()
    world.trouble = down()
    const denied = await rateLimit(world.locks, { ...options, outage: 'deny' }).take('a')
    expect(denied).toMatchObject({ allowed: false, retryAfterMs: 1000, limits: [], outage: world.trouble })
    const allowed = await rateLimit(world.locks, { ...options, outage: 'allow' }).take('a')
    expect(allowed).toMatchObject({ allowed: true, outage: world.trouble })
    const limits = ['allow', 'deny'].map((outage) =>
      rateLimit(world.locks, { ...options, name: outage, outage: outage as 'allow' }),
    )
    expect(await takeAll(limits.map((limit) => limit.of('a')))).toMatchObject({ allowed: false })
  })

  test('can be bridged by a limit of this process', async () => {
    const world = newProcess()
    const api = rateLimit(world.locks, { ...options, outage: { limit: 2, per: '1s' } })
    const key = newKey()
    world.trouble = down()
    const verdicts = []
    for (let i = 0; i < 3; i += 1) verdicts.push(await api.take(key))
    expect(verdicts.map(({ allowed }) => allowed)).toEqual([true, true, false])
    expect(verdicts[2]).toMatchObject({ retryAfterMs: 500, outage: world.trouble })
    await clock.advance(500)
    expect(await api.take(key, { cost: 50 })).toMatchObject({ allowed: false })
    expect(await api.take(key)).toMatchObject({ allowed: true })
    world.trouble = undefined
    const back = await api.take(key)
    expect(back).toMatchObject({ allowed: true, remaining: 99 })
    expect(back.outage).toBeUndefined()
  })

  test('what the server has certainly not done is asked again for a moment', async () => {
    const world = newProcess()
    const api = rateLimit(world.locks, options)
    world.trouble = down('not-applied')
    const taking = api.take(newKey())
    await isPending(taking)
    world.trouble = undefined
    await clock.advance(20)
    expect(await taking).toMatchObject({ allowed: true })
    world.trouble = down('not-applied')
    const failing = api.take(newKey())
    failing.catch(() => undefined)
    await clock.advance(200)
    await expect(failing).rejects.toThrow('no answer')
  })
})

describe('options', () => {
  test.each<[unknown, RegExp]>([
    [{ limit: 0, per: '1s' }, /limit must be a whole number from 1/],
    [{ limit: 1.5, per: '1s' }, /limit must be a whole number/],
    [{ limit: 1, per: '0s' }, /per must be from 1 ms/],
    [{ limit: 1, per: 'a minute' }, /per must be milliseconds/],
    [{ limit: 1 }, /per must be/],
    [{ limit: 1, per: '1s', burst: 0 }, /burst must be/],
    [{ limit: 1, per: '1s', brust: 2 }, /did you mean 'burst'/],
    [{ limit: 1, per: '1s', name: 'a@b' }, /name must be a text without @/],
    [{ limit: 1, per: '1s', outage: 'open' }, /outage must be deny, allow or a rate/],
    [{ limit: 1, per: '1s', outage: { limit: 1 } }, /per must be/],
    [{ limit: 999_983, per: '8784h', burst: 1e9 }, /cannot be counted exactly/],
  ])('%j is refused', (options, message) => {
    expect(() => rateLimit(newProcess().locks, options as RateLimitOptions)).toThrow(message)
  })

  test('of a take are checked before anything is asked', async () => {
    const { locks, calls } = newProcess()
    const api = rateLimit(locks, { limit: 999_983, per: '1s' })
    await expect(api.take('a', { cost: 0 })).rejects.toThrow('cost must be a whole number from 1')
    await expect(api.take('a', { wait: '1000h' })).rejects.toThrow('wait must be at most')
    await expect(api.take('a', { wiat: '1s' } as object)).rejects.toThrow("did you mean 'wait'")
    await expect(api.take('')).rejects.toThrow('a key must not be empty')
    expect(calls).toEqual([])
  })

  test('an engine without a store is told of the option that helps', () => {
    const { store: _, ...engine } = delegate(memory({ server }), {})
    const bare = locksOn(engine)
    const options = { limit: 1, per: '1s' } as const
    expect(() => rateLimit(bare, options)).toThrow(UnsupportedError)
    expect(rateLimit(bare, { ...options, store: newProcess().locks }).name).toBe('1/1s')
  })

  test('a limit shows what it is', () => {
    const api = rateLimit(newProcess().locks, { limit: 90, per: '90s' })
    expect(JSON.parse(JSON.stringify(api))).toEqual({
      name: '90/90s',
      limit: 90,
      perMs: 90_000,
      burst: 90,
      engine: 'memory',
    })
  })
})

describe('headers', () => {
  test('name the policy, what is left, and when to come back, rounded up', async () => {
    const { locks } = newProcess()
    const api = rateLimit(locks, { limit: 2, per: '3s' })
    const key = newKey()
    expect(headers(await api.take(key))).toEqual({
      'RateLimit-Policy': '"2/3s";q=2;w=3',
      RateLimit: '"2/3s";r=1;t=2',
    })
    await api.take(key)
    expect(headers(await api.take(key))).toMatchObject({ 'Retry-After': '2', RateLimit: '"2/3s";r=0;t=3' })
  })

  test('of an outage have no numbers', async () => {
    const world = newProcess()
    world.trouble = down()
    const api = rateLimit(world.locks, { limit: 1, per: '1s', outage: 'deny' })
    expect(headers(await api.take('a'))).toEqual({ 'Retry-After': '1' })
  })

  test('of several limits list them, with names that a field can have', async () => {
    const { locks } = newProcess()
    const limits = ['say "hi"', 'übung'].map((name) => rateLimit(locks, { name, limit: 5, per: 250 }))
    expect(headers(await takeAll(limits.map((limit) => limit.of(newKey()))))).toEqual({
      'RateLimit-Policy': '"say \\"hi\\"";q=5, "?bung";q=5',
      RateLimit: '"say \\"hi\\"";r=4;t=1, "?bung";r=4;t=1',
    })
  })
})
