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

test('elect: a signal that the command has survived does not end a leader that is lost later: it stands again', async () => {
  const work = 'trap "echo reloaded >> log" HUP INT; echo $HOLDFAST_TOKEN >> terms; while :; do sleep 0.02; done'
  const leader = world.start(['elect', 'k', '--ttl', '6s', '--', 'sh', '-c', work])
  const first = await eventually('a first term', () => world.lines('terms')[0])
  for (const [index, signal] of (['SIGHUP', 'SIGINT'] as const).entries()) {
    leader.signal(signal)
    await eventually(`${signal} survived`, () => world.lines('log').length === index + 1)
  }
  expect(await world.run('evict', 'k', '--token', first)).toMatchObject({ exit: 0 })
  await Promise.race([eventually('a second term', () => world.lines('terms')[1]), leader.ended])
  expect(world.lines('terms')).toHaveLength(2)
  leader.signal('SIGKILL')
  await leader.ended
})

test.each(['SIGTERM', 'SIGINT'] as const)(
  'elect: %s while the command of a lost term is being ended ends it: no other term begins',
  async (signal) => {
    const work = 'trap "echo told >> log" TERM INT; echo $HOLDFAST_TOKEN >> terms; while :; do sleep 0.02; done'
    const leader = world.start(['elect', 'k', '--ttl', '9s', '--grace', '3s', '--', 'sh', '-c', work])
    const first = await eventually('a first term', () => world.lines('terms')[0])
    expect(await world.run('evict', 'k', '--token', first)).toMatchObject({ exit: 0 })
    await eventually('TERM to the command', () => world.lines('log').length > 0)
    leader.signal(signal)
    expect(await leader.ended).toMatchObject({ exit: { SIGINT: 130, SIGTERM: 143 }[signal] })
    expect(world.lines('terms')).toEqual([first])
  },
)

test('elect: a leader that an outage has cost its term stands again after it, however long it is', async () => {
  const work = 'echo $HOLDFAST_TOKEN >> terms; exec sleep 60'
  const leader = world.start(['elect', 'k', '-v', '--ttl', '3s', '--', 'sh', '-c', work])
  await eventually('a first term', () => world.lines('terms')[0])
  // No holder can renew, and no candidate can be granted.
  const finish = await world.writeWithoutEnd()
  const outlasted = eventually('an outage outlasted', () => leader.stderr.includes('; still a candidate'))
  await Promise.race([outlasted, leader.ended])
  finish()
  await Promise.race([eventually('a second term', () => world.lines('terms')[1]), leader.ended])
  expect({ terms: world.lines('terms').length, exit: leader.process.exitCode }).toEqual({ terms: 2, exit: null })
  leader.signal('SIGTERM')
  expect(await leader.ended).toMatchObject({ exit: 143 })
  await outlasted
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
