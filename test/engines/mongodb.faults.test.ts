/**
 * Many clients on the stand-in for MongoDB, on one lock, on locks of many kinds, and on a record that holders count in.
 * Their ways are cut, swallowed, delayed and closed by chance; the stand-in is frozen, killed and started again, steps
 * down, answers late, loses answers, refuses, and does not confirm. Never two holders who both believe it, tokens that
 * rise with every grant, no line that stays blocked, no count that is lost, and nothing left. The same on real members
 * is in mongodb.members.test.ts.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { MongoClient } from 'mongodb'
import { expect, test, vi } from 'vitest'
import type { Dice } from '../../conformance/chance.ts'
import { openMongodb } from '../../src/engines/mongodb/index.ts'
import { createLocks, type Locks } from '../../src/index.ts'
import { StandIn } from '../servers/mongodb-stand-in/stand-in.ts'
import { FaultProxy } from '../servers/proxy.ts'
import { type Fight, fightFor, fightOverKinds, fightOverRecord, troubleOnTheWay } from './lock-fights.ts'
import { stored } from './mongodb-world.ts'

const rounds = Number(process.env.HOLDFAST_ROUNDS ?? 1)
const seed = Number(process.env.HOLDFAST_SEED ?? 1)
const GRANTS = 100 * rounds
const COUNTS = GRANTS / 4
const CLIENTS = 4
const LIMIT = { timeout: 60_000, interval: 50 }

const FIGHTS: Readonly<Record<string, (fight: Fight) => Promise<readonly string[]>>> = {
  [`${GRANTS} grants of one lock: one holder at a time, each with a higher token than all before`]: (fight) =>
    fightFor('fought for', fight),
  [`${GRANTS} grants of many kinds in batches: none beside what excludes it, and no line stays blocked`]:
    fightOverKinds,
  [`${COUNTS} counts in a record by holders of one lock: none is lost, and none is of a holder before the last`]: (
    fight,
  ) => fightOverRecord('counted', { ...fight, grants: COUNTS }),
}

/** What befalls the commands of locks, as `failCommand` of a server with test commands. */
const FAILURES: readonly object[] = [
  // A primary that steps down: the driver tries again.
  { errorCode: 10107, errorLabels: ['RetryableWriteError'] },
  { errorCode: 11602 },
  { closeConnection: true },
  // Done, and not confirmed.
  { writeConcernError: { code: 11602, errmsg: 'operation was interrupted' } },
  { writeConcernError: { code: 64, errmsg: 'waiting for replication timed out' } },
  { blockConnection: true, blockTimeMS: 400 },
]
const COMMANDS = ['findAndModify', 'update', 'aggregate', 'getMore']

async function troubleOfTheServer(standIn: StandIn, admin: MongoClient, chance: Dice): Promise<void> {
  switch (chance.below(6)) {
    case 0:
      standIn.freeze()
      await sleep(chance.below(1_000))
      standIn.resume()
      return
    case 1:
      await standIn.kill()
      await sleep(chance.below(300))
      await standIn.restart()
      return
    case 2:
      // On a stand-alone server this is an error, which is no trouble.
      await tell(admin, { replSetStepDown: chance.below(2) })
      return
    default: {
      const data = { failCommands: [chance.pick(COMMANDS)], ...chance.pick(FAILURES) }
      await tell(admin, { configureFailPoint: 'failCommand', mode: { times: 1 + chance.below(3) }, data })
    }
  }
}

async function tell(admin: MongoClient, command: object): Promise<void> {
  await admin
    .db('admin')
    .command(command)
    .catch(() => undefined)
}

test.each(Object.keys(FIGHTS).flatMap((name) => [['a replica set', name] as const, ['stand-alone', name] as const]))(
  'on a stand-in, %s: %s',
  async (kind, name) => {
    await using standIn = await StandIn.start({ replicaSet: kind === 'a replica set' })
    const proxies = await Promise.all(Array.from({ length: CLIENTS }, () => FaultProxy.start({ port: standIn.port })))
    const admin = new MongoClient(standIn.urlThrough(standIn.port), { serverSelectionTimeoutMS: 500 })
    const clients: Locks[] = []
    try {
      for (const { port } of proxies)
        clients.push(createLocks(await openMongodb(standIn.urlThrough(port)), { ttl: '3s' }))
      let busy = false
      const trouble = async (chance: Dice): Promise<void> => {
        if (busy || !chance.oneIn(6)) return await troubleOnTheWay(chance.pick(proxies), chance)
        busy = true
        await troubleOfTheServer(standIn, admin, chance)
        busy = false
      }
      expect(await FIGHTS[name]?.({ clients, callersOfEach: 5, grants: GRANTS, seed, trouble })).toEqual([])
      await tell(admin, { configureFailPoint: 'failCommand', mode: 'off' })
      for (const locks of clients.splice(0)) await locks.close()
      await vi.waitFor(async () => expect(await stored(standIn.url)).toEqual([]), LIMIT)
    } finally {
      for (const locks of clients) await locks.close()
      await admin.close()
      for (const proxy of proxies) await proxy[Symbol.asyncDispose]()
    }
  },
  300_000 * (1 + rounds / 10),
)
