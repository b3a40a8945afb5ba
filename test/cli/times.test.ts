/** --at-least, --at-most, --max-hold and --on-lost. */
import { afterEach, beforeEach, expect, test } from 'vitest'
import { eventually, isRunning, World } from './holdfast.ts'

let world: World
beforeEach(() => {
  world = new World()
})
afterEach(() => world[Symbol.asyncDispose]())

interface Shown {
  readonly entries: readonly {
    readonly state: string
    readonly token: string
    readonly ttlMs: number
    readonly remainingMs: number
  }[]
}

const show = (): Promise<Shown> => world.json<Shown>('show', 'k')

test('--at-least: the key stays busy after a faster command and its run have ended, and is free after that', async () => {
  const startedAt = performance.now()
  expect(await world.run('run', 'k', '--at-least', '3s', '--', 'true')).toMatchObject({ exit: 0 })
  const [entry] = (await show()).entries
  expect(entry).toMatchObject({ state: 'held' })
  expect(entry?.remainingMs).toBeLessThanOrEqual(3000)
  expect(await world.run('run', 'k', '-n', '--at-least', '3s', '--', 'true')).toMatchObject({ exit: 75 })
  // The waiter gets it when the time is over, and not before.
  expect(await world.run('run', 'k', '--', 'true')).toMatchObject({ exit: 0 })
  expect(performance.now() - startedAt).toBeGreaterThan(3000)
})

test('--at-least: a slower command keeps the key no longer than it runs', async () => {
  expect(await world.run('run', 'k', '--at-least', '10ms', '--', 'sleep', '0.1')).toMatchObject({ exit: 0 })
  expect((await show()).entries).toEqual([])
})

test('--at-least: the exit code is that of the command, also of a failing one', async () => {
  expect(await world.run('run', 'k', '--at-least', '1m', '--', 'sh', '-c', 'exit 7')).toMatchObject({ exit: 7 })
  const [entry] = (await show()).entries
  expect(await world.run('evict', 'k', '--token', entry?.token ?? '', '--now')).toMatchObject({ exit: 0 })
  expect(await world.run('run', 'k', '-n', '--', 'true')).toMatchObject({ exit: 0 })
})

test('--at-most: TERM, and the command may tidy up; its own exit code counts', async () => {
  const ended = await world.run(
    'run',
    'k',
    '--at-most',
    '2s',
    '--',
    'sh',
    '-c',
    'trap "echo tidy; exit 9" TERM; while :; do sleep 0.02; done',
  )
  expect(ended).toMatchObject({ exit: 9, stdout: 'tidy\n', stderr: expect.stringContaining('2s') })
})

test('--at-most: KILL after the grace, of everything the command has started', async () => {
  const deaf =
    'trap "" TERM; (while :; do sleep 0.05; done) & echo $! > child; echo ready; while :; do sleep 0.05; done'
  const ended = await world.run('run', 'k', '--at-most', '2s', '--grace', '300ms', '--', 'sh', '-c', deaf)
  expect(ended).toMatchObject({ exit: 137, stdout: 'ready\n' })
  expect(isRunning(Number(world.read('child')))).toBe(false)
})

test('--at-most: a faster command is not touched', async () => {
  expect(await world.run('run', 'k', '--at-most', '30s', '--', 'sh', '-c', 'exit 4')).toMatchObject({
    exit: 4,
    stderr: '',
  })
})

test('--max-hold: TERM at its end, then the lock is given back, and the exit code says that it was lost', async () => {
  const loop = 'trap "echo tidy; exit 9" TERM; while :; do sleep 0.02; done'
  const ended = await world.run('run', 'k', '--max-hold', '2s', '--json', '--', 'sh', '-c', loop)
  expect(ended).toMatchObject({ exit: 79, stdout: 'tidy\n', stderr: expect.stringContaining('--max-hold') })
  expect(ended.stderr).toContain('"outcome":"lost"')
  expect(await world.run('run', 'k', '-n', '--', 'true'), 'free again').toMatchObject({ exit: 0 })
})

test('--max-hold: a command that does not end is over before the next one begins', async () => {
  const deaf = 'trap "" TERM; echo $$ > deaf; while :; do echo beat >> log; sleep 0.02; done'
  const run = world.start(['run', 'k', '--ttl', '3s', '--max-hold', '2s', '--grace', '30s', '--', 'sh', '-c', deaf])
  await eventually('a command', () => world.lines('deaf')[0])
  const next = world.start(['run', 'k', '--', 'sh', '-c', 'echo next >> log'])
  expect(await run.ended).toMatchObject({ exit: 79 })
  expect(await next.ended).toMatchObject({ exit: 0 })
  expect(isRunning(Number(world.read('deaf')))).toBe(false)
  expect(world.lines('log').at(-1)).toBe('next')
})

test('--max-hold: a faster command is not touched, and nothing is no limit', async () => {
  expect(await world.run('run', 'k', '--max-hold', '30s', '--', 'sh', '-c', 'exit 4')).toMatchObject({
    exit: 4,
    stderr: '',
  })
  expect(await world.run('run', 'k', '--max-hold', '0', '--', 'true')).toMatchObject({ exit: 64 })
})

const COUNTING = 'echo $HOLDFAST_TOKEN > token; while :; do echo beat >> beats; sleep 0.02; done'

test('--on-lost term: the command has a grace to tidy up in, and is over before its deadline', async () => {
  const run = world.start([
    'run',
    'k',
    '--ttl',
    '3s',
    '--',
    'sh',
    '-c',
    `trap "sleep 0.1; echo tidied >> log; exit" TERM; ${COUNTING}`,
  ])
  const token = await eventually('a token', () => world.lines('token')[0])
  const next = world.start(['run', 'k', '--', 'sh', '-c', 'echo next >> log'])
  await eventually('a waiter in line', async () => (await show()).entries.length === 2)
  await world.run('evict', 'k', '--token', token)
  expect(await run.ended).toMatchObject({ exit: 79 })
  expect(await next.ended).toMatchObject({ exit: 0 })
  expect(world.lines('log')).toEqual(['tidied', 'next'])
})

test('--on-lost term: a command that ignores TERM is killed, with its family, before the next one begins', async () => {
  const family = `trap "" TERM; (while :; do echo beat >> beats; sleep 0.02; done) & ${COUNTING}`
  const run = world.start(['run', 'k', '--ttl', '3s', '--', 'sh', '-c', family])
  const token = await eventually('a token', () => world.lines('token')[0])
  const next = world.start(['run', 'k', '--', 'sh', '-c', 'wc -l < beats; sleep 0.3; wc -l < beats'])
  await world.run('evict', 'k', '--token', token)
  expect(await run.ended).toMatchObject({ exit: 79 })
  const [before, after] = (await next.ended).stdout.trim().split(/\s+/)
  expect(before).toBe(after)
})

test('an engine that does not answer: the command is told to end before its deadline, and run ends with 79', async () => {
  const work = 'trap "echo told; exit" TERM; echo $HOLDFAST_TOKEN > token; while :; do sleep 0.02; done'
  // A renewal fails after two thirds of the ttl, which is told. That is seconds before the command is told to end.
  const run = world.start(['run', 'k', '--ttl', '12s', '--grace', '1s', '--', 'sh', '-c', work])
  await eventually('a token', () => world.lines('token')[0])
  // No holder can renew, and no waiter can take over.
  const finish = await world.writeWithoutEnd()
  expect(await run.ended).toMatchObject({
    exit: 79,
    stdout: 'told\n',
    stderr: expect.stringContaining("'k' could not be renewed"),
  })
  finish()
  expect(await world.run('run', 'k', '--', 'true')).toMatchObject({ exit: 0 })
})

test('--on-lost kill: no TERM', async () => {
  const run = world.start([
    'run',
    'k',
    '--ttl',
    '3s',
    '--on-lost',
    'kill',
    '--',
    'sh',
    '-c',
    `trap "echo told" TERM; ${COUNTING}`,
  ])
  const token = await eventually('a token', () => world.lines('token')[0])
  await world.run('evict', 'k', '--token', token)
  expect(await run.ended).toMatchObject({ exit: 79, stdout: '' })
})

test('--on-lost ignore: the command runs on, and its exit code counts', async () => {
  const work = 'echo $HOLDFAST_TOKEN > token; while [ ! -e go ]; do sleep 0.02; done; exit 6'
  const run = world.start(['run', 'k', '--ttl', '300ms', '--on-lost', 'ignore', '--', 'sh', '-c', work])
  const token = await eventually('a token', () => world.lines('token')[0])
  await world.run('evict', 'k', '--token', token)
  expect(await world.run('run', 'k', '--', 'touch', 'go')).toMatchObject({ exit: 0 })
  expect(await run.ended).toMatchObject({ exit: 6, stderr: expect.stringContaining("lost 'k'") })
})
