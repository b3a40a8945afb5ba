/** The command line on ZooKeeper: run across processes, look, evict, and what doctor says of a server. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { freePort } from '../servers/ports.ts'
import { describeServer } from '../servers/suite.ts'
import { findOwnZooKeeper, ZooKeeperServer } from '../servers/zookeeper.ts'
import { eventually, World } from './holdfast.ts'
import { servedInOrder } from './order.ts'

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

  const shown = async (command: string, key: string): Promise<string> =>
    (await world.run(command, key, '--url', server.url)).stdout

  test('run excludes across processes, in order, with a token that rises', async () => {
    await servedInOrder(world, server.url)
  })

  test('show tells who holds; evict ends it', async () => {
    const { url } = server
    const work = 'echo $HOLDFAST_TOKEN; sleep 60'
    const held = world.start(['run', 'shown', '--ttl', '2s', '--url', url, '--', 'sh', '-c', work])
    await eventually('a token', async () => /^\d+\n$/.test(held.stdout))
    const token = held.stdout.trim()
    expect(await shown('show', 'shown')).toContain(token)
    expect(await world.run('evict', 'shown', '--token', token, '--now', '--url', url)).toMatchObject({ exit: 0 })
    expect((await held.ended).exit).not.toBe(0)
    await eventually('an empty line', async () => !(await shown('show', 'shown')).includes(token))
  })

  test('doctor finds the server, its version and its limits', async () => {
    const found = await world.doctor(server.url)
    expect(found.get('version')?.finding).toMatch(/^ZooKeeper 3\.\d+\.\d+/)
    expect(found.get('ensemble')).toMatchObject({ status: 'warn', finding: 'standalone' })
    expect([...found.values()].filter(({ status }) => status === 'fail')).toEqual([])
  })

  test('a server that is not there is said to be out of reach, without the password', async () => {
    const url = `zookeeper://somebody:hunter2@127.0.0.1:${await freePort()}`
    const { exit, stdout, stderr } = await world.run('doctor', '--url', url)
    expect(exit).not.toBe(0)
    expect(stdout + stderr).toContain('ECONNREFUSED')
    expect(stdout + stderr).not.toContain('hunter2')
  })
})
