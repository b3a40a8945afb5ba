/**
 * Waiters on MongoDB whose change stream ends, one way after the other, while they wait: the release that it did not
 * tell is found out at once, and not by the next renewal. On the stand-in, as a replica set of one.
 */
import { MongoClient } from 'mongodb'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { mongodb, openMongodb } from '../../src/engines/mongodb/index.ts'
import { createLocks, type Lease, type Locks } from '../../src/index.ts'
import { StandIn } from '../servers/mongodb-stand-in/stand-in.ts'
import { FaultProxy } from '../servers/proxy.ts'
import { inLine } from './members.ts'

/** Waiters renew every 200 s, so in a test none is served by that. */
const TTL = '600s'
const LIMIT_MS = 45_000

let server: StandIn
let proxy: FaultProxy
let admin: MongoClient
/** Holds. */
let holding: Locks
/** Waits, behind the proxy. */
let waiting: Locks
let waitingClient: MongoClient
/** How often it has opened a stream, and how often one has failed. */
let streams: { opened: number; failed: number }

beforeEach(async () => {
  server = await StandIn.start({ replicaSet: true })
  proxy = await FaultProxy.start({ port: server.port })
  admin = new MongoClient(server.urlThrough(server.port))
  holding = createLocks(await openMongodb(server.url), { ttl: TTL })
  // Set as a client of our own is.
  const set = { serverSelectionTimeoutMS: 3_000, connectTimeoutMS: 3_000, heartbeatFrequencyMS: 2_000 }
  waitingClient = new MongoClient(server.urlThrough(proxy.port), { ...set, monitorCommands: true })
  streams = { opened: 0, failed: 0 }
  waitingClient.on('commandStarted', ({ commandName, command }) => {
    if (commandName === 'aggregate' && '$changeStream' in command.pipeline[0]) streams.opened += 1
  })
  waitingClient.on('commandFailed', ({ commandName }) => {
    if (commandName === 'getMore') streams.failed += 1
  })
  waiting = createLocks(mongodb({ client: waitingClient }), { ttl: TTL })
})

afterEach(async () => {
  await proxy.heal()
  await Promise.all([holding.close(), waiting.close(), admin.close()])
  await waitingClient.close()
  await proxy[Symbol.asyncDispose]()
  await server.close()
})

/** A waiter in line, whose change stream is known to work. */
async function waits(): Promise<{ readonly held: Lease; readonly next: Promise<Lease> }> {
  for (const locks of [holding, waiting]) await (await locks.mutex('warm up').acquire()).release()
  const held = await holding.mutex('told').acquire()
  const next = waiting.mutex('told').acquire()
  await inLine(holding, 'told', 2)
  return { held, next }
}

async function fail(mode: object | string, data: object): Promise<void> {
  await admin.db('admin').command({ configureFailPoint: 'failCommand', mode, data })
}

describe('a waiter on a stand-in is served soon after a release that its change stream did not tell', () => {
  /** Each ends the stream, has the lock released meanwhile, and lets all be well again. */
  const ENDS: Readonly<Record<string, (held: Lease) => Promise<unknown>>> = {
    'since its connections were cut': async (held) => {
      await proxy.refuse()
      await held.release()
      await proxy.heal()
    },
    'since its connections were forgotten on the way, and stay silent': async (held) => {
      proxy.forget()
      await held.release()
    },
    'since the server has forgotten its cursor, and opens no other for a while': async (held) => {
      await fail('alwaysOn', { failCommands: ['aggregate', 'getMore'], errorCode: 43 })
      await vi.waitFor(() => expect(streams.failed).toBe(1), LIMIT_MS)
      await held.release()
      await fail('off', {})
    },
    'since the server was killed, and came back': async (held) => {
      await proxy.refuse()
      await server.kill()
      await server.restart()
      expect(await held.release()).toBe(true)
      await proxy.heal()
    },
    'since the primary has stepped down, and is elected again': async (held) => {
      await admin.db('admin').command({ replSetStepDown: 1 })
      // Since the driver tells of it: the old stream would not have ended by itself.
      await vi.waitFor(() => expect(streams.opened).toBeGreaterThan(1), LIMIT_MS)
      await vi.waitFor(async () => expect((await held.release()) || !held.held).toBe(true), LIMIT_MS)
    },
  }

  test.each(Object.keys(ENDS))('%s', async (end) => {
    const { held, next } = await waits()
    await ENDS[end]?.(held)
    expect((await next).token ?? 0n).toBeGreaterThan(held.token ?? 0n)
  })
})

describe('a waiter on a stand-in whose collection is gone enters the line of the new one, and is served', () => {
  const LOSSES: Readonly<Record<string, () => Promise<unknown>>> = {
    dropped: () => admin.db().collection('holdfast').drop(),
    renamed: () => admin.db().collection('holdfast').rename('set_aside'),
    'dropped with its database': () => admin.db().dropDatabase(),
  }

  test.each(Object.keys(LOSSES))('%s', async (loss) => {
    const { held, next } = await waits()
    await LOSSES[loss]?.()
    // Tokens go on from the clock of the server.
    expect((await next).token ?? 0n).toBeGreaterThan(held.token ?? 0n)
    expect((await holding.inspect('told')).entries).toHaveLength(1)
    // The new collection is cleared away like the one before.
    const indexes = async (): Promise<unknown> => await admin.db().collection('holdfast').indexes()
    const ttlIndex = expect.objectContaining({ key: { remove_at: 1 }, expireAfterSeconds: 0 })
    await vi.waitFor(async () => expect(await indexes()).toContainEqual(ttlIndex), LIMIT_MS)
  })
})

test('on a stand-in, idle waiters cost one renewal per beat and process, however many they are', async () => {
  /** How many lines each write was about. */
  const writes: number[] = []
  const client = new MongoClient(server.url, { monitorCommands: true })
  client.on('commandStarted', ({ commandName, command }) => {
    if (commandName === 'update') writes.push(command.updates.length)
    else if (commandName === 'findAndModify') writes.push(1)
  })
  const idle = createLocks(mongodb({ client }), { ttl: '3s' })
  const ending = new AbortController()
  try {
    const keys = Array.from({ length: 20 }, (_, index) => `idle ${index}`)
    for (const key of keys) await holding.mutex(key).acquire()
    const ended = Promise.allSettled(keys.map((key) => idle.mutex(key).acquire({ signal: ending.signal })))
    await inLine(holding, 'idle 19', 2)
    writes.length = 0
    await vi.waitFor(() => expect(writes).toHaveLength(3), { timeout: LIMIT_MS, interval: 5 })
    expect(writes).toEqual([20, 20, 20])
    ending.abort()
    await ended
  } finally {
    ending.abort()
    await idle.close()
    await client.close()
  }
})
