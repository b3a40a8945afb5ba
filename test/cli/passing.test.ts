/** What passes through `run` as if it were not there: signals, stdin, stdout, stderr, the environment, arguments. */
import { randomBytes } from 'node:crypto'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { eventually, isRunning, World } from './holdfast.ts'

let world: World
beforeEach(() => {
  world = new World()
})
afterEach(() => world[Symbol.asyncDispose]())

const SIGNALS = ['HUP', 'INT', 'QUIT', 'USR1', 'USR2', 'TERM'] as const

test.each(SIGNALS)('SIG%s sent to run reaches the command, once', async (name) => {
  const traps = SIGNALS.map((signal) => `trap "echo ${signal} >> got" ${signal}`).join('; ')
  const run = world.start([
    'run',
    'k',
    '--',
    'sh',
    '-c',
    `${traps}; touch ready; while [ ! -e go ]; do sleep 0.02; done; exit 5`,
  ])
  await eventually('traps set', () => world.exists('ready'))
  run.signal(`SIG${name}`)
  await eventually('a signal', () => world.lines('got').length > 0)
  world.write('go', '')
  expect(await run.ended).toMatchObject({ exit: 5 })
  expect(world.lines('got')).toEqual([name])
})

test('a signal that ends the command ends run, with 128 and its number, and frees the key', async () => {
  const run = world.start(['run', 'k', '--', 'sh', '-c', 'touch ready; exec sleep 60'])
  await eventually('ready', () => world.exists('ready'))
  run.signal('SIGINT')
  expect(await run.ended).toMatchObject({ exit: 130 })
  expect(await world.run('run', 'k', '-n', '--', 'true')).toMatchObject({ exit: 0 })
})

test('TERM reaches what the command has started: nothing runs on without the lock', async () => {
  const run = world.start(['run', 'k', '--', 'sh', '-c', 'sleep 60 & echo $! > child; wait'])
  const child = await eventually('a pid', () => Number(world.read('child')) || undefined)
  run.signal('SIGTERM')
  expect(await run.ended).toMatchObject({ exit: 143 })
  await eventually('its end', () => !isRunning(child))
})

test('TERM ends what has a process group of its own, too (timeout, set -m), before the lock is given back', async (context) => {
  if (process.platform !== 'linux') context.skip('it is found in /proc')
  const work = 'trap "" HUP; echo $$ > worker; while :; do sleep 0.02; done'
  const apart = `timeout 600 sh -c '${work}' > log 2>&1; true`
  const run = world.start(['run', 'k', '--', 'sh', '-c', apart])
  const worker = await eventually('a pid', () => Number(world.read('worker')) || undefined)
  run.signal('SIGTERM')
  expect(await run.ended).toMatchObject({ exit: 143 })
  const works = isRunning(worker)
  if (works) process.kill(worker, 'SIGKILL')
  expect(works).toBe(false)
})

test.each(['SIGTERM', 'SIGINT', 'SIGHUP'] as const)(
  '%s while waiting: the place in line is given up',
  async (signal) => {
    world.start(['run', 'k', '--', 'sh', '-c', 'touch ready; exec sleep 60'])
    await eventually('ready', () => world.exists('ready'))
    const waiter = world.start(['run', 'k', '--', 'touch', 'ran'])
    const length = async (): Promise<number> => (await world.json<{ entries: unknown[] }>('show', 'k')).entries.length
    await eventually('a waiter', async () => (await length()) === 2)
    waiter.signal(signal)
    expect(await waiter.ended).toMatchObject({
      exit: { SIGHUP: 129, SIGINT: 130, SIGTERM: 143 }[signal],
      stdout: '',
      stderr: '',
    })
    expect(await length()).toBe(1)
    expect(world.exists('ran')).toBe(false)
  },
)

test('what the command leaves running when it ends runs on: it was meant to', async () => {
  expect(await world.run('run', 'k', '--', 'sh', '-c', 'sleep 60 >/dev/null 2>&1 & echo $! > daemon')).toMatchObject({
    exit: 0,
  })
  const daemon = Number(world.read('daemon'))
  expect(await world.run('run', 'k', '-n', '--', 'true')).toMatchObject({ exit: 0 })
  expect(isRunning(daemon)).toBe(true)
  process.kill(daemon, 'SIGKILL')
})

test('bytes pass through stdin and stdout unchanged, however many', async () => {
  const bytes = randomBytes(8 * 1024 * 1024)
  const run = world.start(['run', 'k', '--', 'cat'])
  run.stdin.end(bytes)
  expect(await run.ended).toMatchObject({ exit: 0, stderr: '' })
  expect(run.bytes.equals(bytes)).toBe(true)
})

test('the end of stdin reaches the command, and a reader that has gone away ends it', async () => {
  const run = world.start(['run', 'k', '--', 'sh', '-c', 'wc -c'])
  run.stdin.end('12345')
  expect((await run.ended).stdout.trim()).toBe('5')
  const piped = await world.spawn('sh', ['-c', 'holdfast run k -- yes | head -1']).ended
  expect(piped).toMatchObject({ exit: 0, stdout: 'y\n', stderr: '' })
})

test('stderr is the command’s own, too', async () => {
  expect(await world.run('run', 'k', '--', 'sh', '-c', 'echo out; echo err >&2')).toMatchObject({
    stdout: 'out\n',
    stderr: 'err\n',
  })
})

test('no descriptor of ours leaks into the command', async () => {
  const { stdout } = await world.run('run', 'k', '--', 'sh', '-c', 'ls /proc/self/fd 2>/dev/null | wc -l')
  const bare = await world.spawn('sh', ['-c', 'ls /proc/self/fd 2>/dev/null | wc -l']).ended
  expect(stdout).toBe(bare.stdout)
})

test('the command knows its key, its token and its holder', async () => {
  const print = 'printf "%s\\n" "$HOLDFAST_KEY" "$HOLDFAST_TOKEN" "$HOLDFAST_HOLDER"'
  const run = world.start(['run', 'a key: ä', '--', 'sh', '-c', print])
  const [key, token, holder] = (await run.ended).stdout.split('\n')
  expect(key).toBe('a key: ä')
  expect(token).toMatch(/^\d+$/)
  expect(holder).toContain(`:${run.pid} sh -c`)
})

test('arguments arrive as they were given, also those that look like ours', async () => {
  const args = ['--wait', '--', '-n', '', 'a b', "it's", '$HOME', '*']
  const { stdout } = await world.run('run', 'k', '--', 'printf', '[%s]\\n', ...args)
  expect(stdout).toBe(args.map((arg) => `[${arg}]\n`).join(''))
})

test('a script without a first line that says what it is runs as a shell would run it', async () => {
  const file = world.write('plain', 'echo plain "$1"\n')
  world.makeExecutable(file)
  expect(await world.run('run', 'k', '--', file, 'x')).toMatchObject({ exit: 0, stdout: 'plain x\n' })
})
