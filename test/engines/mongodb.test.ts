/**
 * The engine of MongoDB conforms, on the stand-in as a replica set, with processes that are killed, stopped and cut off
 * from it. Its results are results on a stand-in, not on MongoDB.
 */
import { afterAll, describe, it } from 'vitest'
import { conformance, type World } from '../../conformance/index.ts'
import { StandIn } from '../servers/mongodb-stand-in/stand-in.ts'
import { standInWorld } from './mongodb-world.ts'

let starting: Promise<StandIn> | undefined
afterAll(async () => await (await starting)?.close())

async function world(): Promise<World> {
  starting = StandIn.start({ replicaSet: true })
  return standInWorld(await starting)
}

// Every client has a change stream, and the stand-in looks through each write for each of them.
const atOnce = 4

conformance({ describe, it, afterAll }, 'mongodb, on a stand-in as a replica set,', world, { atOnce })
