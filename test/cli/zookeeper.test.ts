/** The command line on ZooKeeper: run across processes, look, evict, and what doctor says of a server. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { describeServer } from '../servers/suite.ts'
import { findOwnZooKeeper, ZooKeeperServer } from '../servers/zookeeper.ts'
import { World } from './holdfast.ts'
import { outOfReach, servedInOrder, shownAndEvicted } from './server-cases.ts'

await describeServer('holdfast on ZooKeeper', findOwnZooKeeper, (source) => {
  let server: ZooKeeperServer
  let world: World

  beforeAll(async () => {
    server = await ZooKeeperServer.start(source)
    world = new World()
  })
  afterAll(async () => {
    await world[Symbol.asyncDispose]()
    await server[Symbol.asyncDispose]()
  })

  test('run excludes across processes, in order, with a token that rises', async () => {
    await servedInOrder(world, server.url)
  })

  test('show tells who holds; evict ends it', async () => {
    await shownAndEvicted(world, server.url)
  })

  test('doctor finds the server, its version and its limits', async () => {
    const found = await world.doctor(server.url)
    expect(found.get('version')?.finding).toMatch(/^ZooKeeper 3\.\d+\.\d+/)
    expect(found.get('ensemble')).toMatchObject({ status: 'warn', finding: 'standalone' })
    expect([...found.values()].filter(({ status }) => status === 'fail')).toEqual([])
  })

  test('a server that is not there is said to be out of reach, without the password', async () => {
    await outOfReach(world, 'zookeeper')
  })
})
