/**
 * Engines as the matrix plays them: each with a server of its own, with the worlds that their tests have. And, for each
 * library that a user may bring, how a client of it is made.
 */
import type { ConformanceOptions, World } from '../../conformance/index.ts'
import type { Engine } from '../../src/core/engine.ts'
import { mongodb } from '../../src/engines/mongodb/index.ts'
import { mysql } from '../../src/engines/mysql/index.ts'
import { postgres } from '../../src/engines/postgres/index.ts'
import { redis } from '../../src/engines/redis/index.ts'
import { etcdPlace, etcdWorld } from '../engines/etcd-world.ts'
import { memoryWorld } from '../engines/memory-world.ts'
import { mysqlWorld } from '../engines/mysql-world.ts'
import { postgresWorld } from '../engines/postgres-world.ts'
import { redisWorld } from '../engines/redis-world.ts'
import { sqliteFileWorld } from '../engines/sqlite-file-world.ts'
import { zookeeperPlace, zookeeperWorld } from '../engines/zookeeper-world.ts'
import { EtcdServer, findEtcd } from '../servers/etcd.ts'
import { findMariadb, MariadbServer } from '../servers/mariadb.ts'
import { StandIn } from '../servers/mongodb-stand-in/stand-in.ts'
import { findPostgres, PostgresServer } from '../servers/postgres.ts'
import { Missing } from '../servers/programs.ts'
import { findRedis, RedisServer } from '../servers/redis.ts'
import { findZooKeeper, ZooKeeperServer } from '../servers/zookeeper.ts'

/** A client that was brought, and how to be rid of it. */
interface Brought {
  readonly engine: Engine
  close(): unknown
}

export interface PlayedEngine {
  world(): Promise<World>
  readonly options?: ConformanceOptions
}

async function present<Source extends object>(finding: Promise<Source | Missing>): Promise<Source> {
  const found = await finding
  if (found instanceof Missing) throw new Error(found.reason)
  return found
}

async function redisServer(): Promise<RedisServer> {
  return await RedisServer.start(await present(findRedis()))
}

/** With its server, which is closed with it. */
function closing(world: World, server: AsyncDisposable): World {
  const close = async (): Promise<void> => {
    await world.close?.()
    await server[Symbol.asyncDispose]()
  }
  return { ...world, close }
}

async function etcdServerWorld(): Promise<World> {
  const server = await EtcdServer.start(await present(findEtcd()))
  return closing(etcdWorld({ ...etcdPlace(server), asEntries: true }), server)
}

async function zookeeperServerWorld(): Promise<World> {
  const server = await ZooKeeperServer.start(await present(findZooKeeper()))
  return closing(zookeeperWorld(zookeeperPlace(server)), server)
}

/** By name. etcd is judged as its own tests judge it; what is said there of its ttl is left out here. */
export const ENGINES: Readonly<Record<string, PlayedEngine>> = {
  memory: { world: async () => memoryWorld() },
  sqlite: { world: async () => sqliteFileWorld() },
  redis: { world: async () => await redisWorld(await redisServer()) },
  postgres: { world: async () => await postgresWorld(await PostgresServer.start(await present(findPostgres()))) },
  mysql: { world: async () => await mysqlWorld(await MariadbServer.start(await present(findMariadb()))) },
  zookeeper: { world: zookeeperServerWorld, options: { atOnce: 16 } },
  etcd: { world: etcdServerWorld, options: { atOnce: 16, only: (_, property) => property !== 'looking' } },
}

/** What a client can get wrong. The rest of the suite is about the server, and about the client that we make. */
const OF_CLIENTS = ['batches', 'keys', 'waiting', 'looking', 'eviction', 'sharing', 'the store']

/** A world whose engines are made with clients of this kind, on one server. Each client is closed with its engine. */
function broughtWorld(server: AsyncDisposable, bring: () => Promise<Brought>): World {
  const engine = async (): Promise<Engine> => {
    const { engine: made, close } = await bring()
    const dispose = made[Symbol.asyncDispose].bind(made)
    made[Symbol.asyncDispose] = async () => {
      await dispose()
      await close()
    }
    // A client connects when it first asks something. Cases count time: so it has.
    await made.inspect('warm up')
    return made
  }
  return { engine, close: async () => await server[Symbol.asyncDispose]() }
}

async function redisClients(bring: (url: string) => Promise<Brought>): Promise<World> {
  const server = await redisServer()
  return broughtWorld(server, () => bring(server.url))
}

async function postgresClients(bring: (url: string) => Promise<Brought>): Promise<World> {
  const server = await PostgresServer.start(await present(findPostgres()))
  const database = await server.database()
  return broughtWorld(server, () => bring(database))
}

const WORLDS_OF_CLIENTS: Readonly<Record<string, () => Promise<World>>> = {
  ioredis: () =>
    redisClients(async (url) => {
      const { Redis } = await import('ioredis')
      const client = new Redis(url)
      return { engine: redis({ client }), close: () => client.disconnect() }
    }),
  redis: () =>
    redisClients(async (url) => {
      const { createClient } = await import('redis')
      const client = createClient({ url })
      client.on('error', () => undefined)
      await client.connect()
      return { engine: redis({ client }), close: () => client.disconnect() }
    }),
  '@valkey/valkey-glide': async () => {
    const { Decoder, GlideClient } = await import('@valkey/valkey-glide')
    // Before 2.3 a client cannot be told later what to listen to: then waiters poll.
    const listens = 'subscribe' in GlideClient.prototype
    const world = await redisClients(async (url) => {
      const addresses = [{ host: '127.0.0.1', port: Number(new URL(url).port) }]
      const make = () => GlideClient.createClient({ addresses, requestTimeout: 2000, defaultDecoder: Decoder.String })
      const client = await make()
      const subscriber = listens ? await make() : undefined
      const engine = redis(subscriber === undefined ? { client } : { client, subscriber })
      return { engine, close: () => [client, subscriber].map((each) => each?.close()) }
    })
    return listens ? world : { ...world, lacks: { politeEviction: 'without a subscriber, this client hears nothing' } }
  },
  pg: () =>
    postgresClients(async (connectionString) => {
      const { default: pg } = await import('pg')
      const client = new pg.Pool({ connectionString })
      client.on('error', () => undefined)
      return { engine: postgres({ client }), close: () => client.end() }
    }),
  postgres: () =>
    postgresClients(async (url) => {
      const { default: make } = await import('postgres')
      const client = make(url, { onnotice: () => undefined })
      return { engine: postgres({ client }), close: () => client.end() }
    }),
  mysql2: async () => {
    const server = await MariadbServer.start(await present(findMariadb()))
    return broughtWorld(server, async () => {
      const { createPool } = await import('mysql2/promise')
      const client = createPool({ uri: server.url })
      return { engine: mysql({ client }), close: () => client.end() }
    })
  },
  mongodb: async () => {
    const server = await StandIn.start({ replicaSet: true })
    return broughtWorld(server, async () => {
      const { MongoClient } = await import('mongodb')
      const client = new MongoClient(server.url)
      return { engine: mongodb({ client }), close: () => client.close() }
    })
  },
}

/** By the name of the package. */
export const CLIENTS: Readonly<Record<string, PlayedEngine>> = Object.fromEntries(
  Object.entries(WORLDS_OF_CLIENTS).map(([name, world]) => [
    name,
    { world, options: { atOnce: 4, only: (_: string, property: string) => OF_CLIENTS.includes(property) } },
  ]),
)
