/**
 * What becomes of locks when members of a real replica set die, freeze, step down or forget, and when the clock of a
 * server is moved: never two holders who both believe it, no grant that a majority has not confirmed, tokens that rise.
 *
 * These need a mongod. What can be shown without one is shown on the stand-in: mongodb.test.ts, mongodb.faults.test.ts.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { MongoClient } from 'mongodb'
import { afterAll, afterEach, beforeAll, expect, onTestFinished, test, vi } from 'vitest'
import type { Dice } from '../../conformance/chance.ts'
import { openMongodb } from '../../src/engines/mongodb/index.ts'
import { createLocks, type Locks } from '../../src/index.ts'
import { ServerClock } from '../servers/clock.ts'
import { findOwnMongodb, MongodbServer } from '../servers/mongodb.ts'
import { MongodbSet } from '../servers/mongodb-set.ts'
import { Missing, type Program } from '../servers/programs.ts'
import { FaultProxy } from '../servers/proxy.ts'
import { describeServer } from '../servers/suite.ts'
import { fightFor } from './lock-fights.ts'
import { ExclusiveLoad, goOnWithoutLeader, type Members, stopWithoutMajority } from './members.ts'
import { stored } from './mongodb-world.ts'

const LIMIT = { timeout: 60_000, interval: 20 }
const LONG_MS = 180_000
const HOUR_MS = 3_600_000
const rounds = Number(process.env.HOLDFAST_ROUNDS ?? 1)
const seed = Number(process.env.HOLDFAST_SEED ?? 1)
const GRANTS = 1_000 * rounds

async function open(url: string, ttl: '3s' | '30s'): Promise<Locks> {
  const locks = createLocks(await openMongodb(url), { ttl })
  onTestFinished(() => locks.close())
  return locks
}

const FAULTS = ['killed', 'frozen', 'stepped down'] as const

await describeServer('three members of MongoDB', findOwnMongodb, ({ program }) => {
  let set: MongodbSet

  beforeAll(async () => {
    set = await MongodbSet.start(program)
  }, LONG_MS)
  afterEach(async () => await set.heal(), LONG_MS)
  afterAll(async () => await set?.[Symbol.asyncDispose]())

  const members: Members<MongodbServer> = {
    open: (ttl) => open(set.url, ttl),
    leader: () => set.primary(),
    othersThan: (server) => set.othersThan(server),
  }

  async function befall(primary: MongodbServer, how: (typeof FAULTS)[number]): Promise<void> {
    if (how === 'killed') await primary.process?.kill()
    else if (how === 'frozen') primary.process?.pause()
    else await set.stepDown()
  }

  test.each(FAULTS)(
    'the primary is %s: leases go on, waiters are served, new locks are had',
    (how) => goOnWithoutLeader(members, how, (primary) => befall(primary, how)),
    LONG_MS,
  )

  test.each(FAULTS)(
    'the primary is %s under load: there are never two holders, tokens rise, a lease that is held goes on',
    async (how) => {
      const clients = [await open(set.url, '30s'), await open(set.url, '30s')]
      const held = await (clients[0] as Locks).mutex(`${how}: held`).acquire()
      const load = new ExclusiveLoad(clients, `${how}: load`, { tolerant: true })
      try {
        await load.advance(10)
        const primary = await set.primary()
        await befall(primary, how)
        await set.primaryWithout(primary)
        await load.advance(10)
      } finally {
        await load.end()
      }
      expect(held.signal.aborted).toBe(false)
      expect(await held.release()).toBe(true)
    },
    LONG_MS,
  )

  test(
    'the majority is lost: no lock is granted, holders are told in time, and all goes on when it is back',
    () => stopWithoutMajority(members),
    LONG_MS,
  )

  test(
    'the answer of an acquire is lost on the way: the caller holds once, and the next one after its release',
    async () => {
      const primary = await set.primary()
      await using proxy = await FaultProxy.start(primary)
      const behind = await open(primary.urlThrough(proxy.port), '30s')
      await (await behind.mutex('lost').acquire()).release()
      proxy.blackHole('replies')
      const asked = behind.mutex('lost').acquire()
      await vi.waitFor(() => expect(proxy.heldBytes('replies')).toBeGreaterThan(0), LIMIT)
      proxy.reset()
      await proxy.heal()
      const lease = await asked
      const outside = await open(set.url, '30s')
      expect((await outside.inspect('lost')).entries).toHaveLength(1)
      expect(await lease.release()).toBe(true)
      expect((await outside.mutex('lost').acquire()).held).toBe(true)
    },
    LONG_MS,
  )

  test(
    'a primary that is rolled back had granted what no majority confirmed: that grant is never believed',
    async () => {
      const primary = await set.primary()
      const behind = await open(primary.url, '3s')
      const before = await behind.mutex('rolled back').acquire()
      await before.release()
      // Killed, not frozen: a frozen member finds in its sockets, when it goes on, what the primary has sent it.
      await Promise.all(set.othersThan(primary).map(async ({ process }) => await process?.kill()))
      const asked = behind.mutex('rolled back').acquire({ wait: '5s' })
      const outcome = asked.then(
        () => 'granted',
        () => 'refused',
      )
      await vi.waitFor(async () => expect(await entriesAt(primary, 'rolled back')).toBe(1), LIMIT)
      await primary.process?.kill()
      await Promise.all(set.othersThan(primary).map(async ({ process }) => await process?.start()))
      await set.primaryWithout(primary)
      const outside = await open(set.url, '30s')
      const lease = await vi.waitFor(async () => await outside.mutex('rolled back').acquire(), LIMIT)
      expect(await outcome).toBe('refused')
      expect(lease.token ?? 0n).toBeGreaterThan(before.token ?? 0n)
      await set.heal()
      await vi.waitFor(async () => expect(await entriesAt(primary, 'rolled back')).toBe(1), LIMIT)
      expect((await outside.inspect('rolled back')).entries.map(({ token }) => token)).toEqual([lease.token])
      expect(lease.held).toBe(true)
    },
    LONG_MS,
  )

  test(`${GRANTS} grants while members are killed, frozen and stepped down by chance: one holder at a time, tokens rise, nothing is left`, async () => {
    const clients = await Promise.all(Array.from({ length: 4 }, () => open(set.url, '3s')))
    let busy = false
    const trouble = async (chance: Dice): Promise<void> => {
      if (busy) return await sleep(200)
      busy = true
      const member = chance.pick(set.servers)
      const how = chance.pick(FAULTS)
      if (how === 'stepped down') await set.stepDown(3)
      else await befall(member, how)
      await sleep(chance.below(chance.oneIn(4) ? 5_000 : 500))
      await set.heal()
      await sleep(chance.below(2_000))
      busy = false
    }
    expect(await fightFor('fought for', { clients, callersOfEach: 5, grants: GRANTS, seed, trouble })).toEqual([])
    for (const locks of clients) await locks.close()
    await vi.waitFor(async () => expect(await stored(set.url)).toEqual([]), LIMIT)
  }, 3_600_000)
})

/** What this very member has, confirmed or not. */
async function entriesAt(server: MongodbServer, key: string): Promise<number> {
  const client = new MongoClient(server.url, { readPreference: 'secondaryPreferred', serverSelectionTimeoutMS: 3_000 })
  try {
    const lines = client.db().collection<{ _id: string; entries: unknown[] }>('holdfast')
    return (await lines.findOne({ _id: key }))?.entries.length ?? 0
  } finally {
    await client.close()
  }
}

async function findWithClock(): Promise<{ readonly program: Program } | Missing> {
  const source = await findOwnMongodb()
  if (source instanceof Missing) return source
  const clock = await ServerClock.make(0)
  if (clock instanceof Missing) return clock
  clock[Symbol.dispose]()
  return source
}

/** The wall clock of a server, which goes with ours until it is moved. */
class GoingClock implements Disposable {
  readonly clock: ServerClock
  readonly #timer: NodeJS.Timeout
  #seenMs = performance.now()

  static async make(): Promise<GoingClock> {
    const clock = await ServerClock.make(Date.now())
    if (clock instanceof Missing) throw new Error(clock.reason)
    return new GoingClock(clock)
  }

  private constructor(clock: ServerClock) {
    this.clock = clock
    this.#timer = setInterval(() => this.move(0), 5)
  }

  move(byMs: number): void {
    const now = Math.floor(performance.now())
    this.clock.advance(now - this.#seenMs + byMs)
    this.#seenMs = now
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer)
    this.clock[Symbol.dispose]()
  }
}

await describeServer('a MongoDB whose clock is moved', findWithClock, ({ program }) => {
  test.each(['ahead', 'back'])(
    '%s: tokens rise, a lease that is renewed goes on, and new locks are had',
    async (direction) => {
      using clock = await GoingClock.make()
      await using server = await MongodbServer.start({ program: clock.clock.drive(program) })
      const [one, other] = [await open(server.url, '30s'), await open(server.url, '30s')]
      let last = 0n
      for (let round = 0; round < 10; round += 1) {
        const lease = await (round % 2 === 0 ? one : other).mutex('moved').acquire()
        expect(lease.token ?? 0n).toBeGreaterThan(last)
        last = lease.token ?? 0n
        await lease.release()
        clock.move(direction === 'ahead' ? HOUR_MS : -HOUR_MS)
      }
      const held = await one.mutex('held').acquire()
      clock.move(direction === 'ahead' ? 10_000 : -HOUR_MS)
      expect(await other.mutex('held').tryAcquire()).toBeUndefined()
      expect(held.held).toBe(true)
      expect(await held.release()).toBe(true)
    },
    LONG_MS,
  )
})
