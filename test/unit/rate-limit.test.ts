/** `rateLimit`, on memory and a clock that the test moves: what is taken, and who waits. */
import { afterEach, describe, expect, test } from 'vitest'
import { type RateLimitOptions, rateLimit, takeAll } from '../../src/recipes/rate-limit/index.ts'
import { closeAll } from './once-world.ts'
import { clock, isPending, newKey, newProcess } from './rate-limit-world.ts'

afterEach(closeAll)

describe('take', () => {
  test('allows the burst at once and then one in each interval, and refusals cost nothing', async () => {
    const { locks } = newProcess()
    const api = rateLimit(locks, { limit: 10, per: '1s', burst: 3 })
    const key = newKey()
    const verdicts = []
    for (let i = 0; i < 6; i += 1) verdicts.push(await api.take(key))
    expect(verdicts.map(({ allowed }) => allowed)).toEqual([true, true, true, false, false, false])
    expect(verdicts[1]).toMatchObject({ remaining: 1, retryAfterMs: 0, resetMs: 200, delayMs: 0 })
    expect(verdicts[5]).toMatchObject({ remaining: 0, retryAfterMs: 100, resetMs: 300 })
    await clock.advance(99)
    expect((await api.take(key)).allowed).toBe(false)
    await clock.advance(1)
    expect((await api.take(key)).allowed).toBe(true)
    expect((await api.take(newKey())).allowed).toBe(true)
  })

  test('waiting for as long as it says is never refused', async () => {
    const { locks } = newProcess()
    const limits: readonly RateLimitOptions[] = [
      { limit: 50_000, per: '1s', burst: 1 },
      { limit: 7, per: '10ms', burst: 1 },
      { limit: 1, per: '24h' },
      { limit: 999_983, per: '24h', burst: 1 },
    ]
    for (const options of limits) {
      const api = rateLimit(locks, options)
      const key = newKey()
      for (let i = 0; i < 2500; i += 1) {
        const verdict = await api.take(key)
        if (verdict.allowed) continue
        clock.stall(verdict.retryAfterMs)
        expect(await api.take(key)).toMatchObject({ allowed: true })
      }
    }
  })

  test('what callers of one turn ask for is one call, and each is counted', async () => {
    const { locks, calls } = newProcess()
    const api = rateLimit(locks, { limit: 5, per: '1s' })
    const key = newKey()
    const verdicts = await Promise.all(Array.from({ length: 8 }, () => api.take(key)))
    expect(verdicts.filter(({ allowed }) => allowed)).toHaveLength(5)
    expect(calls).toEqual([8])
  })

  test('a cost counts for as many, and one above the burst is an error', async () => {
    const { locks, calls } = newProcess()
    const api = rateLimit(locks, { limit: 60, per: '1m', burst: 10 })
    const key = newKey()
    expect(await api.take(key, { cost: 7 })).toMatchObject({ allowed: true, remaining: 3 })
    expect(await api.take(key, { cost: 4 })).toMatchObject({ allowed: false, remaining: 3, retryAfterMs: 1000 })
    expect(await api.take(key, { cost: 3 })).toMatchObject({ allowed: true, remaining: 0 })
    await expect(api.take(key, { cost: 11, wait: '1h' })).rejects.toThrow(RangeError)
    expect(calls).toHaveLength(3)
  })

  test('limits with the same keys do not meet, unless they have the same name', async () => {
    const { locks } = newProcess()
    const key = newKey()
    const one = rateLimit(locks, { limit: 1, per: '1m' })
    expect((await one.take(key)).allowed).toBe(true)
    expect((await rateLimit(locks, { limit: 1, per: '1h' }).take(key)).allowed).toBe(true)
    expect((await rateLimit(locks, { limit: 1, per: '1m', name: 'mail' }).take(key)).allowed).toBe(true)
    expect((await rateLimit(newProcess().locks, { limit: 1, per: '60s' }).take(key)).allowed).toBe(false)
  })

  test('peek takes nothing, and reset gives all back', async () => {
    const { locks } = newProcess()
    const api = rateLimit(locks, { limit: 2, per: '1m' })
    const key = newKey()
    expect(await api.peek(key)).toMatchObject({ allowed: true, remaining: 2 })
    await api.take(key, { cost: 2 })
    expect(await api.peek(key)).toMatchObject({ allowed: false, remaining: 0, retryAfterMs: 30_000 })
    await api.reset(key)
    expect(await api.take(key, { cost: 2 })).toMatchObject({ allowed: true })
  })
})

describe('wait', () => {
  test('books the next turn in the same call, and resolves when it has come', async () => {
    const { locks, calls } = newProcess()
    const api = rateLimit(locks, { limit: 10, per: '1s', burst: 1 })
    const key = newKey()
    await api.take(key)
    const first = api.take(key, { wait: '1s' })
    const second = api.take(key, { wait: '1s' })
    await clock.advance(99)
    expect(await isPending(first)).toBe(true)
    await clock.advance(1)
    expect(await first).toMatchObject({ allowed: true, delayMs: 100 })
    expect(await isPending(second)).toBe(true)
    await clock.advance(100)
    expect(await second).toMatchObject({ allowed: true, delayMs: 200 })
    expect(calls).toEqual([1, 2])
  })

  test('says no at once, and takes nothing, if its turn would come too late', async () => {
    const { locks } = newProcess()
    const api = rateLimit(locks, { limit: 1, per: '1s' })
    const key = newKey()
    await api.take(key)
    expect(await api.take(key, { wait: 900 })).toMatchObject({ allowed: false, retryAfterMs: 100 })
    expect((await api.peek(key)).resetMs).toBe(1000)
  })

  test('a dear call among cheap ones waits no longer than it was booked', async () => {
    const { locks } = newProcess()
    const api = rateLimit(locks, { limit: 100, per: '1s', burst: 50 })
    const key = newKey()
    while ((await api.take(key)).allowed);
    let done = false
    const dear = api.take(key, { cost: 50, wait: '1s' }).then((verdict) => {
      done = true
      return verdict
    })
    await clock.advance(0)
    for (let ms = 0; ms < 500; ms += 10) {
      expect(done).toBe(false)
      // None of them overtakes it.
      expect((await api.take(key)).allowed).toBe(false)
      await clock.advance(10)
    }
    expect(await dear).toMatchObject({ allowed: true, delayMs: 500 })
  })

  test('an abort rejects with its reason, and gives the turn back if none was booked behind it', async () => {
    const { locks } = newProcess()
    const api = rateLimit(locks, { limit: 1, per: '1s' })
    const key = newKey()
    await api.take(key)
    const abort = new AbortController()
    const gone = api.take(key, { wait: '1m', signal: abort.signal })
    await isPending(gone)
    abort.abort(new Error('enough'))
    await expect(gone).rejects.toThrow('enough')
    await clock.advance(0)
    expect((await api.peek(key)).resetMs).toBe(1000)
  })

  test('an abort does not give back a turn that others have booked behind', async () => {
    const { locks } = newProcess()
    const api = rateLimit(locks, { limit: 1, per: '1s' })
    const key = newKey()
    await api.take(key)
    const abort = new AbortController()
    const gone = api.take(key, { wait: '1m', signal: abort.signal })
    const behind = api.take(key, { wait: '1m' })
    await isPending(behind)
    abort.abort(new Error('enough'))
    await expect(gone).rejects.toThrow('enough')
    await clock.advance(0)
    // A third one would be given the time of the second.
    expect((await api.peek(key)).resetMs).toBe(3000)
    await clock.advance(2000)
    expect(await behind).toMatchObject({ delayMs: 2000 })
  })

  test('an aborted signal asks nothing, and the closing of the locks ends the wait', async () => {
    const { locks, calls } = newProcess()
    const api = rateLimit(locks, { limit: 1, per: '1s', outage: 'allow' })
    const key = newKey()
    await expect(api.take(key, { signal: AbortSignal.abort(new Error('never')) })).rejects.toThrow('never')
    expect(calls).toEqual([])
    await api.take(key)
    const waiting = api.take(key, { wait: '1m' })
    await isPending(waiting)
    void locks.close()
    await expect(waiting).rejects.toThrow('closed')
    await expect(api.take(key)).rejects.toThrow('closed')
  })
})

describe('takeAll', () => {
  test('takes from all or from none, and says which had too little', async () => {
    const { locks, calls } = newProcess()
    const users = rateLimit(locks, { name: 'users', limit: 10, per: '1m' })
    const tenants = rateLimit(locks, { name: 'tenants', limit: 3, per: '1h' })
    const [user, tenant] = [newKey(), newKey()]
    for (let i = 0; i < 3; i += 1) await takeAll([users.of(user), tenants.of(tenant)])
    const refused = await takeAll([users.of(user), tenants.of(tenant)])
    expect(refused).toMatchObject({ allowed: false, remaining: 0, retryAfterMs: 1_200_000 })
    expect(refused.limits.map(({ name, remaining, retryAfterMs }) => [name, remaining, retryAfterMs])).toEqual([
      ['users', 7, 0],
      ['tenants', 0, 1_200_000],
    ])
    expect(await users.peek(user)).toMatchObject({ remaining: 7 })
    expect(calls.slice(0, 4)).toEqual([1, 1, 1, 1])
  })

  test('each can have a cost of its own, and the same key twice is taken from twice', async () => {
    const { locks } = newProcess()
    const [calls, words] = ['calls', 'words'].map((name) => rateLimit(locks, { name, limit: 1000, per: '1m' }))
    const key = newKey()
    const verdict = await takeAll([calls?.of(key), words?.of(key, 300), calls?.of(key)].filter((one) => !!one))
    expect(verdict.limits.map(({ remaining }) => remaining)).toEqual([998, 700])
  })

  test('refuses what is not drawn from in one step', async () => {
    const [one, other] = [newProcess().locks, newProcess().locks]
    const options = { limit: 1, per: '1s' } as const
    const limits = [rateLimit(one, options), rateLimit(other, { ...options, name: 'other' })]
    await expect(takeAll(limits.map((limit) => limit.of('a')))).rejects.toThrow('on the same locks')
    const named = [rateLimit(one, options), rateLimit(one, { ...options, burst: 2 })]
    await expect(takeAll(named.map((limit) => limit.of('a')))).rejects.toThrow("called '1/1s'")
    await expect(takeAll([])).rejects.toThrow(TypeError)
    await expect(takeAll([{ name: 'x', key: 'a' }])).rejects.toThrow('like api.of(user)')
  })
})
