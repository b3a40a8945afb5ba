/** Every exit code, seen; and the table of them in the documentation. */
import { mkdirSync, readFileSync } from 'node:fs'
import { hostname } from 'node:os'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { EXITS } from '../../src/cli/exits.ts'
import { eventually, type Running, World } from './holdfast.ts'

let world: World
beforeEach(() => {
  world = new World()
})
afterEach(() => world[Symbol.asyncDispose]())

async function holder(key: string, ...options: string[]): Promise<{ run: Running; token: string }> {
  const run = world.start(['run', key, ...options, '--', 'sh', '-c', 'echo $HOLDFAST_TOKEN > token; exec sleep 60'])
  return { run, token: await eventually('a token', () => world.lines('token')[0]) }
}

test('docs/cli.md has the same exit codes, with the same meaning', () => {
  const text = readFileSync('docs/cli.md', 'utf8')
  const rows = [...text.matchAll(/^\| (\d+) \| (.*) \|$/gm)].map(([, code, means]) => ({ code: Number(code), means }))
  expect(rows).toEqual(Object.values(EXITS).map(({ code, means }) => ({ code, means })))
  expect(text).toMatch(/^\| 128\+n \|/m)
})

test('the exit code of the command is that of run', async () => {
  for (const exit of [0, 1, 3, 64, 75, 255])
    expect((await world.run('run', 'k', '--', 'sh', '-c', `exit ${exit}`)).exit).toBe(exit)
})

test('a command that dies of a signal counts as 128 and its number', async () => {
  expect(await world.run('run', 'k', '--', 'sh', '-c', 'kill -TERM $$')).toMatchObject({ exit: 143 })
  expect(await world.run('run', 'k', '--', 'sh', '-c', 'kill -KILL $$')).toMatchObject({ exit: 137 })
  expect(await world.run('run', 'k', '--', 'sh', '-c', 'kill -USR1 $$')).toMatchObject({ exit: 138 })
})

test('64: wrong usage', async () => {
  expect(await world.run('run', 'k')).toMatchObject({ exit: 64, stdout: '' })
  expect(await world.run('run', '', '--', 'true')).toMatchObject({ exit: 64 })
  expect(await world.run()).toMatchObject({ exit: 64, stdout: '' })
})

test('64: a run inside the command of another one, on the same key, would wait for itself', async () => {
  const inner = (options: string): string => `holdfast run k ${options} -- echo inside`
  expect(await world.run('run', 'k', '--', 'sh', '-c', inner(''))).toMatchObject({
    exit: 64,
    stdout: '',
    stderr: expect.stringContaining('would wait for itself'),
  })
  expect(await world.run('run', 'k', '--limit', '2', '--', 'sh', '-c', inner('--limit 2'))).toMatchObject({
    exit: 0,
    stdout: 'inside\n',
  })
  expect(await world.run('run', 'other', '--', 'sh', '-c', inner(''))).toMatchObject({ exit: 0, stdout: 'inside\n' })
})

test('69: the engine cannot be used, told by its URL', async () => {
  mkdirSync(world.path('folder'))
  const url = `sqlite:${world.path('folder')}`
  const ended = await world.run('run', 'k', '--url', url, '--', 'sh', '-c', 'touch ran')
  expect(ended).toMatchObject({ exit: 69, stderr: expect.stringContaining(url) })
  expect(world.read('ran')).toBe('')
  for (const command of [['ls'], ['show', 'k'], ['watch', 'k'], ['evict', 'k', '--token', '1'], ['elect', 'k']]) {
    const program = command[0] === 'elect' ? ['--', 'true'] : []
    expect(await world.run(...command, '--url', url, ...program)).toMatchObject({
      exit: 69,
      stderr: expect.stringContaining(url),
    })
  }
})

test('75: busy, at once; --busy-exit changes the number; --wait 0 is the same', async () => {
  const { run } = await holder('k')
  expect(await world.run('run', 'k', '-n', '--', 'true')).toMatchObject({
    exit: 75,
    stderr: expect.stringMatching(/^holdfast: 'k' is busy: held by \S+ pid \d+ \(.+\) for \S+\n$/),
  })
  expect(await world.run('run', 'k', '-n', '-q', '--', 'true')).toMatchObject({ exit: 75, stderr: '' })
  expect(await world.run('run', 'k', '-n', '--busy-exit', '0', '--', 'true')).toMatchObject({ exit: 0 })
  expect(await world.run('run', 'k', '--wait', '0', '--', 'true')).toMatchObject({ exit: 75 })
  run.signal('SIGTERM')
  await run.ended
  expect(await world.run('run', 'k', '-n', '--', 'true')).toMatchObject({ exit: 0 })
})

test('79: evicted, the command is told to end, and run says so', async () => {
  const run = world.start([
    'run',
    'k',
    '--ttl',
    '3s',
    '--',
    'sh',
    '-c',
    'trap "echo told; exit 0" TERM; echo $HOLDFAST_TOKEN > token; while :; do sleep 0.02; done',
  ])
  const token = await eventually('a token', () => world.lines('token')[0])
  expect(await world.run('evict', 'k', '--token', token)).toMatchObject({ exit: 0 })
  expect(await run.ended).toMatchObject({
    exit: 79,
    stdout: 'told\n',
    stderr: expect.stringContaining("losing 'k' (it was evicted): ending the command"),
  })
})

test('124: --wait ran out, with who holds it', async () => {
  const { run } = await holder('k')
  const ended = await world.run('run', 'k', '--wait', '100ms', '--', 'sh', '-c', 'touch ran')
  expect(ended).toMatchObject({
    exit: 124,
    stderr: expect.stringContaining(`held by ${hostname()} pid ${run.pid} (sh -c`),
  })
  expect(world.read('ran')).toBe('')
  expect((await world.json<{ entries: unknown[] }>('show', 'k')).entries).toHaveLength(1)
})

test('126 and 127: cannot be run, not found; said before standing in line', async () => {
  await holder('k')
  const file = world.write('not-executable', '#!/bin/sh\n')
  expect(await world.run('run', 'k', '--', file)).toMatchObject({
    exit: 126,
    stderr: expect.stringContaining('not an executable file'),
  })
  expect(await world.run('run', 'k', '--', world.folder)).toMatchObject({ exit: 126 })
  expect(await world.run('run', 'k', '--', 'no-such-command-anywhere')).toMatchObject({
    exit: 127,
    stderr: expect.stringContaining('not found'),
  })
  expect(await world.run('run', 'k', '--', './no-such-file')).toMatchObject({ exit: 127 })
})

test('126: found, executable, and still nothing that can be run', async () => {
  const file = world.write('no-interpreter', '#!/no/such/interpreter\n')
  world.makeExecutable(file)
  expect((await world.run('run', 'k', '--', file)).exit).toSatisfy((exit) => exit === 126 || exit === 127)
  expect(await world.run('run', 'k', '-n', '--', 'true')).toMatchObject({ exit: 0 })
})

test('1: the answer is no', async () => {
  const { token } = await holder('k')
  const other = String(BigInt(token) + 1n)
  expect(await world.run('evict', 'k', '--token', other)).toMatchObject({
    exit: 1,
    stderr: expect.stringContaining(token),
  })
  expect(await world.run('doctor', '--url', 'memory:')).toMatchObject({
    exit: 1,
    stdout: expect.stringContaining('fail'),
  })
})
