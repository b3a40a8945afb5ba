/**
 * Many clients on one lock, on ways that are cut, swallowed, delayed and closed by chance: never two holders who both
 * believe it, tokens that rise with every grant, and nothing left in the tree.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { expect, test, vi } from 'vitest'
import { dice } from '../../conformance/chance.ts'
import { UNLIMITED } from '../../src/core/engine.ts'
import { openZooKeeper } from '../../src/engines/zookeeper/index.ts'
import { createLocks, type Lease, type LineAcquireOptions, type Lock, type Locks } from '../../src/index.ts'
import { FaultProxy } from '../servers/proxy.ts'
import { describeServer } from '../servers/suite.ts'
import { findOwnZooKeeper, ZooKeeperServer } from '../servers/zookeeper.ts'
import { stored } from './zookeeper-world.ts'

const rounds = Number(process.env.HOLDFAST_ROUNDS ?? 1)
const seed = Number(process.env.HOLDFAST_SEED ?? 1)
const GRANTS = 2_000 * rounds
const CLIENTS = 4
const CALLERS_OF_EACH = 5
const KEYS = 6
const LIMIT = { timeout: 60_000, interval: 50 }

interface Holding {
  readonly lease: Lease
  readonly weight: number
  readonly limit: number
}

const KINDS: readonly { readonly limit: number; of(locks: Locks, key: string): Lock<LineAcquireOptions> }[] = [
  { limit: 1, of: (locks, key) => locks.mutex(key) },
  { limit: UNLIMITED, of: (locks, key) => locks.rw(key).read },
  { limit: UNLIMITED, of: (locks, key) => locks.rw(key).read },
  { limit: 3, of: (locks, key) => locks.semaphore(key, 3) },
]

type Dice = ReturnType<typeof dice>

/** Something that happens to a way. */
async function trouble(proxy: FaultProxy, chance: Dice): Promise<void> {
  switch (chance.below(5)) {
    case 0:
      proxy.reset()
      return
    case 1:
      proxy.blackHole('replies')
      await sleep(chance.below(300))
      proxy.reset()
      break
    case 2:
      proxy.blackHole(...(chance.oneIn(2) ? (['requests'] as const) : []))
      await sleep(chance.oneIn(8) ? 5_000 : chance.below(800))
      break
    case 3:
      await proxy.refuse()
      await sleep(chance.below(300))
      break
    default:
      proxy.delay(chance.below(30))
      await sleep(chance.below(200))
  }
  await proxy.heal()
}

await describeServer('a lock under random faults', findOwnZooKeeper, (source) => {
  test(
    `${GRANTS} grants: one holder at a time, each with a higher token than all before`,
    async () => {
      await using server = await ZooKeeperServer.start(source)
      const proxies = await Promise.all(Array.from({ length: CLIENTS }, () => FaultProxy.start(server)))
      const clients = await Promise.all(
        proxies.map(async ({ port }) =>
          createLocks(await openZooKeeper(`zookeeper://127.0.0.1:${port}`), { ttl: '3s' }),
        ),
      )
      let [grants, highest]: [number, bigint] = [0, 0n]
      let holder: Lease | undefined
      const wrong: string[] = []

      const caller = async (locks: Locks): Promise<void> => {
        while (grants < GRANTS && wrong.length === 0) {
          try {
            const lease = await locks.mutex('fought for').acquire()
            const token = lease.token ?? 0n
            // It may have lost it again, if this process was slow.
            if (!lease.held) continue
            grants += 1
            if (holder?.held === true) wrong.push(`${token} was let in beside ${holder.token}`)
            if (token <= highest) wrong.push(`${token} after ${highest}`)
            holder = lease
            highest = token
            if (grants % 7 === 0) await sleep(1)
            if (holder === lease) holder = undefined
            await lease.release()
          } catch (error) {
            // An outage that is longer than the ttl is told to the caller.
            if ((error as { code?: string }).code !== 'ENGINE') throw error
          }
        }
      }

      const chance = dice(seed)
      const makeTrouble = async (): Promise<void> => {
        while (grants < GRANTS && wrong.length === 0) {
          await trouble(chance.pick(proxies), chance)
          await sleep(chance.below(150))
        }
        for (const proxy of proxies) await proxy.heal()
      }

      const troubles = [makeTrouble(), makeTrouble()]
      await Promise.all(clients.flatMap((locks) => Array.from({ length: CALLERS_OF_EACH }, () => caller(locks))))
      await Promise.all(troubles)
      expect(wrong).toEqual([])
      for (const locks of clients) await locks.close()
      await vi.waitFor(async () => expect(await stored([server])).toEqual([]), LIMIT)
      for (const proxy of proxies) await proxy[Symbol.asyncDispose]()
    },
    300_000 * (1 + rounds),
  )

  test(
    `${GRANTS} grants of many kinds in batches: none beside what excludes it, and no line stays blocked`,
    async () => {
      await using server = await ZooKeeperServer.start(source)
      const proxies = await Promise.all(Array.from({ length: CLIENTS }, () => FaultProxy.start(server)))
      const clients = await Promise.all(
        proxies.map(async ({ port }) =>
          createLocks(await openZooKeeper(`zookeeper://127.0.0.1:${port}`), { ttl: '3s' }),
        ),
      )
      const chance = dice(seed)
      const lines = Array.from({ length: KEYS }, () => new Set<Holding>())
      let grants = 0
      const wrong: string[] = []

      const granted = (key: number, holding: Holding): void => {
        const line = lines[key] as Set<Holding>
        for (const other of line) if (!other.lease.held) line.delete(other)
        line.add(holding)
        grants += 1
        const [weights, limits] = [[...line].map(({ weight }) => weight), [...line].map(({ limit }) => limit)]
        if (weights.reduce((sum, weight) => sum + weight, 0) > Math.min(...limits))
          wrong.push(
            `key ${key}: ${[...line].map(({ lease, limit }) => `${lease.token} of ${limit}`).join(' beside ')}`,
          )
      }

      const once = async (locks: Locks): Promise<void> => {
        const key = chance.below(KEYS)
        const kind = chance.pick(KINDS)
        const lock = kind.of(locks, `line ${key}`)
        const lease = chance.oneIn(3) ? await lock.tryAcquire() : await lock.acquire({ wait: '30s' })
        if (lease?.held !== true) return
        const holding = { lease, weight: 1, limit: kind.limit }
        granted(key, holding)
        if (chance.oneIn(3)) await sleep(chance.below(5))
        lines[key]?.delete(holding)
        await lease.release()
      }
      const caller = async (locks: Locks): Promise<void> => {
        while (grants < GRANTS && wrong.length === 0)
          try {
            // Several at once: they go out in one batch.
            await Promise.all(Array.from({ length: 4 }, () => once(locks)))
          } catch (error) {
            if (!['ENGINE', 'ACQUIRE_TIMEOUT'].includes((error as { code?: string }).code ?? '')) throw error
          }
      }
      const makeTrouble = async (): Promise<void> => {
        while (grants < GRANTS && wrong.length === 0) {
          await trouble(chance.pick(proxies), chance)
          await sleep(chance.below(150))
        }
        for (const proxy of proxies) await proxy.heal()
      }
      const troubles = [makeTrouble(), makeTrouble()]
      await Promise.all(clients.flatMap((locks) => Array.from({ length: CALLERS_OF_EACH }, () => caller(locks))))
      await Promise.all(troubles)
      expect(wrong).toEqual([])
      // The sessions live on: what still stands in a line now would block it for ever.
      for (const [key] of lines.entries())
        await (await (clients[0] as Locks).mutex(`line ${key}`).acquire({ wait: '30s' })).release()
      for (const locks of clients) await locks.close()
      await vi.waitFor(async () => expect(await stored([server])).toEqual([]), LIMIT)
      for (const proxy of proxies) await proxy[Symbol.asyncDispose]()
    },
    300_000 * (1 + rounds),
  )
})
