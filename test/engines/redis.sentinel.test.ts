/**
 * Redis with Sentinel conforms, and a fail-over under load crashes no process: tokens rise, a holder that lost its lock
 * is told, and work goes on with the new master.
 */
import { Redis } from 'ioredis'
import { afterAll, afterEach, beforeEach, describe, expect, it, onTestFinished, test, vi } from 'vitest'
import { conformance } from '../../conformance/index.ts'
import { IoredisWire } from '../../src/clients/redis/ioredis.ts'
import { parseUrl } from '../../src/clients/redis/url.ts'
import { systemClock } from '../../src/core/clock.ts'
import { openRedis } from '../../src/engines/redis/index.ts'
import { createLocks, type Lease, LeaseLostError, type Locks } from '../../src/index.ts'
import { findOwnRedis } from '../servers/redis.ts'
import { SentinelDeployment } from '../servers/sentinel.ts'
import { describeServer } from '../servers/suite.ts'
import { deploymentWorld } from './redis-world.ts'

const LIMIT = { timeout: 50_000, interval: 10 }

await describeServer('Redis with Sentinel', findOwnRedis, ({ program }) => {
  describe('in quiet times', () => {
    const starting = SentinelDeployment.start(program, { steady: true })
    conformance({ describe, it, afterAll }, 'redis sentinel', async () => {
      const { restart: _, ...world } = await deploymentWorld(starting)
      return {
        ...world,
        lacks: {
          restart: 'how long Sentinel takes to find a master again is not ours to bound; the fail-overs below are',
        },
      }
    })
    afterAll(async () => (await starting)[Symbol.asyncDispose]())
  })

  let deployment: SentinelDeployment
  const opened: Locks[] = []

  async function open(ttl: '2s' | '60s', more = ''): Promise<Locks> {
    const locks = createLocks(await openRedis(deployment.url + more), { ttl })
    opened.push(locks)
    return locks
  }

  /** A deployment for each test of the suite that calls this. */
  function withDeployment(options: { readonly steady?: boolean } = {}): void {
    beforeEach(async () => {
      deployment = await SentinelDeployment.start(program, options)
    })

    afterEach(async () => {
      await Promise.all(opened.splice(0).map((locks) => locks.close()))
      await deployment[Symbol.asyncDispose]()
    })
  }

  describe('while no other master is chosen', () => {
    withDeployment({ steady: true })

    test('a frozen sentinel, first in the URL, keeps no client away, and nothing is printed', async () => {
      const printed = vi.spyOn(console, 'error').mockImplementation(() => undefined)
      onTestFinished(() => printed.mockRestore())
      deployment.pauseFirstSentinel()
      const [one, other] = [await open('60s'), await open('60s')]
      const lease = await one.mutex('key').acquire({ wait: '20s' })
      const waiting = other.mutex('key').acquire({ wait: '20s' })
      await vi.waitFor(async () => expect((await one.inspect('key')).entries).toHaveLength(2), LIMIT)
      await lease.release()
      const second = await waiting
      // Long enough for ioredis to give up every question that it has asked the frozen one.
      await vi.waitFor(() => expect(second.remainingMs).toBeLessThan(54_000), LIMIT)
      expect(printed.mock.calls).toEqual([])
    })

    test('a fail-over that is announced while a sentinel is asked for the master ends no client', async () => {
      const { hosts, name = '' } = parseUrl(deployment.url)
      const client = new Redis({ sentinels: [...hosts], name, failoverDetector: true })
      const wire = new IoredisWire(client, systemClock, { owned: true })
      onTestFinished(() => wire.close())
      await vi.waitFor(() => expect(wire.ready).toBe(true), LIMIT)
      // What the look-out of ioredis does then, at that moment.
      const { connector } = client as unknown as { readonly connector: { disconnect(): void } }
      const ended = new Promise((resolve) => client.once('end', resolve))
      client.once('connecting', () => connector.disconnect())
      client.disconnect(true)
      await ended
      await vi.waitFor(() => expect(wire.ready).toBe(true), LIMIT)
    })
  })

  describe('in a fail-over', () => {
    withDeployment()

    test.each(['kill', 'pause'] as const)(
      '%s of the master, under load: work goes on, and tokens of a key rise',
      async (how) => {
        const clients = [await open('2s'), await open('2s')]
        const tokens = new Map<string, bigint[]>()
        let [done, working] = [0, true]
        const work = clients.flatMap((locks) =>
          Array.from({ length: 5 }, async (_, caller) => {
            const key = `key ${caller}`
            while (working) {
              try {
                await locks.mutex(key).using((lease) => {
                  tokens.set(key, [...(tokens.get(key) ?? []), lease.token ?? 0n])
                })
                done += 1
              } catch (error) {
                // Lost in the fail-over, or the outage outlasted the ttl: told, and worth another try.
                expect(error).toMatchObject({ code: expect.stringMatching(/^(?:LEASE_LOST|ENGINE)$/) })
              }
            }
          }),
        )
        const settled = Promise.all(work)
        await vi.waitFor(() => expect(done).toBeGreaterThan(50), LIMIT)
        await deployment.failOver(how)
        const before = done
        await vi.waitFor(() => expect(done).toBeGreaterThan(before + 50), LIMIT)
        working = false
        await settled
        for (const [key, seen] of tokens)
          expect(
            seen.every((token, index) => index === 0 || token > (seen[index - 1] as bigint)),
            key,
          ).toBe(true)
      },
    )

    test('a lock that the replica had survives, for its holder and for the waiters', async () => {
      const [one, other] = [await open('60s'), await open('60s')]
      const lease = await one.mutex('key').acquire()
      const waiting = other.mutex('key').acquire()
      await vi.waitFor(async () => expect((await one.inspect('key')).entries).toHaveLength(2), LIMIT)
      await deployment.replicated(1)
      const { new: promoted } = await deployment.failOver()
      await using client = await promoted.connect()
      expect(await client.command('GET', 'lock:key')).toMatch(/^hf1\+/)
      await vi.waitFor(async () => expect((await one.inspect('key')).entries).toHaveLength(2), LIMIT)
      expect(lease.held).toBe(true)
      expect(await lease.release()).toBe(true)
      expect((await waiting).token).toBeGreaterThan(lease.token as bigint)
    })

    test('a lock that was lost is told to its holder, who is replaced with a higher token', async () => {
      const [one, other] = [await open('2s'), await open('2s')]
      // On a busy machine an outage, also that of the test before, outlasts the ttl: told, and worth another try.
      const acquired = (locks: Locks): Promise<Lease> => vi.waitFor(() => locks.mutex('key').acquire(), LIMIT)
      const lease = await acquired(one)
      await using client = await (await deployment.master()).connect()
      // As if the replica had never heard of it.
      await client.command('DEL', 'lock:key')
      await deployment.failOver()
      const next = await acquired(other)
      expect(next.token).toBeGreaterThan(lease.token as bigint)
      await vi.waitFor(() => expect(lease.signal.reason).toBeInstanceOf(LeaseLostError), LIMIT)
    })

    test('with durability, a lock that was granted a moment ago survives', async () => {
      const [one, other] = [await open('60s', '?replicas=1'), await open('60s')]
      const lease = await one.mutex('key').acquire()
      await deployment.failOver()
      await vi.waitFor(
        async () => expect((await other.inspect('key')).entries).toMatchObject([{ token: lease.token }]),
        LIMIT,
      )
      expect(lease.held).toBe(true)
    })
  })
})
