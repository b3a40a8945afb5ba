/**
 * Clients of the user, of the drivers 5, 6 and 7, however they are set: on the stand-in as a replica set. And what
 * becomes of calls when it is frozen, killed, or does not confirm.
 */
import { MongoClient } from 'mongodb'
import { MongoClient as MongoClient5 } from 'mongodb5'
import { MongoClient as MongoClient6 } from 'mongodb6'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { systemClock } from '../../src/core/clock.ts'
import type { Claim, News } from '../../src/core/engine.ts'
import { EngineError } from '../../src/core/errors.ts'
import { type MongodbClient, type MongodbEngine, mongodb } from '../../src/engines/mongodb/index.ts'
import { createLocks } from '../../src/locks.ts'
import { StandIn } from '../servers/mongodb-stand-in/stand-in.ts'

/** Less than the driver takes to give up a server that stands still. */
const LIMIT_MS = 15_000

const DRIVERS: Readonly<Record<string, (url: string, options: object) => MongodbClient>> = {
  'mongodb 5': (url, options) => new MongoClient5(url, options),
  'mongodb 6': (url, options) => new MongoClient6(url, options),
  'mongodb 7': (url, options) => new MongoClient(url, options),
}

let ids = 0
const claimOf = (key: string, more: Partial<Claim> = {}): Claim => {
  ids += 1
  const id = String(ids).padStart(32, '0')
  return { key, id, holder: '$token', weight: 1, limit: 1, ttlMs: 30_000, wait: true, ...more }
}

/** Resolves with the first news that `is` so. */
function hears(engine: MongodbEngine, is: (news: News) => boolean): Promise<{ readonly heard: Promise<News> }> {
  return new Promise((subscribed, failed) => {
    const heard = new Promise<News>((resolve) => {
      engine
        .subscribe((news) => {
          if (is(news)) resolve(news)
        })
        .then(() => subscribed({ heard }), failed)
    })
  })
}

describe('on a stand-in', () => {
  let server: StandIn
  beforeAll(async () => {
    server = await StandIn.start({ replicaSet: true })
  })
  afterAll(async () => await server.close())

  describe.each(Object.keys(DRIVERS))('a client of %s', (driver) => {
    // As unsafe, and as unlike the usual, as a client can be set.
    const odd = {
      ...{ w: 0, readPreference: 'secondaryPreferred', readConcernLevel: 'local' },
      ...{ promoteLongs: false, promoteValues: false, ignoreUndefined: true },
    }

    // Of numbers and of fields it makes something else than usual.
    const strange = {
      ...{ useBigInt64: true, bsonRegExp: true, promoteBuffers: true, serializeFunctions: true },
      ...{ fieldsAsRaw: { entries: true, cursor: true }, retryWrites: false, monitorCommands: true },
    }

    test.each([{}, odd, strange])('set to %o keeps locks: in turn, with a token, told at once', async (set) => {
      const client = DRIVERS[driver]?.(server.url, set) as MongodbClient
      const [one, other] = [mongodb({ client }), mongodb({ client })]
      const [locks, waiters] = [createLocks(one, { ttl: '10s' }), createLocks(other, { ttl: '10s' })]
      try {
        const key = `${driver} ${Object.keys(set).length}`
        const lease = await locks.mutex(key).acquire()
        const waiting = waiters.mutex(key).acquire()
        await expect.poll(async () => (await one.inspect(key)).entries.length).toBe(2)
        expect(await locks.mutex(key).tryAcquire()).toBeUndefined()
        expect(await lease.release()).toBe(true)
        const next = await waiting
        expect(next.token).toBeGreaterThan(lease.token as bigint)
        // Many keys at once go another way.
        const keys = Array.from({ length: 12 }, (_, index) => `${key} ${index}`)
        const many = await Promise.all(keys.map((each) => locks.mutex(each).acquire()))
        expect(await Promise.all(many.map((each) => each.release()))).toEqual(keys.map(() => true))
      } finally {
        await Promise.all([locks.close(), waiters.close()])
        await client.close()
      }
    })
  })

  test('a client that was brought is left open, without a listener of ours but one for its errors', async () => {
    const client = new MongoClient(server.url)
    try {
      const engine = mongodb({ client })
      await hears(engine, () => true)
      await engine[Symbol.asyncDispose]()
      expect(client.eventNames().filter((name) => name !== 'error')).toEqual([])
      expect(await client.db().command({ ping: 1 })).toMatchObject({ ok: 1 })
    } finally {
      await client.close()
    }
  })

  test('a waiter is told of its grant with its token, by the change stream', async () => {
    const [client, holding] = [new MongoClient(server.url), new MongoClient(server.url)]
    const [waits, holds] = [mongodb({ client }), mongodb({ client: holding })]
    try {
      const { heard } = await hears(waits, (news) => 'id' in news)
      const [holder, waiter] = [claimOf('told'), claimOf('told')]
      await holds.enter([holder])
      await waits.enter([waiter])
      await holds.leave([holder])
      expect(await heard).toMatchObject({ key: 'told', id: waiter.id, standing: { state: 'held' } })
    } finally {
      await Promise.all([waits, holds].map((engine) => engine[Symbol.asyncDispose]()))
      await Promise.all([client.close(), holding.close()])
    }
  })

  test('a client that may not ask for the version is told so by the doctor', async () => {
    const client = new MongoClient(server.url)
    const engine = mongodb({ client, listen: false })
    try {
      // As a server answers a client with `serverApi: { version: '1', strict: true }`.
      const data = { failCommands: ['buildInfo'], errorCode: 323 }
      await client.db('admin').command({ configureFailPoint: 'failCommand', mode: { times: 1 }, data })
      expect(await engine.diagnose()).toContainEqual(expect.objectContaining({ name: 'version', status: 'warn' }))
    } finally {
      await engine[Symbol.asyncDispose]()
      await client.close()
    }
  })

  test('a token that no entry can have evicts none', async () => {
    const client = new MongoClient(server.url)
    const engine = mongodb({ client, listen: false })
    try {
      await engine.enter([claimOf('evicted')])
      expect(await engine.evict('evicted', 2n ** 64n, 'now')).toBe(false)
      expect((await engine.inspect('evicted')).entries).toHaveLength(1)
    } finally {
      await engine[Symbol.asyncDispose]()
      await client.close()
    }
  })

  test('a stream that ends as soon as it is open is opened less and less often', async () => {
    // As behind a router that sends the next question to another server.
    await using failing = await StandIn.start({ replicaSet: true })
    const client = new MongoClient(failing.url)
    const delays: number[] = []
    const clock = {
      ...systemClock,
      timer: (delayMs: number, fire: () => void) => {
        delays.push(delayMs)
        return systemClock.timer(delayMs, fire)
      },
    }
    const engine = mongodb({ client, clock })
    try {
      const data = { failCommands: ['getMore'], errorCode: 43 }
      await client.db('admin').command({ configureFailPoint: 'failCommand', mode: 'alwaysOn', data })
      await engine.subscribe(() => undefined)
      await expect.poll(() => delays).toContain(320)
    } finally {
      await engine[Symbol.asyncDispose]()
      await client.close()
    }
  })

  test('observers are told of changes of their lines, and when the stream was cut', async () => {
    await using cut = await StandIn.start({ replicaSet: true })
    const client = new MongoClient(cut.url)
    const engine = mongodb({ client })
    const heard = { a: 0, b: 0 }
    const hear = (key: 'a' | 'b') => (): void => {
      heard[key] += 1
    }
    try {
      const [a, b] = await Promise.all([engine.watch('a', hear('a')), engine.watch('b', hear('b'))])
      await engine.enter([claimOf('b')])
      await expect.poll(() => heard.b).toBe(1)
      await b[Symbol.asyncDispose]()
      await engine.enter([claimOf('b'), claimOf('a')])
      await expect.poll(() => heard.a).toBe(1)
      expect(heard.b).toBe(1)
      const data = { failCommands: ['getMore'], errorCode: 43 }
      await client.db('admin').command({ configureFailPoint: 'failCommand', mode: { times: 1 }, data })
      // The question that is under way is answered before; what is told then is told once more by the gap.
      await engine.enter([claimOf('a')])
      await expect.poll(() => heard.a).toBeGreaterThan(3)
      await a[Symbol.asyncDispose]()
    } finally {
      await engine[Symbol.asyncDispose]()
      await client.close()
    }
    expect(client.eventNames().filter((name) => name !== 'error')).toEqual([])
  })

  test('where there are no change streams, an observer is not promised to be told', async () => {
    await using alone = await StandIn.start({ replicaSet: false })
    const client = new MongoClient(alone.url)
    const [engine, deaf] = [mongodb({ client }), mongodb({ client, listen: false })]
    const locks = createLocks(engine)
    try {
      for (const one of [engine, deaf])
        await expect(one.watch('a', () => undefined)).rejects.toMatchObject({ code: 'ENGINE', transient: false })
      // It looks now and then instead.
      const seen: number[] = []
      const changes = locks.watch('a', { every: '20ms' })
      for await (const { entries } of changes) {
        if (seen.at(-1) !== entries.length) seen.push(entries.length)
        if (seen.length === 1 && entries.length === 0) await engine.enter([claimOf('a')])
        if (entries.length === 1) break
      }
      expect(seen).toEqual([0, 1])
    } finally {
      await locks.close()
      await deaf[Symbol.asyncDispose]()
      await client.close()
    }
  })

  test('a stream whose collection is dropped is opened anew, and said to have a gap', async () => {
    const client = new MongoClient(server.url)
    const engine = mongodb({ client, collection: 'dropped' })
    try {
      await engine.enter([claimOf('d')])
      const { heard } = await hears(engine, (news) => 'gap' in news)
      await client.db().collection('dropped').drop()
      expect(await heard).toEqual({ gap: true })
    } finally {
      await engine[Symbol.asyncDispose]()
      await client.close()
    }
  })

  test('an answer that no majority has confirmed is unknown, though the entry holds in it', async () => {
    const client = new MongoClient(server.url)
    const engine = mongodb({ client, listen: false })
    try {
      const command = {
        configureFailPoint: 'failCommand',
        mode: { times: 1 },
        data: {
          failCommands: ['findAndModify'],
          writeConcernError: { code: 11602, errmsg: 'operation was interrupted' },
        },
      }
      await client.db('admin').command(command)
      const claim = claimOf('unconfirmed')
      const refused = engine.enter([claim])
      await expect(refused).rejects.toMatchObject({ code: 'ENGINE', outcome: 'unknown', transient: true })
      await expect(refused).rejects.toThrow(EngineError)
      // It has become true. Entering again finds it, under the same id.
      expect((await engine.enter([claim]))[0]).toMatchObject({ state: 'held' })
    } finally {
      await engine[Symbol.asyncDispose]()
      await client.close()
    }
  })
})

describe('a stand-in that fails', () => {
  test('to answer the read after a write of many lines: unknown, for the write was done', async () => {
    await using server = await StandIn.start({ replicaSet: true })
    const client = new MongoClient(server.url)
    const engine = mongodb({ client, listen: false })
    try {
      const claims = Array.from({ length: 6 }, (_, index) => claimOf(`many ${index}`))
      const data = { failCommands: ['aggregate'], errorCode: 13 }
      await client.db('admin').command({ configureFailPoint: 'failCommand', mode: { times: 1 }, data })
      await expect(engine.enter(claims)).rejects.toMatchObject({ code: 'ENGINE', outcome: 'unknown' })
      expect(await engine.leave(claims)).toEqual(claims.map(() => true))
    } finally {
      await engine[Symbol.asyncDispose]()
      await client.close()
    }
  })

  test('frozen: a call ends by our own limit, with an unknown outcome', { timeout: LIMIT_MS }, async () => {
    await using server = await StandIn.start({ replicaSet: true })
    const client = new MongoClient(server.url)
    const engine = mongodb({ client, listen: false })
    try {
      await engine.inspect('warm up')
      server.freeze()
      const refused = engine.enter([claimOf('frozen', { ttlMs: 1000 })])
      await expect(refused).rejects.toMatchObject({ outcome: 'unknown', transient: true })
    } finally {
      server.resume()
      await engine[Symbol.asyncDispose]()
      await client.close()
    }
  })

  test('gone: a call is not applied, and waiters are rechecked when it is back', async () => {
    await using server = await StandIn.start({ replicaSet: true })
    const client = new MongoClient(server.url, { serverSelectionTimeoutMS: 500 })
    const engine = mongodb({ client })
    try {
      let gaps = 0
      const { heard } = await hears(engine, (news) => {
        gaps += 'gap' in news ? 1 : 0
        return gaps === 2
      })
      await server.kill()
      await expect.poll(() => gaps).toBe(1)
      const refused = engine.enter([claimOf('gone')])
      await expect(refused).rejects.toMatchObject({ outcome: 'not-applied', transient: true })
      await server.restart()
      expect(await heard).toEqual({ gap: true })
    } finally {
      await engine[Symbol.asyncDispose]()
      await client.close()
    }
  })
})
