/**
 * Many clients on one lock, and on locks of many kinds, on ways that are cut, swallowed, delayed and closed by chance:
 * never two holders who both believe it, tokens that rise with every grant, no line that stays blocked, and nothing
 * left in the tree. On one server, and on three, of which one after the other is frozen, killed or cut off.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { expect, test, vi } from 'vitest'
import type { Dice } from '../../conformance/chance.ts'
import { openZooKeeper } from '../../src/engines/zookeeper/index.ts'
import { createLocks, type Locks } from '../../src/index.ts'
import { FaultProxy } from '../servers/proxy.ts'
import { describeServer } from '../servers/suite.ts'
import { findOwnZooKeeper, ZooKeeperServer } from '../servers/zookeeper.ts'
import { ZooKeeperEnsemble } from '../servers/zookeeper-ensemble.ts'
import { type Fight, fightFor, fightOverKinds, fightOverRecord, troubleOnTheWay } from './lock-fights.ts'
import { stored } from './zookeeper-world.ts'

const rounds = Number(process.env.HOLDFAST_ROUNDS ?? 1)
const seed = Number(process.env.HOLDFAST_SEED ?? 1)
const GRANTS = 2_000 * rounds
/** Three servers on two processors are slow: unless time is given, it is one short fight. */
const GRANTS_OF_THREE = rounds === 1 ? 300 : GRANTS
const CLIENTS = 4
const LIMIT = { timeout: 60_000, interval: 50 }
const limitMs = 300_000 * (1 + rounds)

type RunFight = (fight: Fight) => Promise<readonly string[]>

const fights = (grants: number): Readonly<Record<string, RunFight>> => ({
  [`${grants} grants of one lock: one holder at a time, each with a higher token than all before`]: (fight) =>
    fightFor('fought for', { ...fight, grants }),
  [`${grants} grants of many kinds in batches: none beside what excludes it, and no line stays blocked`]: (fight) =>
    fightOverKinds({ ...fight, grants }),
  [`${grants / 4} changes of a record by its holders: no update is lost`]: (fight) =>
    fightOverRecord('counted', { ...fight, grants: grants / 4 }),
})

/** Each client has ways of its own to all servers. Servers of an ensemble are in trouble themselves, too. */
async function fightOn(
  servers: readonly ZooKeeperServer[],
  run: RunFight,
  ensemble?: ZooKeeperEnsemble,
): Promise<void> {
  const trouble = ensemble === undefined ? undefined : troubleOfServers(ensemble)
  const ways = await Promise.all(
    Array.from({ length: CLIENTS }, () => Promise.all(servers.map((server) => FaultProxy.start(server)))),
  )
  const clients: Locks[] = []
  try {
    for (const proxies of ways) {
      const url = `zookeeper://${proxies.map(({ port }) => `127.0.0.1:${port}`).join(',')}`
      clients.push(createLocks(await openZooKeeper(url), { ttl: '3s' }))
    }
    const wrong = await run({
      ...{ clients, callersOfEach: 5, grants: 0, seed },
      trouble: (chance) =>
        trouble !== undefined && chance.oneIn(4)
          ? trouble(chance)
          : troubleOnTheWay(chance.pick(chance.pick(ways)), chance),
    })
    expect(wrong).toEqual([])
    for (const locks of clients.splice(0)) await locks.close()
    // The last trouble may not be over yet.
    await ensemble?.serving()
    await vi.waitFor(async () => expect(await stored(servers)).toEqual([]), LIMIT)
  } finally {
    for (const locks of clients) await locks.close()
    for (const proxy of ways.flat()) await proxy[Symbol.asyncDispose]()
  }
}

await describeServer('locks under random faults', findOwnZooKeeper, (source) => {
  const onOne = fights(GRANTS)
  test.each(Object.keys(onOne))(
    '%s',
    async (name) => {
      await using server = await ZooKeeperServer.start(source)
      await fightOn([server], onOne[name] as RunFight)
    },
    limitMs,
  )

  const onThree = fights(GRANTS_OF_THREE)
  test.each(Object.keys(onThree).slice(0, rounds === 1 ? 1 : undefined))(
    'on three servers, %s',
    async (name) => {
      await using ensemble = await ZooKeeperEnsemble.start(source.program)
      await fightOn(ensemble.servers, onThree[name] as RunFight, ensemble)
    },
    limitMs,
  )
})

/** One server at a time, also the leader: for a moment, or for longer than the ttl. */
function troubleOfServers(ensemble: ZooKeeperEnsemble): (chance: Dice) => Promise<void> {
  let inTrouble = false
  return async (chance) => {
    if (inTrouble) return
    inTrouble = true
    const server = chance.pick(ensemble.servers)
    const longMs = chance.oneIn(4) ? 5_000 : chance.below(1_500)
    switch (chance.below(3)) {
      case 0:
        server.process?.pause()
        await sleep(longMs)
        server.process?.resume()
        break
      case 1:
        ensemble.cutOff(server)
        await sleep(longMs)
        await ensemble.heal()
        break
      default:
        await server.process?.kill()
        await server.process?.start()
    }
    inTrouble = false
  }
}
