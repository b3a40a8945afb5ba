/**
 * The engine of MongoDB conforms, on the stand-in as a replica set, with processes that are killed, stopped and cut off
 * from it. Its results are results on a stand-in, not on MongoDB.
 */
import { afterAll, describe, it } from 'vitest'
import { conformance, type World } from '../../conformance/index.ts'
import { StandIn } from '../servers/mongodb-stand-in/stand-in.ts'
import { standInWorld } from './mongodb-world.ts'

const RESTARTS = 'restart of the server'
/** Every client has a change stream, and the stand-in looks through each write for each of them. */
const atOnce = 4

const started: Promise<StandIn>[] = []
afterAll(async () => {
  for (const starting of started) await (await starting).close()
})

async function world(): Promise<World> {
  const starting = StandIn.start({ replicaSet: true })
  started.push(starting)
  return standInWorld(await starting)
}

conformance({ describe, it, afterAll }, 'mongodb, on a stand-in as a replica set,', world, {
  atOnce,
  only: (_, property) => property !== RESTARTS,
})

// On a new one: the stand-in starts by doing again all that was ever written to it, which after the other cases takes
// longer than the ttl of these.
conformance({ describe, it, afterAll }, 'mongodb, on a stand-in that is started again,', world, {
  only: (_, property) => property === RESTARTS,
})
