/** What the command does on every server that processes share. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { freePort } from '../servers/ports.ts'
import { eventually, World } from './holdfast.ts'

/** The cases below as tests of one suite, with a server and a world for all of it. `scheme` is that of the URL. */
export function commandCases<Server extends AsyncDisposable & { readonly url: string }>(
  scheme: string,
  start: () => Promise<Server>,
): () => { readonly url: string; readonly world: World } {
  let server: Server
  let world: World
  beforeAll(async () => {
    server = await start()
    world = new World()
  })
  afterAll(async () => {
    await world[Symbol.asyncDispose]()
    await server[Symbol.asyncDispose]()
  })

  test('run excludes across processes, in order, with a token that rises', () => servedInOrder(world, server.url))
  test('show tells who holds; evict ends it', () => shownAndEvicted(world, server.url))
  test('a server that is not there is said to be out of reach, without the password', () => outOfReach(world, scheme))
  return () => ({ url: server.url, world })
}

/** One holds; one that does not wait is refused; one that waits has it next, with a higher token. */
export async function servedInOrder(world: World, url: string): Promise<void> {
  const first = world.start(['run', 'job', '--url', url, '--', 'sh', '-c', 'echo $HOLDFAST_TOKEN; sleep 60'])
  await eventually('a token', async () => /^\d+\n$/.test(first.stdout))
  expect(await world.run('run', 'job', '-n', '--url', url, '--', 'true')).toMatchObject({ exit: 75 })
  const next = world.start(['run', 'job', '--url', url, '--', 'sh', '-c', 'echo $HOLDFAST_TOKEN'])
  await eventually('a waiter', async () => (await world.run('ls', '--url', url)).stdout.includes('1     1        job'))
  first.process.kill('SIGTERM')
  const { stdout } = await next.ended
  expect(BigInt(stdout.trim())).toBeGreaterThan(BigInt(first.stdout.trim()))
}

/** `show` names the token of the holder, and `evict` ends its command. */
export async function shownAndEvicted(world: World, url: string): Promise<void> {
  const shown = async (): Promise<string> => (await world.run('show', 'shown', '--url', url)).stdout
  const work = 'echo $HOLDFAST_TOKEN; sleep 60'
  const held = world.start(['run', 'shown', '--ttl', '2s', '--url', url, '--', 'sh', '-c', work])
  await eventually('a token', async () => /^\d+\n$/.test(held.stdout))
  const token = held.stdout.trim()
  expect(await shown()).toContain(token)
  expect(await world.run('evict', 'shown', '--token', token, '--now', '--url', url)).toMatchObject({ exit: 0 })
  expect((await held.ended).exit).not.toBe(0)
  await eventually('an empty line', async () => !(await shown()).includes(token))
}

/** `run` and `doctor` of a server that is not there: with what the network said, and without the password. */
export async function outOfReach(world: World, scheme: string, path = ''): Promise<void> {
  const url = `${scheme}://user:hunter2@127.0.0.1:${await freePort()}${path}`
  const doctor = await world.run('doctor', '--url', url)
  expect(doctor.exit).not.toBe(0)
  expect(doctor.stdout + doctor.stderr).toContain('ECONNREFUSED')
  const run = await world.run('run', 'job', '--wait', '1s', '--url', url, '--', 'true')
  expect(run.exit).toBe(69)
  // The URL says which engine it is.
  expect(run.stderr).not.toContain(`: ${scheme}: `)
  expect(doctor.stdout + doctor.stderr + run.stdout + run.stderr).not.toContain('hunter2')
}
