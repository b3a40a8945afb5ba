/** elect: who leads, what becomes of a leader that lost, and which signals end it. */
import { afterEach, beforeEach, expect, test } from 'vitest'
import { eventually, World } from './holdfast.ts'

let world: World
beforeEach(() => {
  world = new World()
})
afterEach(() => world[Symbol.asyncDispose]())

const show = (key: string): Promise<{ entries: unknown[] }> => world.json('show', key)

test('elect: one leads, the next one takes over, and a leader that lost stands again', async () => {
  const work = 'echo $HOLDFAST_TOKEN >> terms; exec sleep 60'
  const one = world.start(['elect', 'k', '--ttl', '3s', '--json', '--', 'sh', '-c', work])
  const first = await eventually('a first term', () => world.lines('terms')[0])
  expect(await world.run('evict', 'k', '--token', first)).toMatchObject({ exit: 0 })
  const second = await eventually('a second term', () => world.lines('terms')[1])
  expect(BigInt(second)).toBeGreaterThan(BigInt(first))
  expect(JSON.parse(one.stderr.split('\n').find((line) => line.startsWith('{')) ?? '')).toMatchObject({
    command: 'elect',
    outcome: 'lost',
    token: first,
  })
  const two = world.start(['elect', 'k', '--ttl', '3s', '--', 'sh', '-c', `${work}`])
  await eventually('a candidate', async () => (await show('k')).entries.length === 2)
  one.signal('SIGTERM')
  expect(await one.ended).toMatchObject({ exit: 143 })
  await eventually('a third term', () => world.lines('terms')[2])
  two.signal('SIGKILL')
  await two.ended
})

test('elect: a command that ends by itself resigns, and its exit code counts', async () => {
  expect(await world.run('elect', 'k', '--', 'sh', '-c', 'exit 8')).toMatchObject({ exit: 8 })
  expect((await show('k')).entries).toEqual([])
})

test('elect --json tells of a command that cannot be run as run does', async () => {
  const { exit, stdout, stderr } = await world.run('elect', 'k', '--json', '--', 'no-such-command-anywhere')
  expect({ exit, stdout }).toEqual({ exit: 127, stdout: '' })
  expect(JSON.parse(stderr)).toEqual({
    holdfast: 1,
    command: 'elect',
    key: 'k',
    outcome: 'not-run',
    exit: 127,
    message: expect.stringContaining('not found'),
  })
})
