/** The command line on etcd: run across processes, look, evict, lead, and what doctor says of a cluster. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { EtcdServer, findOwnEtcd } from '../servers/etcd.ts'
import { freePort } from '../servers/ports.ts'
import { describeServer } from '../servers/suite.ts'
import { eventually, World } from './holdfast.ts'
import { servedInOrder } from './order.ts'

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

  const shown = async (command: string, key: string): Promise<string> =>
    (await world.run(command, key, '--url', server.url)).stdout

  test('run excludes across processes, in order, with a token that rises', async () => {
    await servedInOrder(world, server.url)
  })

  test('show tells who holds and until when; evict ends it', async () => {
    const { url } = server
    const held = world.start([
      'run',
      'shown',
      '--ttl',
      '2s',
      '--url',
      url,
      '--',
      'sh',
      '-c',
      'echo $HOLDFAST_TOKEN; sleep 60',
    ])
    await eventually('a token', async () => /^\d+\n$/.test(held.stdout))
    const token = held.stdout.trim()
    expect(await shown('show', 'shown')).toContain(token)
    expect(await world.run('evict', 'shown', '--token', token, '--now', '--url', url)).toMatchObject({ exit: 0 })
    expect((await held.ended).exit).not.toBe(0)
    await eventually('an empty line', async () => !(await shown('show', 'shown')).includes(token))
  })

  test('doctor finds the server, its version and its smallest ttl', async () => {
    const found = await world.doctor(server.url)
    expect(found.get('version')?.finding).toMatch(/^etcd 3\.\d+\.\d+/)
    expect(found.get('smallest ttl')).toMatchObject({ status: 'ok', finding: '2s' })
    expect([...found.values()].filter(({ status }) => status === 'fail')).toEqual([])
    expect(await world.run('doctor', '--url', server.url)).toMatchObject({ exit: 0 })
  })

  test('a server that is not there is said to be out of reach, without the password', async () => {
    const url = `etcd://somebody:hunter2@127.0.0.1:${await freePort()}`
    const { exit, stderr, stdout } = await world.run('run', 'job', '--wait', '1s', '--url', url, '--', 'true')
    expect(exit).toBe(69)
    expect(stderr + stdout).not.toContain('hunter2')
  })
})
