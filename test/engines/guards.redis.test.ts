/** The guard of Redis, on a real server, with the three clients, and in a Cluster. */
import { GlideClient } from '@valkey/valkey-glide'
import { Cluster, Redis } from 'ioredis'
import { createClient } from 'redis'
import { beforeAll, describe, expect, test } from 'vitest'
import { EngineError } from '../../src/core/errors.ts'
import { guard, type RedisClient, type RedisGuard } from '../../src/guards/redis.ts'
import { ClusterDeployment } from '../servers/cluster.ts'
import { findOwnRedis, findRedis, RedisServer } from '../servers/redis.ts'
import { describeServer } from '../servers/suite.ts'
import { expectForgetting, expectRule, leaseLike } from './guards.rule.ts'

await describeServer('the guard of Redis', findRedis, (source) => {
  let server: RedisServer
  let client: Redis
  let guarded: RedisGuard

  beforeAll(async () => {
    server = await RedisServer.start(source)
    client = new Redis(server.url)
    guarded = guard({ client })
    return async () => {
      await guarded[Symbol.asyncDispose]()
      client.disconnect()
      await server[Symbol.asyncDispose]()
    }
  })

  test('decides as the pure rule does', async () => {
    await expectRule(
      {
        check: async (access, lease) => {
          const replies =
            access === 'read' ? guarded.read(lease, [['GET', 'x']]) : guarded.write(lease, [['SET', 'x', '1']])
          expect(await replies).toHaveLength(1)
        },
        list: (prefix) => guarded.list(prefix),
      },
      40,
    )
  })

  test('marks are forgotten after the time that the user chose since their last use, and never before', async () => {
    await expectForgetting({
      check: async (forget, access, lease) => {
        await using other = guard({ client, ...(forget === undefined ? {} : { forget }) })
        await (access === 'read' ? other.read(lease) : other.write(lease, [['SET', 'x', '1']]))
      },
      list: (prefix) => guarded.list(prefix),
      pass: async (ms) => {
        for (const key of await client.keys('hf1:marks:*')) {
          const left = await client.pttl(key)
          if (left >= 0) await client.pexpire(key, left - ms)
        }
      },
      // The server does so by itself.
      forget: async () => undefined,
    })
  })

  test('runs commands of every kind and answers their replies; a stale holder changes nothing', async () => {
    const replies = await guarded.write(leaseLike(6n, 'several'), [
      ['SET', 'text', 'ä b'],
      ['GET', 'missing'],
      ['INCRBY', 'number', 5],
      ['RPUSH', 'list', 'a', 'b'],
      ['LRANGE', 'list', 0, -1],
    ])
    expect(replies).toEqual(['OK', null, 5, 2, ['a', 'b']])
    await expect(guarded.write(leaseLike(5n, 'several'), [['DEL', 'text']])).rejects.toMatchObject({
      offered: 5n,
      seen: 6n,
    })
    expect(await client.get('text')).toBe('ä b')
  })

  test('a command that fails is an EngineError, and the token may act again', async () => {
    await client.set('string', 'x')
    await expect(guarded.write(leaseLike(5n, 'failing'), [['RPUSH', 'string', 'a']])).rejects.toThrow(EngineError)
    expect(await guarded.write(leaseLike(5n, 'failing'), [['GET', 'string']])).toEqual(['x'])
    await expect(guarded.write(leaseLike(5n), [['GET'] as never])).rejects.toThrow('a command is')
  })

  test('a script that fails half-way leaves what came before, and marks that keep older tokens out', async () => {
    await client.set('half', 'a string')
    const halfway = guarded.write(leaseLike(6n, 'halfway'), [
      ['SET', 'done', 'six'],
      ['RPUSH', 'half', 'x'],
      ['SET', 'never', 'six'],
    ])
    await expect(halfway).rejects.toThrow(EngineError)
    expect(await client.mget('done', 'never')).toEqual(['six', null])
    await expect(guarded.write(leaseLike(5n, 'halfway'), [['SET', 'done', 'late']])).rejects.toMatchObject({ seen: 6n })
    await expect(guarded.read(leaseLike(5n, 'halfway'))).rejects.toMatchObject({ seen: 6n })
  })

  test('without memory for its marks a server does nothing; without marks that are a hash neither', async () => {
    await client.config('SET', 'maxmemory', '1')
    await expect(guarded.read(leaseLike(6n, 'full'), [['DEL', 'text']])).rejects.toThrow(EngineError)
    await client.config('SET', 'maxmemory', '0')
    expect(await guarded.list('full')).toEqual([])
    expect(await client.get('text')).toBe('ä b')
    await client.set('hf1:marks:{odd}', 'x')
    await expect(guarded.write(leaseLike(6n, 'odd'), [['DEL', 'text']])).rejects.toThrow(EngineError)
    expect(await client.get('text')).toBe('ä b')
  })

  test('marks of a newer version are refused; marks are reset only with their present value', async () => {
    await client.hset('hf1:marks:{future}', { format: '2', seen: '1', written: '1' })
    await expect(guarded.read(leaseLike(5n, 'future'))).rejects.toThrow(EngineError)
    await guarded.read(leaseLike(5n, 'past'))
    expect([await guarded.reset('past', 4n), await guarded.reset('past', 5n)]).toEqual([false, true])
    expect(await guarded.list('past')).toEqual([])
  })

  test('works with node-redis, valkey-glide, and a client that puts a prefix before its keys', async () => {
    const nodeRedis = createClient({ url: server.url })
    await nodeRedis.connect()
    const { hostname: host, port } = new URL(server.url)
    const glide = await GlideClient.createClient({ addresses: [{ host, port: Number(port) }] })
    const prefixed = new Redis(server.url, { keyPrefix: 'app:' })
    const clients: readonly RedisClient[] = [
      nodeRedis as unknown as RedisClient,
      glide as unknown as RedisClient,
      prefixed,
    ]
    for (const [index, brought] of clients.entries()) {
      await using own = guard({ client: brought })
      const key = `client:${index}`
      expect(
        await own.write(leaseLike(6n, key), [
          ['SET', key, 'x'],
          ['GET', key],
        ]),
      ).toEqual(['OK', 'x'])
      await expect(own.write(leaseLike(5n, key), [['DEL', key]])).rejects.toMatchObject({ seen: 6n })
      expect(await own.list(key)).toEqual([{ resource: key, seen: 6n, written: 6n }])
    }
    expect(await client.get('app:client:2')).toBe('x')
    await nodeRedis.close()
    glide.close()
    prefixed.disconnect()
  })
})

await describeServer('the guard in a Redis Cluster', findOwnRedis, (source) => {
  describe('in the slot of the resource', () => {
    test('marks and keys are together, whatever the resource is called', async () => {
      await using servers = await ClusterDeployment.start(source.program)
      const client = new Cluster([...servers.addresses])
      await using guarded = guard({ client })
      for (const resource of ['account:7', '{user:1}:cart', 'odd}name', '{}x']) {
        expect(await guarded.write(leaseLike(6n, resource), [['SET', resource, 'x']])).toEqual(['OK'])
        await expect(guarded.write(leaseLike(5n, resource), [['DEL', resource]])).rejects.toMatchObject({ seen: 6n })
      }
      expect((await guarded.list()).map(({ resource }) => resource)).toEqual(
        ['account:7', 'odd}name', '{user:1}:cart', '{}x'].toSorted(),
      )
      client.disconnect()
    })
  })
})
