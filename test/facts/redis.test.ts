/**
 * Truths about Redis that we lean on, asked of the real server. When one of these fails after an upgrade, an engine is
 * wrong before its own tests say so.
 */
import { beforeAll, expect, test, vi } from 'vitest'
import { findRedis, RedisServer } from '../servers/redis.ts'
import type { Resp } from '../servers/resp.ts'
import { describeServer } from '../servers/suite.ts'

/** Ours alone, since the server may have other users. */
const PREFIX = `holdfast-facts-${process.pid}`
const key = (name: string): string => `${PREFIX}:${name}`

await describeServer('Redis', findRedis, (source) => {
  let server: RedisServer
  let redis: Resp

  beforeAll(async () => {
    server = await RedisServer.start(source)
    redis = await server.connect()
    return async () => {
      const keys = (await redis.command('KEYS', `*${PREFIX}*`)) as string[]
      if (keys.length > 0) await redis.command('DEL', ...keys)
      await redis[Symbol.asyncDispose]()
      await server[Symbol.asyncDispose]()
    }
  })

  test('SET NX PX has one winner among many at once, and a loser changes neither value nor expiry', async () => {
    const clients = await Promise.all(Array.from({ length: 20 }, () => server.connect()))
    const answers = await Promise.all(
      clients.map((client, i) => client.command('SET', key('nx'), i, 'NX', 'PX', 60_000)),
    )
    expect(answers.filter((answer) => answer === 'OK')).toHaveLength(1)
    expect(answers.filter((answer) => answer === null)).toHaveLength(19)
    expect(Number(await redis.command('GET', key('nx')))).toBe(answers.indexOf('OK'))
    await redis.command('SET', key('nx'), 'late', 'NX', 'PX', 3_600_000)
    expect(await redis.command('PTTL', key('nx'))).toBeLessThanOrEqual(60_000)
    await Promise.all(clients.map((client) => client[Symbol.asyncDispose]()))
  })

  test('a key with PX goes by itself, and is then free to take', async () => {
    await redis.command('SET', key('px'), '1', 'PX', 30)
    await vi.waitFor(async () => expect(await redis.command('SET', key('px'), '2', 'NX')).toBe('OK'), {
      timeout: 20_000,
      interval: 5,
    })
  })

  test('PEXPIRE of a key that is gone answers 0: a renewal cannot resurrect', async () => {
    expect(await redis.command('PEXPIRE', key('never'), 60_000)).toBe(0)
    expect(await redis.command('EXISTS', key('never'))).toBe(0)
  })

  test('a script is atomic: no client sees or changes anything between its steps', async () => {
    const script = `
      local before = redis.call('INCR', KEYS[1])
      for i = 1, 2000 do redis.call('GET', KEYS[1]) end
      local after = redis.call('INCR', KEYS[1])
      return after - before`
    const clients = await Promise.all(Array.from({ length: 8 }, () => server.connect()))
    const steps = await Promise.all(clients.map((client) => client.command('EVAL', script, 1, key('atomic'))))
    expect(steps).toEqual(Array(8).fill(1))
    await Promise.all(clients.map((client) => client[Symbol.asyncDispose]()))
  })

  test('a script that fails in the middle keeps what it had done: there is no rollback', async () => {
    await redis.command('RPUSH', key('list'), 'x')
    const script = `redis.call('SET', KEYS[1], 'done'); return redis.call('INCR', KEYS[2])`
    await expect(redis.command('EVAL', script, 2, key('partial'), key('list'))).rejects.toThrow(/WRONGTYPE/)
    expect(await redis.command('GET', key('partial'))).toBe('done')
  })

  test('after SCRIPT FLUSH an EVALSHA answers NOSCRIPT and has done nothing', async () => {
    const script = `return redis.call('INCR', KEYS[1])`
    const sha = String(await redis.command('SCRIPT', 'LOAD', script))
    expect(await redis.command('EVALSHA', sha, 1, key('sha'))).toBe(1)
    await redis.command('SCRIPT', 'FLUSH')
    await expect(redis.command('EVALSHA', sha, 1, key('sha'))).rejects.toThrow(/^NOSCRIPT/)
    expect(await redis.command('GET', key('sha'))).toBe('1')
    expect(await redis.command('EVAL', script, 1, key('sha'))).toBe(2)
    expect(await redis.command('EVALSHA', sha, 1, key('sha'))).toBe(3)
  })

  test('in Lua a token of 16 digits survives string.format and not concatenation', async () => {
    const token = '1790000000123457'
    const ask = async (expression: string): Promise<unknown> =>
      await redis.command('EVAL', `local n = tonumber(ARGV[1]); return ${expression}`, 0, token)
    expect(await ask(`string.format('%.0f', n)`)).toBe(token)
    expect(await ask(`'' .. n`)).toBe('1.7900000001235e+15')
    expect(await ask(`cjson.encode(n)`)).toBe('1.7900000001235e+15')
    expect(await ask('n')).toBe(Number(token))
  })

  test('Lua compares strings of digits as strings', async () => {
    expect(await redis.command('EVAL', `return ARGV[1] < ARGV[2] and 1 or 0`, 0, '9', '10')).toBe(0)
    expect(await redis.command('EVAL', `return tonumber(ARGV[1]) < tonumber(ARGV[2]) and 1 or 0`, 0, '9', '10')).toBe(1)
  })

  test('a script may read TIME and then write, and its clock stands still while it runs', async () => {
    const script = `
      local t = redis.call('TIME')
      redis.call('SET', KEYS[1], string.format('%.0f', t[1] * 1000000 + t[2]))
      redis.call('SET', KEYS[2], 'x', 'PX', 1)
      for i = 1, 20000 do redis.call('GET', KEYS[1]) end
      return {redis.call('GET', KEYS[1]), redis.call('EXISTS', KEYS[2])}`
    const [microseconds, stillThere] = (await redis.command('EVAL', script, 2, key('time'), key('brief'))) as [
      string,
      number,
    ]
    expect(microseconds).toMatch(/^\d{16}$/)
    expect(stillThere).toBe(1)
  })

  test('in a cluster, keys of one hash tag are one slot and one script may have them; an empty tag is none', async (context) => {
    if (!('program' in source)) return context.skip('needs a server of our own in cluster mode')
    await using cluster = await RedisServer.start(source, { cluster: true })
    await using node = await cluster.connect()
    await node.command('CLUSTER', 'ADDSLOTSRANGE', 0, 16383)
    await vi.waitFor(async () => expect(await node.command('CLUSTER', 'INFO')).toContain('cluster_state:ok'), {
      timeout: 30_000,
    })
    const slot = async (name: string): Promise<unknown> => await node.command('CLUSTER', 'KEYSLOT', name)
    expect(await slot('{order:42}:line')).toBe(await slot('order:42'))
    expect(await slot('{a}{b}')).toBe(await slot('a'))
    expect(await slot('{}a')).not.toBe(await slot('{}b'))
    expect(await slot('a}b')).not.toBe(await slot('a'))
    const sha = String(await node.command('SCRIPT', 'LOAD', `return #KEYS`))
    expect(await node.command('EVALSHA', sha, 2, 'order:42', '{order:42}:line')).toBe(2)
    await expect(node.command('EVALSHA', sha, 2, 'order:42', 'order:43')).rejects.toThrow(/^CROSSSLOT/)
  })

  test('a published message reaches the subscriber, and the publisher learns how many heard', async () => {
    await using subscriber = await server.connect()
    const heard = new Promise((resolve) => {
      subscriber.onMessage = (channel, message) => resolve([channel, message])
    })
    expect(await redis.command('PUBLISH', key('channel'), 'to no listener')).toBe(0)
    await subscriber.command('SUBSCRIBE', key('channel'))
    expect(
      await redis.command('EVAL', `return redis.call('PUBLISH', KEYS[1], ARGV[1])`, 1, key('channel'), 'yours'),
    ).toBe(1)
    expect(await heard).toEqual([key('channel'), 'yours'])
  })

  test('answers on one connection come in the order of the commands', async () => {
    const answers = await Promise.all(Array.from({ length: 100 }, () => redis.command('INCR', key('order'))))
    expect(answers).toEqual(answers.map((_, index) => index + 1))
  })
})
