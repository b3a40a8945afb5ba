/** The command line on etcd: run across processes, look, evict, lead, and what doctor says of a cluster. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { EtcdServer, findOwnEtcd } from '../servers/etcd.ts'
import { describeServer } from '../servers/suite.ts'
import { World } from './holdfast.ts'
import { outOfReach, servedInOrder, shownAndEvicted } from './server-cases.ts'

await describeServer('holdfast on etcd', findOwnEtcd, (source) => {
  let server: EtcdServer
  let world: World

  beforeAll(async () => {
    server = await EtcdServer.start(source)
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

  test('doctor finds the server, its version and its smallest ttl', async () => {
    const found = await world.doctor(server.url)
    expect(found.get('version')?.finding).toMatch(/^etcd 3\.\d+\.\d+/)
    expect(found.get('smallest ttl')).toMatchObject({ status: 'ok', finding: '2s' })
    expect([...found.values()].filter(({ status }) => status === 'fail')).toEqual([])
    expect(await world.run('doctor', '--url', server.url)).toMatchObject({ exit: 0 })
  })

  test('a server that is not there is said to be out of reach, without the password', async () => {
    await outOfReach(world, 'etcd')
  })
})
