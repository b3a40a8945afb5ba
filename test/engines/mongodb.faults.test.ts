/**
 * Many clients on one lock on the stand-in for MongoDB, on ways that are cut, swallowed, delayed and closed by chance,
 * while the stand-in is frozen, killed and started again: never two holders who both believe it, tokens that rise with
 * every grant, and nothing left. The same on real members is in mongodb.members.test.ts.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { expect, test, vi } from 'vitest'
import type { Dice } from '../../conformance/chance.ts'
import { openMongodb } from '../../src/engines/mongodb/index.ts'
import { createLocks, type Locks } from '../../src/index.ts'
import { StandIn } from '../servers/mongodb-stand-in/stand-in.ts'
import { FaultProxy } from '../servers/proxy.ts'
import { fightFor, troubleOnTheWay } from './mongodb-faults.ts'
import { stored } from './mongodb-world.ts'

const rounds = Number(process.env.HOLDFAST_ROUNDS ?? 1)
const seed = Number(process.env.HOLDFAST_SEED ?? 1)
const GRANTS = 100 * rounds
const CLIENTS = 4
const LIMIT = { timeout: 60_000, interval: 50 }

test.each(['a replica set', 'stand-alone'])(
  `${GRANTS} grants on a stand-in, %s: one holder at a time, each with a higher token than all before`,
  async (kind) => {
    await using standIn = await StandIn.start({ replicaSet: kind === 'a replica set' })
    const proxies = await Promise.all(Array.from({ length: CLIENTS }, () => FaultProxy.start({ port: standIn.port })))
    const clients: Locks[] = []
    try {
      for (const { port } of proxies)
        clients.push(createLocks(await openMongodb(standIn.urlThrough(port)), { ttl: '3s' }))
      let busy = false
      const trouble = async (chance: Dice): Promise<void> => {
        if (busy || !chance.oneIn(12)) return await troubleOnTheWay(chance.pick(proxies), chance)
        busy = true
        if (chance.oneIn(2)) {
          standIn.freeze()
          await sleep(chance.below(1_000))
          standIn.resume()
        } else {
          await standIn.kill()
          await sleep(chance.below(300))
          await standIn.restart()
        }
        busy = false
      }
      expect(await fightFor('fought for', { clients, callersOfEach: 5, grants: GRANTS, seed, trouble })).toEqual([])
      for (const locks of clients.splice(0)) await locks.close()
      await vi.waitFor(async () => expect(await stored(standIn.url)).toEqual([]), LIMIT)
    } finally {
      for (const locks of clients) await locks.close()
      for (const proxy of proxies) await proxy[Symbol.asyncDispose]()
    }
  },
  600_000,
)
