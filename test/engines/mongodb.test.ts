/**
 * The engine of MongoDB conforms, on the stand-in as a replica set, with processes that are killed, stopped and cut off
 * from it. Its results are results on a stand-in, not on MongoDB.
 */
import { afterAll, describe, it } from 'vitest'
import { conformance, type World } from '../../conformance/index.ts'
import { StandIn } from '../servers/mongodb-stand-in/stand-in.ts'
import { standInWorld } from './mongodb-world.ts'

const RESTARTS = 'restart of the server'
/** Of the same pipelines as on a stand-alone server: played there (mongodb.stand-alone.test.ts). */
const ON_STAND_ALONE = 'equal answers'

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
  only: (_, property) => property !== RESTARTS && property !== ON_STAND_ALONE,
})

// On a new one: the stand-in starts by doing again all that was ever written to it, which after the other cases takes
// longer than the ttl of these.
conformance({ describe, it, afterAll }, 'mongodb, on a stand-in that is started again,', world, {
  only: (_, property) => property === RESTARTS,
})
