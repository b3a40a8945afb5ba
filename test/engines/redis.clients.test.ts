/**
 * Clients that users bring: every kind that we take, in every shape that differs for us, conforms; and none of them
 * ends the process, or does something late, when the connection blinks.
 */
import { Decoder, GlideClient } from '@valkey/valkey-glide'
import { Redis } from 'ioredis'
import { createClient, createClientPool } from 'redis'
import { afterAll, beforeAll, describe, expect, it, test, vi } from 'vitest'
import { conformance } from '../../conformance/index.ts'
import { type RedisClient, type RedisOptions, redis } from '../../src/engines/redis/index.ts'
import { createLocks, EngineError } from '../../src/index.ts'
import { FaultProxy } from '../servers/proxy.ts'
import { findOwnRedis, RedisServer } from '../servers/redis.ts'
import { describeServer } from '../servers/suite.ts'
import { connected } from './redis-world.ts'

const LIMIT = { timeout: 30_000, interval: 5 }
/** What a client can get wrong; the rest of the suite is about the scripts, and runs with the client that we make. */
const PROPERTIES = ['batches', 'keys', 'waiting', 'looking', 'eviction']
/** Clients send and answer text. */
const BYTES = 'what is put is read by every client, byte for byte, up to the largest value'

interface Kind {
  readonly name: string
  /** Without a connection to listen on, it hears nothing. */
  readonly deaf?: true
  make(port: number): Promise<RedisOptions>
  close(options: RedisOptions): Promise<void>
}

const closeGlide = async ({ client, subscriber }: RedisOptions): Promise<void> => {
  for (const glide of [client, subscriber]) (glide as GlideClient | undefined)?.close()
}

const glideAt = (port: number): Promise<GlideClient> =>
  GlideClient.createClient({
    addresses: [{ host: '127.0.0.1', port }],
    requestTimeout: 2000,
    defaultDecoder: Decoder.String,
  })

const kinds: readonly Kind[] = [
  {
    name: 'ioredis',
    make: async (port) => ({ client: new Redis(port) }),
    close: async ({ client }) => (client as Redis).disconnect(),
  },
  {
    name: 'ioredis with a key prefix, automatic pipelines and RESP2',
    make: async (port) => ({
      client: new Redis(port, { keyPrefix: 'app:', enableAutoPipelining: true, protocol: 2 }),
      prefix: '',
    }),
    close: async ({ client }) => (client as Redis).disconnect(),
  },
  {
    name: 'node-redis',
    make: async (port) => ({ client: await createClient({ url: `redis://127.0.0.1:${port}` }).connect() }),
    close: async ({ client }) => (client as ReturnType<typeof createClient>).destroy(),
  },
  {
    name: 'a pool of node-redis with a subscriber',
    make: async (port) => {
      const url = `redis://127.0.0.1:${port}`
      const client = createClientPool({ url })
      await client.connect()
      return { client, subscriber: createClient({ url }) }
    },
    close: async ({ client }) => (client as ReturnType<typeof createClientPool>).destroy(),
  },
  {
    name: 'valkey-glide with a subscriber',
    make: async (port) => ({ client: await glideAt(port), subscriber: await glideAt(port) }),
    close: closeGlide,
  },
  {
    name: 'valkey-glide alone',
    deaf: true,
    make: async (port) => ({ client: await glideAt(port) }),
    close: closeGlide,
  },
]

await describeServer('brought clients', findOwnRedis, (source) => {
  let server: RedisServer
  let proxy: FaultProxy

  beforeAll(async () => {
    server = await RedisServer.start(source)
    proxy = await FaultProxy.start(server)
  })

  afterAll(async () => {
    await proxy[Symbol.asyncDispose]()
    await server[Symbol.asyncDispose]()
  })

  describe.each(kinds)('$name', (kind) => {
    const made: RedisOptions[] = []

    async function engine(port = server.port) {
      const options = await kind.make(port)
      made.push(options)
      return redis(options)
    }

    afterAll(() => Promise.all(made.map((options) => kind.close(options))))

    const lacks = kind.deaf ? { lacks: { politeEviction: 'without a subscriber, this client hears nothing' } } : {}
    const world = { engine: async () => connected(await engine()), ...lacks }
    conformance({ describe, it, afterAll }, kind.name, () => world, {
      only: (name, property) => PROPERTIES.includes(property) || name === BYTES,
    })

    test('a cut connection is mended, leases and waiters survive it, and the process too', async () => {
      const locks = createLocks(await engine(proxy.port), { ttl: '10s' })
      const lease = await locks.mutex('key').acquire()
      const waiting = locks.mutex('key').acquire()
      await vi.waitFor(async () => expect((await locks.inspect('key')).entries).toHaveLength(2), LIMIT)
      proxy.reset()
      await vi.waitFor(async () => expect((await locks.inspect('key')).entries).toHaveLength(2), LIMIT)
      expect(await lease.release()).toBe(true)
      expect((await waiting).held).toBe(true)
      await locks.close()
    })

    test('a hundred waiters share its connections, and nothing is defined on it', async () => {
      const options = await kind.make(server.port)
      made.push(options)
      const before = methodsOf(options.client)
      const cancel = new AbortController()
      await using locks = createLocks(redis(options), { ttl: '30s' })
      const lease = await locks.mutex('many').acquire()
      await using client = await server.connect()
      const connections = async (): Promise<number> => String(await client.command('CLIENT', 'LIST')).split('\n').length
      const wait = (): Promise<unknown> =>
        locks
          .mutex('many')
          .acquire({ signal: cancel.signal })
          .catch(() => undefined)
      void wait()
      await vi.waitFor(async () => expect((await locks.inspect('many')).entries).toHaveLength(2), LIMIT)
      const used = await connections()
      for (let waiters = 1; waiters < 100; waiters += 1) void wait()
      await vi.waitFor(async () => expect((await locks.inspect('many')).entries).toHaveLength(101), LIMIT)
      // Fewer, if those of an earlier test are still being closed.
      expect(await connections()).toBeLessThanOrEqual(used)
      expect(methodsOf(options.client)).toEqual(before)
      cancel.abort()
      await lease.release()
    })

    test('what could be wrong with the server is found', async () => {
      await using made = await engine()
      expect((await made.diagnose()).map(({ name }) => name)).toEqual([
        'version',
        'eviction',
        'durability',
        'replicas',
        'strangers',
        ...(kind.name === 'node-redis' ? ['client'] : []),
      ])
      await using client = await server.connect()
      await client.command('CONFIG', 'SET', 'save', '900 1')
      expect(await made.diagnose()).toContainEqual(
        expect.objectContaining({ finding: expect.stringContaining('(900 1)') }),
      )
      await client.command('CONFIG', 'SET', 'save', '')
    })

    test('what is asked while the server is away is not done when it is back', async () => {
      const locks = createLocks(await engine(proxy.port), { ttl: '30s', callTimeout: '3s' })
      await (await locks.mutex('before').acquire()).release()
      await proxy.refuse()
      await vi.waitFor(
        async () => expect(await failureOf(locks.mutex('late').tryAcquire())).toBeInstanceOf(EngineError),
        LIMIT,
      )
      await proxy.heal()
      // On the same connection, so after whatever it had kept for later.
      await vi.waitFor(async () => expect((await locks.inspect('late')).entries).toEqual([]), LIMIT)
      await locks.close()
    })
  })
})

/** Those of the object itself and those of its class. */
function methodsOf(client: object): readonly string[] {
  const names = [client, Object.getPrototypeOf(client) as object].flatMap((one) => Object.getOwnPropertyNames(one))
  return names.filter((name) => typeof (client as Record<string, unknown>)[name] === 'function').sort()
}

async function failureOf(promise: Promise<unknown>): Promise<unknown> {
  try {
    return await promise
  } catch (error) {
    return error
  }
}

test.each([
  ['nothing', undefined],
  ['a string', 'redis://'],
  ['something else', { get() {}, set() {} }],
])('%s is no client, and that is said when the engine is made', (_, client) => {
  expect(() => redis({ client: client as unknown as RedisClient })).toThrow(TypeError)
})
