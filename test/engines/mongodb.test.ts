/**
 * The engine of MongoDB conforms, on the stand-in: alone, and as a replica set of one, with processes that are killed,
 * stopped and cut off from it. On real servers the same cases run in mongodb.real.test.ts, where there are any.
 */
import { afterAll, describe, it } from 'vitest'
import { conformance, type World } from '../../conformance/index.ts'
import { StandIn } from '../servers/mongodb-stand-in/stand-in.ts'
import { mongodbWorld } from './mongodb-world.ts'

for (const replicaSet of [false, true]) {
  const name = `mongodb on a stand-in, ${replicaSet ? 'as a replica set' : 'stand-alone'},`
  let starting: Promise<StandIn> | undefined
  afterAll(async () => await (await starting)?.close())

  async function world(): Promise<World> {
    starting = StandIn.start({ replicaSet })
    const server = await starting
    const { url, port } = server
    const restart = async (how: 'cleanly' | 'killed'): Promise<void> => {
      if (how === 'killed') await server.kill()
      await server.restart()
    }
    return mongodbWorld({ host: '127.0.0.1', port, url, restart })
  }

  conformance({ describe, it, afterAll }, name, world)
}
