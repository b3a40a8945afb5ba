/**
 * Many clients on one lock, and on locks of many kinds, on ways that are cut, swallowed, delayed and closed by chance:
 * never two holders who both believe it, tokens that rise with every grant, no line that stays blocked, and nothing
 * left in the tree.
 */
import { expect, test, vi } from 'vitest'
import { openZooKeeper } from '../../src/engines/zookeeper/index.ts'
import { createLocks, type Locks } from '../../src/index.ts'
import { FaultProxy } from '../servers/proxy.ts'
import { describeServer } from '../servers/suite.ts'
import { findOwnZooKeeper, ZooKeeperServer } from '../servers/zookeeper.ts'
import { type Fight, fightFor, fightOverKinds, fightOverRecord, troubleOnTheWay } from './lock-fights.ts'
import { stored } from './zookeeper-world.ts'

const rounds = Number(process.env.HOLDFAST_ROUNDS ?? 1)
const seed = Number(process.env.HOLDFAST_SEED ?? 1)
const GRANTS = 2_000 * rounds
const CLIENTS = 4
const LIMIT = { timeout: 60_000, interval: 50 }

const FIGHTS: Readonly<Record<string, (fight: Fight) => Promise<readonly string[]>>> = {
  [`${GRANTS} grants of one lock: one holder at a time, each with a higher token than all before`]: (fight) =>
    fightFor('fought for', fight),
  [`${GRANTS} grants of many kinds in batches: none beside what excludes it, and no line stays blocked`]:
    fightOverKinds,
  [`${GRANTS / 4} changes of a record by its holders: no update is lost`]: (fight) =>
    fightOverRecord('counted', { ...fight, grants: GRANTS / 4 }),
}

await describeServer('locks under random faults', findOwnZooKeeper, (source) => {
  test.each(Object.keys(FIGHTS))(
    '%s',
    async (name) => {
      await using server = await ZooKeeperServer.start(source)
      const proxies = await Promise.all(Array.from({ length: CLIENTS }, () => FaultProxy.start(server)))
      const clients: Locks[] = []
      try {
        for (const { port } of proxies)
          clients.push(createLocks(await openZooKeeper(`zookeeper://127.0.0.1:${port}`), { ttl: '3s' }))
        const fight: Fight = {
          ...{ clients, callersOfEach: 5, grants: GRANTS, seed },
          trouble: (chance) => troubleOnTheWay(chance.pick(proxies), chance),
        }
        expect(await FIGHTS[name]?.(fight)).toEqual([])
        for (const locks of clients.splice(0)) await locks.close()
        await vi.waitFor(async () => expect(await stored([server])).toEqual([]), LIMIT)
      } finally {
        for (const locks of clients) await locks.close()
        for (const proxy of proxies) await proxy[Symbol.asyncDispose]()
      }
    },
    300_000 * (1 + rounds),
  )
})
