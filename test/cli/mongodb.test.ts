/** The command line on a stand-in for MongoDB: run, look, evict, what doctor says, and the marks of guards. */
import { MongoClient } from 'mongodb'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { guard } from '../../src/guards/mongodb.ts'
import { StandIn } from '../servers/mongodb-stand-in/stand-in.ts'
import { World } from './holdfast.ts'
import { outOfReach, shownAndEvicted } from './server-cases.ts'

describe('holdfast on a stand-in for MongoDB', () => {
  let server: StandIn
  let world: World

  beforeAll(async () => {
    server = await StandIn.start({ replicaSet: true })
    world = new World()
  })
  afterAll(async () => {
    await world[Symbol.asyncDispose]()
    await server.close()
  })

  test('run holds, show tells who, evict ends it', async () => {
    await shownAndEvicted(world, server.url)
  })

  test('doctor finds the server, the set, and what wakes waiters', async () => {
    const found = await world.doctor(server.url)
    expect(found.get('version')?.finding).toMatch(/^MongoDB 5\.0/)
    expect(found.get('deployment')?.finding).toContain("the replica set 'rs' with one member")
    expect(found.get('waking')).toMatchObject({ status: 'ok' })
    expect([...found.values()].filter(({ status }) => status === 'fail')).toEqual([])
  })

  test('guard show lists the marks of transactions', async () => {
    const client = new MongoClient(server.url)
    try {
      const write = guard({ client }).write
      await client.withSession((session) =>
        session.withTransaction(() => write(session, { key: 'account:7', token: 42n, shared: false })),
      )
    } finally {
      await client.close()
    }
    expect((await world.run('guard', 'show', '--url', server.url)).stdout).toMatch(/42 .* account:7/)
  })

  test('a server that is not there is said to be out of reach, without the password', async () => {
    await outOfReach(world, 'mongodb', '/shop')
  })
})
