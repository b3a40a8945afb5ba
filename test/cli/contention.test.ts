/** Many processes on one key. */
import { afterEach, beforeEach, expect, test } from 'vitest'
import { eventually, World } from './holdfast.ts'

let world: World
beforeEach(() => {
  world = new World()
})
afterEach(() => world[Symbol.asyncDispose]())

/** `>>` appends in one step, also beside other writers. */
const WORK = 'echo "begin $HOLDFAST_TOKEN" >> log; sleep 0.05; echo "end $HOLDFAST_TOKEN" >> log'

test('twelve shells on one key: no two at a time, tokens ascending in the order of the grants', async () => {
  const shells = Array.from({ length: 12 }, () => world.start(['run', 'key', '--', 'sh', '-c', WORK]))
  for (const { ended } of shells) expect(await ended).toMatchObject({ exit: 0, stderr: '' })
  const lines = world.lines('log')
  const tokens = lines.filter((_, index) => index % 2 === 0).map((line) => BigInt(line.replace('begin ', '')))
  expect(lines).toEqual(tokens.flatMap((token) => [`begin ${token}`, `end ${token}`]))
  expect(tokens).toHaveLength(12)
  expect(tokens).toEqual([...tokens].sort((a, b) => (a < b ? -1 : 1)))
  expect(new Set(tokens).size).toBe(12)
})

test('the first in line is served first', async () => {
  const first = world.start([
    'run',
    'key',
    '--',
    'sh',
    '-c',
    'echo first >> log; while [ ! -e go ]; do sleep 0.02; done',
  ])
  await eventually('the first one at work', () => world.read('log') === 'first\n')
  const rest = []
  for (const name of ['second', 'third', 'fourth']) {
    rest.push(world.start(['run', 'key', '--', 'sh', '-c', `echo ${name} >> log`]))
    await eventually(`${name} in line`, async () => (await length()) === rest.length + 1)
  }
  world.write('go', '')
  await Promise.all([first, ...rest].map(({ ended }) => ended))
  expect(world.lines('log')).toEqual(['first', 'second', 'third', 'fourth'])
})

test('--limit 3 lets three in, and no more', async () => {
  const work = 'echo + >> log; sleep 0.1; echo - >> log'
  const shells = Array.from({ length: 9 }, () => world.start(['run', 'key', '--limit', '3', '--', 'sh', '-c', work]))
  for (const { ended } of shells) expect(await ended).toMatchObject({ exit: 0 })
  let now = 0
  const at = world.lines('log').map((line) => (now += line === '+' ? 1 : -1))
  expect(at).toHaveLength(18)
  expect(Math.max(...at)).toBe(3)
})

test('--shared: readers hold together, a writer alone, and no reader overtakes a writer in line', async () => {
  const work = 'while [ ! -e go ]; do sleep 0.02; done'
  const one = world.start(['run', 'key', '--shared', '--', 'sh', '-c', work])
  const two = world.start(['run', 'key', '--shared', '--', 'sh', '-c', work])
  await eventually('both holding', async () => (await held()) === 2)
  expect(await world.run('run', 'key', '-n', '--', 'true')).toMatchObject({ exit: 75 })
  const writer = world.start(['run', 'key', '--', 'sh', '-c', work])
  await eventually('a writer in line', async () => (await length()) === 3)
  expect(await world.run('run', 'key', '-n', '--shared', '--', 'true')).toMatchObject({ exit: 75 })
  world.write('go', '')
  expect(await one.ended).toMatchObject({ exit: 0 })
  expect(await two.ended).toMatchObject({ exit: 0 })
  expect(await writer.ended).toMatchObject({ exit: 0 })
  expect(await world.run('run', 'key', '-n', '--', 'true')).toMatchObject({ exit: 0 })
})

test('different keys do not wait for each other', async () => {
  const holder = world.start(['run', 'a', '--', 'sh', '-c', 'touch ready; sleep 30'])
  await eventually('a held', async () => (await world.json<{ lines: unknown[] }>('ls')).lines.length === 1)
  for (const key of ['A', 'a ', 'á', 'a/b', '{a}'])
    expect(await world.run('run', key, '-n', '--', 'true')).toMatchObject({ exit: 0 })
  holder.signal('SIGTERM')
  expect(await holder.ended).toMatchObject({ exit: 143 })
})

const entries = async (): Promise<{ state: string }[]> =>
  (await world.json<{ entries: { state: string }[] }>('show', 'key')).entries
const length = async (): Promise<number> => (await entries()).length
const held = async (): Promise<number> => (await entries()).filter(({ state }) => state === 'held').length
