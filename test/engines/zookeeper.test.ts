/** ZooKeeper conforms: one server, and processes that are killed, stopped and cut off from it. */
import { afterAll, describe, it } from 'vitest'
import { conformance, type World } from '../../conformance/index.ts'
import { describeServer } from '../servers/suite.ts'
import { findZooKeeper, ZooKeeperServer } from '../servers/zookeeper.ts'
import { zookeeperPlace, zookeeperWorld } from './zookeeper-world.ts'

/** A ttl is 2 s at least, so whatever waits for its end waits long. */
const atOnce = 16

await describeServer('zookeeper', findZooKeeper, (source) => {
  const starting = ZooKeeperServer.start(source)
  afterAll(async () => (await starting)[Symbol.asyncDispose]())

  const world = async (): Promise<World> => zookeeperWorld(zookeeperPlace(await starting))

  conformance({ describe, it, afterAll }, 'zookeeper', world, { atOnce })
})
