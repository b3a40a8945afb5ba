/**
 * What is believed of answers of MongoDB, and what is not: writes that no majority confirms, that are rolled back, that
 * the driver has repeated, that were made by another clock, or beside a transaction of the user's. On the stand-in,
 * which is made to fail so; what real members do is in mongodb.members.test.ts.
 */
import { MongoClient } from 'mongodb'
import { MongoClient as MongoClient5 } from 'mongodb5'
import { MongoClient as MongoClient6 } from 'mongodb6'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import type { Claim } from '../../src/core/engine.ts'
import { type MongodbClient, mongodb, openMongodb } from '../../src/engines/mongodb/index.ts'
import { createLocks, type Locks } from '../../src/index.ts'
import { newClaim } from '../claims.ts'
import { StandIn } from '../servers/mongodb-stand-in/stand-in.ts'
import { FaultProxy } from '../servers/proxy.ts'

const LIMIT = { timeout: 20_000, interval: 10 }
const LIMIT_MS = 120_000
const HOUR_MS = 3_600_000
const WRITES = ['findAndModify', 'update']

let server: StandIn
let admin: MongoClient
const opened: Locks[] = []

beforeEach(async () => {
  server = await StandIn.start({ replicaSet: true })
  admin = new MongoClient(server.urlThrough(server.port))
})

afterEach(async () => {
  for (const locks of opened.splice(0)) await locks.close()
  await admin.close()
  await server.close()
})

async function open(ttl: '3s' | '30s', url = server.url): Promise<Locks> {
  const locks = createLocks(await openMongodb(url), { ttl })
  opened.push(locks)
  return locks
}

async function fail(mode: object | string, data: object = {}): Promise<void> {
  await admin.db('admin').command({ configureFailPoint: 'failCommand', mode, data })
}

/** Done by the primary, and confirmed by no other member. */
async function loseMajority(): Promise<void> {
  const writeConcernError = { code: 64, errmsg: 'waiting for replication timed out' }
  await fail('alwaysOn', { failCommands: WRITES, writeConcernError })
}

describe('on a stand-in that no majority confirms', () => {
  test('no lock is granted, holders are told in time, and all goes on when it is back', {
    timeout: LIMIT_MS,
  }, async () => {
    const locks = await open('3s')
    const lease = await locks.mutex('held').acquire()
    const lost = new Promise((resolve) => lease.signal.addEventListener('abort', resolve))
    await loseMajority()
    await expect(locks.mutex('new').tryAcquire()).rejects.toMatchObject({ code: 'ENGINE', outcome: 'unknown' })
    await expect(locks.mutex('waits').acquire({ wait: '1s' })).rejects.toMatchObject({ code: expect.any(String) })
    // Many lines at once go another way.
    const many = Array.from({ length: 8 }, (_, index) => locks.mutex(`many ${index}`).tryAcquire())
    for (const outcome of await Promise.allSettled(many)) expect(outcome.status).toBe('rejected')
    await lost
    expect(lease.held).toBe(false)
    await fail('off')
    const again = await vi.waitFor(async () => await locks.mutex('held').acquire(), LIMIT)
    expect(again.token ?? 0n).toBeGreaterThan(lease.token ?? 0n)
  })

  test('a grant that is rolled back was never believed, and the next one has a higher token than all before', {
    timeout: LIMIT_MS,
  }, async () => {
    const [one, other] = [await open('3s'), await open('30s')]
    const before = await one.mutex('rolled back').acquire()
    await before.release()
    const { written } = server
    await loseMajority()
    let isBelieved = false
    const asked = one.mutex('rolled back').acquire({ wait: '4s' })
    const outcome = asked.then(
      async (lease) => {
        isBelieved = true
        // It may hold first, when it has entered again.
        await lease.release()
        return lease.token
      },
      () => undefined,
    )
    // The primary has it. (A real one would show it only to those who ask for less than a majority.)
    await vi.waitFor(() => expect(server.written).toBeGreaterThan(written), LIMIT)
    expect((await other.inspect('rolled back')).entries).toHaveLength(1)
    expect(isBelieved).toBe(false)
    await server.rollBack(written)
    const next = await vi.waitFor(async () => await other.mutex('rolled back').acquire(), LIMIT)
    expect(next.token ?? 0n).toBeGreaterThan(before.token ?? 0n)
    const { token } = next
    await next.release()
    // It has entered again since, or has given up. What it has had, it has had alone.
    const late = await outcome
    if (late !== undefined) expect(late).not.toBe(token)
  })
})

test('on a stand-in, a refusal of the second attempt does not hide that the first was done', {
  timeout: LIMIT_MS,
}, async () => {
  await using proxy = await FaultProxy.start({ port: server.port })
  // One connection: else the second attempt may meet another that was cut as well, and there is no third. And a monitor
  // that is not about to ask: one whose question is cut, too, ends the connection of the second attempt.
  const settings = 'maxPoolSize=1&serverMonitoringMode=poll&heartbeatFrequencyMS=600000'
  await using engine = await openMongodb(`${server.urlThrough(proxy.port)}&${settings}`, { listen: false })
  await engine.inspect('warm up')
  const claim = newClaim('repeated')
  const { written } = server
  proxy.blackHole('replies')
  const entering = engine.enter([claim])
  const refused = expect(entering).rejects.toMatchObject({ code: 'ENGINE', outcome: 'unknown', transient: false })
  await vi.waitFor(() => expect(server.written).toBeGreaterThan(written), LIMIT)
  // Its rights were taken away, before the driver tries again.
  await fail({ times: 1 }, { failCommands: ['findAndModify'], errorCode: 13 })
  proxy.reset()
  await proxy.heal()
  await refused
  expect((await engine.inspect('repeated')).entries).toHaveLength(1)
  expect(await engine.leave([claim])).toEqual([true])
})

test('on a stand-in, two that make the line of a key at the same moment do not fail, also if they do not wait', async () => {
  await using engine = await openMongodb(server.url, { listen: false })
  await engine.inspect('warm up')
  // As a server says that does not try again by itself, or not often enough.
  await fail({ times: 2 }, { failCommands: ['findAndModify'], errorCode: 11000 })
  expect(await engine.enter([newClaim('new', { wait: false })])).toMatchObject([{ state: 'held' }])
  await fail({ times: 2 }, { failCommands: ['findAndModify'], errorCode: 11000 })
  const change = { key: 'new too', value: Buffer.from('a'), ttlMs: null, when: { absent: true } } as const
  expect(await engine.store.put([change])).toMatchObject([{ state: 'stored' }])
  // And not for ever.
  await fail('alwaysOn', { failCommands: ['findAndModify'], errorCode: 11000 })
  const refused = engine.enter([newClaim('newer', { wait: false })])
  await expect(refused).rejects.toMatchObject({ code: 'ENGINE', outcome: 'not-applied', transient: true })
})

test('on a stand-in, of several releases each says whether it was held, though others have come and gone since', {
  timeout: LIMIT_MS,
}, async () => {
  await using one = await openMongodb(server.url, { listen: false })
  await using other = await openMongodb(server.url, { listen: false })
  const claims = Array.from({ length: 6 }, (_, index) => newClaim(`key ${index}`))
  const [gone, nowhere, ...held] = claims as [Claim, Claim, ...Claim[]]
  for (const standing of await one.enter([gone, ...held])) expect(standing).toMatchObject({ state: 'held' })
  expect(await one.leave([gone])).toEqual([true])
  const { written } = server
  // Should what was written be read: not before others have been there.
  await fail({ times: 1 }, { failCommands: ['aggregate'], blockConnection: true, blockTimeMS: 2000 })
  const leaving = one.leave([gone, ...held])
  await vi.waitFor(() => expect(server.written).toBeGreaterThan(written), LIMIT)
  for (const { key } of held) {
    const next = newClaim(key)
    await vi.waitFor(
      async () => expect(await other.enter([{ ...next, wait: false }])).toMatchObject([{ state: 'held' }]),
      LIMIT,
    )
    expect(await other.leave([next])).toEqual([true])
  }
  expect(await leaving).toEqual([false, true, true, true, true])
  await one.enter(held)
  expect(await one.leave([gone, nowhere, ...held])).toEqual([false, false, true, true, true, true])
})

describe('on a stand-in whose next primary has another clock', () => {
  test.each([
    ['ahead, by less than the ttl', 10_000],
    ['behind', -HOUR_MS],
    ['behind by a day', -24 * HOUR_MS],
  ])('%s: tokens rise, a lease that is renewed goes on, and excludes', { timeout: LIMIT_MS }, async (_, byMs) => {
    const [one, other] = [await open('30s'), await open('30s')]
    const first = await one.mutex('moved').acquire()
    await first.release()
    const held = await one.mutex('held').acquire()
    await server.kill()
    server.moveClock(byMs)
    await server.restart()
    const second = await vi.waitFor(async () => await other.mutex('moved').acquire(), LIMIT)
    expect(second.token ?? 0n).toBeGreaterThan(first.token ?? 0n)
    expect(await other.mutex('held').tryAcquire()).toBeUndefined()
    expect(held.held).toBe(true)
    expect(await held.release()).toBe(true)
    const third = await other.mutex('held').acquire()
    expect(third.token ?? 0n).toBeGreaterThan(held.token ?? 0n)
    await second.release()
    await third.release()
  })

  test('ahead by more: the next holder has a higher token, and the one before is told at its next renewal', {
    timeout: LIMIT_MS,
  }, async () => {
    const [one, other] = [await open('3s'), await open('3s')]
    const held = await one.mutex('held').acquire()
    const lost = new Promise((resolve) => held.signal.addEventListener('abort', resolve))
    server.moveClock(HOUR_MS)
    const next = await other.mutex('held').acquire()
    expect(next.token ?? 0n).toBeGreaterThan(held.token ?? 0n)
    await lost
    await next.release()
  })
})

describe.each([
  ['mongodb 5', (url: string) => new MongoClient5(url) as unknown as MongoClient],
  ['mongodb 6', (url: string) => new MongoClient6(url) as unknown as MongoClient],
  ['mongodb 7', (url: string) => new MongoClient(url)],
])("a lock that is had inside of a user's transaction of %s, on a stand-in", (_, clientOf) => {
  test('is no part of it: others see it at once, and it stays when the transaction is aborted', async () => {
    const client = clientOf(server.url)
    const locks = createLocks(mongodb({ client: client as unknown as MongodbClient }), { ttl: '30s' })
    opened.push(locks)
    const session = client.startSession({ defaultTransactionOptions: { readConcern: { level: 'snapshot' } } })
    try {
      session.startTransaction({ writeConcern: { w: 1 } })
      await client.db().collection('orders').insertOne({ paid: false }, { session })
      const [lease, ...many] = await Promise.all(
        Array.from({ length: 6 }, (__, index) => locks.mutex(`in a transaction ${index}`).acquire()),
      )
      const other = await open('30s')
      expect(await other.mutex('in a transaction 0').tryAcquire()).toBeUndefined()
      await session.abortTransaction()
      expect(await client.db().collection('orders').countDocuments()).toBe(0)
      expect(await other.mutex('in a transaction 0').tryAcquire()).toBeUndefined()
      for (const each of [lease, ...many]) expect(await each?.release()).toBe(true)
    } finally {
      await session.endSession()
      await locks.close()
      await client.close()
    }
  })
})
