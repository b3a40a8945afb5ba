/**
 * Many clients on one lock, on ways that are cut, swallowed, delayed and closed by chance: never two holders who both
 * believe it, tokens that rise with every grant, and nothing left in the tree.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { expect, test, vi } from 'vitest'
import { dice } from '../../conformance/chance.ts'
import { openZooKeeper } from '../../src/engines/zookeeper/index.ts'
import { createLocks, type Lease, type Locks } from '../../src/index.ts'
import { FaultProxy } from '../servers/proxy.ts'
import { describeServer } from '../servers/suite.ts'
import { findOwnZooKeeper, ZooKeeperServer } from '../servers/zookeeper.ts'
import { stored } from './zookeeper-world.ts'

const rounds = Number(process.env.HOLDFAST_ROUNDS ?? 1)
const seed = Number(process.env.HOLDFAST_SEED ?? 1)
const GRANTS = 2_000 * rounds
const CLIENTS = 4
const CALLERS_OF_EACH = 5
const LIMIT = { timeout: 60_000, interval: 50 }

await describeServer('a lock under random faults', findOwnZooKeeper, (source) => {
  test(`${GRANTS} grants: one holder at a time, each with a higher token than all before`, async () => {
    await using server = await ZooKeeperServer.start(source)
    const proxies = await Promise.all(Array.from({ length: CLIENTS }, () => FaultProxy.start(server)))
    const clients = await Promise.all(
      proxies.map(async ({ port }) => createLocks(await openZooKeeper(`zookeeper://127.0.0.1:${port}`), { ttl: '3s' })),
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
    const trouble = async (proxy: FaultProxy): Promise<void> => {
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
    const makeTrouble = async (): Promise<void> => {
      while (grants < GRANTS && wrong.length === 0) {
        await trouble(chance.pick(proxies))
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
  }, 600_000)
})
