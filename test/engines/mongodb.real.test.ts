/**
 * The engine of MongoDB conforms on real servers, where there are any: stand-alone, as a set of one and as a set of
 * three members, or on the deployment at HOLDFAST_TEST_MONGODB_URL. On the stand-in the same cases always run:
 * mongodb.test.ts, mongodb.stand-alone.test.ts.
 */
import { afterAll, describe, it } from 'vitest'
import { conformance, type World } from '../../conformance/index.ts'
import { findMongodb, findOwnMongodb, MongodbServer } from '../servers/mongodb.ts'
import { MongodbSet } from '../servers/mongodb-set.ts'
import { describeServer } from '../servers/suite.ts'
import { type MongodbPlace, mongodbWorld } from './mongodb-world.ts'

/** Played on one member only: what is a matter of the client alone, and what three members on two processors slow. */
const ON_ONE_MEMBER = ['looking', 'order', 'stalls and clocks', 'nothing left']

/**
 * On one member only, too: all three at once are away for longer than the ttl of this case, since they elect a primary
 * first. Members die under load in mongodb.members.test.ts.
 */
const RESTART_OF_ONE = /^clients go on after a restart/

/** The servers end with the world. */
function worldOf(place: MongodbPlace, servers: AsyncDisposable): World {
  const world = mongodbWorld(place)
  const close = async (): Promise<void> => {
    await world.close?.()
    await servers[Symbol.asyncDispose]()
  }
  return { ...world, close }
}

await describeServer('MongoDB as it was found', findMongodb, (source) => {
  const name = 'url' in source ? 'mongodb, the deployment,' : 'mongodb, stand-alone,'
  conformance({ describe, it, afterAll }, name, async () => {
    const server = await MongodbServer.start(source)
    const { url, host, port, process } = server
    const place = { url, host, port, urlThrough: (proxy: number) => server.urlThrough(proxy) }
    if (process === undefined) return worldOf(place, server)
    const restart = async (how: 'cleanly' | 'killed'): Promise<void> => {
      await (how === 'killed' ? process.kill() : process.stop())
      await process.start()
    }
    return worldOf({ ...place, restart }, server)
  })
})

for (const members of [1, 3] as const) {
  await describeServer(`MongoDB with members: ${members}`, findOwnMongodb, ({ program }) => {
    const onThree = (name: string, property: string): boolean =>
      !ON_ONE_MEMBER.includes(property) && !RESTART_OF_ONE.test(name)
    const only = members === 1 ? {} : { only: onThree }
    conformance(
      { describe, it, afterAll },
      `mongodb, a set of ${members},`,
      async () => {
        const set = await MongodbSet.start(program, members)
        let primary = await set.primary()
        const place: MongodbPlace = {
          url: set.url,
          get port() {
            return primary.port
          },
          urlThrough: (proxy) => primary.urlThrough(proxy),
          restart: async (how) => {
            await set.restart(how)
            primary = await set.primary()
          },
        }
        return worldOf(place, set)
      },
      only,
    )
  })
}
