/**
 * The engine of MongoDB conforms where there are no change streams and no repeated writes: on the stand-in as a
 * stand-alone server. What is a matter of the client alone, and what only takes long, is left to mongodb.test.ts. Its
 * results are results on a stand-in, not on MongoDB.
 */
import { afterAll, describe, it } from 'vitest'
import { conformance, type World } from '../../conformance/index.ts'
import { StandIn } from '../servers/mongodb-stand-in/stand-in.ts'
import { standInWorld } from './mongodb-world.ts'

const ELSEWHERE = new Set(['stalls and clocks', 'nothing left', 'looking'])

let starting: Promise<StandIn> | undefined
afterAll(async () => await (await starting)?.close())

async function world(): Promise<World> {
  starting = StandIn.start({ replicaSet: false })
  return standInWorld(await starting)
}

conformance({ describe, it, afterAll }, 'mongodb, on a stand-in as a stand-alone server,', world, {
  only: (name, property) => !ELSEWHERE.has(property) && !name.includes('as many as the line takes'),
})
