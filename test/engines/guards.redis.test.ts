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
import { bearer, expectRule } from './guards.rule.ts'

await describeServer('the guard of Redis', findRedis, (source) => {
  let server: RedisServer
  let client: Redis
  let fence: RedisGuard

  beforeAll(async () => {
    server = await RedisServer.start(source)
    client = new Redis(server.url)
    fence = guard({ client })
    return async () => {
      await fence[Symbol.asyncDispose]()
      client.disconnect()
      await server[Symbol.asyncDispose]()
    }
  })

  test('decides as the pure rule does', async () => {
    await expectRule(
      {
        come: async (touch, coming) => {
          const replies =
            touch === 'read' ? fence.touch(coming, [['GET', 'x']]) : fence.fenced(coming, [['SET', 'x', '1']])
          expect(await replies).toHaveLength(1)
        },
        list: (prefix) => fence.list(prefix),
      },
      40,
    )
  })

  test('runs commands of every kind and answers their replies; a stale holder changes nothing', async () => {
    const replies = await fence.fenced(bearer(6n, 'several'), [
      ['SET', 'text', 'ä b'],
      ['GET', 'missing'],
      ['INCRBY', 'number', 5],
      ['RPUSH', 'list', 'a', 'b'],
      ['LRANGE', 'list', 0, -1],
    ])
    expect(replies).toEqual(['OK', null, 5, 2, ['a', 'b']])
    await expect(fence.fenced(bearer(5n, 'several'), [['DEL', 'text']])).rejects.toMatchObject({
      offered: 5n,
      seen: 6n,
    })
    expect(await client.get('text')).toBe('ä b')
  })

  test('a command that fails is an EngineError, and the token may act again', async () => {
    await client.set('string', 'x')
    await expect(fence.fenced(bearer(5n, 'failing'), [['RPUSH', 'string', 'a']])).rejects.toThrow(EngineError)
    expect(await fence.fenced(bearer(5n, 'failing'), [['GET', 'string']])).toEqual(['x'])
    await expect(fence.fenced(bearer(5n), [['GET'] as never])).rejects.toThrow('a command is')
  })

  test('a script that fails half-way leaves what came before, and marks that keep older tokens out', async () => {
    await client.set('half', 'a string')
    const halfway = fence.fenced(bearer(6n, 'halfway'), [
      ['SET', 'done', 'six'],
      ['RPUSH', 'half', 'x'],
      ['SET', 'never', 'six'],
    ])
    await expect(halfway).rejects.toThrow(EngineError)
    expect(await client.mget('done', 'never')).toEqual(['six', null])
    await expect(fence.fenced(bearer(5n, 'halfway'), [['SET', 'done', 'late']])).rejects.toMatchObject({ seen: 6n })
    await expect(fence.touch(bearer(5n, 'halfway'))).rejects.toMatchObject({ seen: 6n })
  })

  test('without memory for its marks a server does nothing; without marks that are a hash neither', async () => {
    await client.config('SET', 'maxmemory', '1')
    await expect(fence.touch(bearer(6n, 'full'), [['DEL', 'text']])).rejects.toThrow(EngineError)
    await client.config('SET', 'maxmemory', '0')
    expect(await fence.list('full')).toEqual([])
    expect(await client.get('text')).toBe('ä b')
    await client.set('hf1:fence:{odd}', 'x')
    await expect(fence.fenced(bearer(6n, 'odd'), [['DEL', 'text']])).rejects.toThrow(EngineError)
    expect(await client.get('text')).toBe('ä b')
  })

  test('marks of a newer version are refused; marks are reset by whoever knows them', async () => {
    await client.hset('hf1:fence:{future}', { format: '2', seen: '1', written: '1' })
    await expect(fence.touch(bearer(5n, 'future'))).rejects.toThrow(EngineError)
    await fence.touch(bearer(5n, 'past'))
    expect([await fence.reset('past', 4n), await fence.reset('past', 5n)]).toEqual([false, true])
    expect(await fence.list('past')).toEqual([])
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
        await own.fenced(bearer(6n, key), [
          ['SET', key, 'x'],
          ['GET', key],
        ]),
      ).toEqual(['OK', 'x'])
      await expect(own.fenced(bearer(5n, key), [['DEL', key]])).rejects.toMatchObject({ seen: 6n })
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
      await using fence = guard({ client })
      for (const resource of ['account:7', '{user:1}:cart', 'odd}name', '{}x']) {
        expect(await fence.fenced(bearer(6n, resource), [['SET', resource, 'x']])).toEqual(['OK'])
        await expect(fence.fenced(bearer(5n, resource), [['DEL', resource]])).rejects.toMatchObject({ seen: 6n })
      }
      expect((await fence.list()).map(({ resource }) => resource)).toEqual(
        ['account:7', 'odd}name', '{user:1}:cart', '{}x'].toSorted(),
      )
      client.disconnect()
    })
  })
})
