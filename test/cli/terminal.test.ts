/**
 * On a terminal: the status line while waiting, Ctrl-C, Ctrl-Z, the controlling terminal, and a command that shares our
 * process group. Through script(1).
 */
import { spawnSync } from 'node:child_process'
import { hostname } from 'node:os'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { eventually, isRunning, type Running, World } from './holdfast.ts'

const hasScript = spawnSync('script', ['--version'], { encoding: 'utf8' }).stdout?.includes('util-linux') ?? false

let world: World
beforeEach((context) => {
  if (!hasScript) context.skip('needs script(1) of util-linux for a terminal')
  world = new World()
})
afterEach(() => world?.[Symbol.asyncDispose]())

const INTERRUPT = '\x03'
const SUSPEND = '\x1a'
/** What takes a drawn line away. */
const ERASE = '\r\x1b[K'

async function pidIn(file: string): Promise<number> {
  return eventually(`a pid in ${file}`, () => Number.parseInt(world.read(file), 10) || undefined)
}

async function length(): Promise<number> {
  return (await world.json<{ entries: unknown[] }>('show', 'k')).entries.length
}

async function seen(running: Running, what: string | RegExp): Promise<void> {
  await eventually(String(what), () =>
    typeof what === 'string' ? running.stdout.includes(what) : what.test(running.stdout),
  )
}

test('the command has the terminal: it can read, write and open it, and is in the foreground', async () => {
  const line = `holdfast run k -- sh -c 'tty; echo direct > /dev/tty; read answer; echo "got $answer"; exit 3'`
  const run = world.onTerminal(line)
  await seen(run, 'direct')
  run.stdin.write('typed\r')
  const { exit, stdout } = await run.ended
  expect(exit).toBe(3)
  expect(stdout).toMatch(/\/dev\/pts\/\d+/)
  expect(stdout).toContain('got typed')
})

test('Ctrl-C reaches the command once, and is its own business', async () => {
  const run = world.onTerminal(
    `holdfast run k -- sh -c 'trap "echo INT >> got" INT; touch ready; while [ ! -e go ]; do sleep 0.02; done; exit 4'`,
  )
  await eventually('traps set', () => world.exists('ready'))
  run.stdin.write(INTERRUPT)
  await eventually('the signal', () => world.lines('got').length > 0)
  world.write('go', '')
  const { exit, stdout } = await run.ended
  expect({ exit, stdout, got: world.lines('got') }).toEqual({ exit: 4, stdout: '^C', got: ['INT'] })
})

test('Ctrl-C ends an ordinary command: 130', async () => {
  const run = world.onTerminal(`holdfast run k -- sh -c 'touch ready; exec sleep 60'`)
  await eventually('ready', () => world.exists('ready'))
  run.stdin.write(INTERRUPT)
  expect(await run.ended).toMatchObject({ exit: 130 })
  expect(await length()).toBe(0)
})

test('INT from elsewhere, to run in the background, reaches the command', async () => {
  const job = `holdfast run k -- sh -c 'trap "echo INT >> got; exit 4" INT; touch ready; while :; do sleep 0.02; done'`
  const run = world.onTerminal(`set -m; ${job} & echo $! > pid; wait $!`)
  await eventually('ready', () => world.exists('ready'))
  process.kill(await pidIn('pid'), 'SIGINT')
  expect(await run.ended).toMatchObject({ exit: 4 })
  expect(world.lines('got')).toEqual(['INT'])
})

describe('while waiting', () => {
  let holder: Running
  beforeEach(async () => {
    holder = world.start(['run', 'k', '--', 'sh', '-c', 'while [ ! -e go ]; do sleep 0.02; done'])
    await eventually('a holder', async () => (await length()) === 1)
  })

  test('one line says who holds, since when and how many are ahead, and is gone when it is ours', async () => {
    world.start(['run', 'k', '--', 'true'])
    await eventually('a waiter', async () => (await length()) === 2)
    const run = world.onTerminal('holdfast run k -- echo mine')
    await seen(run, new RegExp(`held by.* ${hostname()} pid ${holder.pid} \\(sh -c .* for \\d.*, 2 ahead`))
    await eventually(
      'the line drawn again',
      () => run.stdout.split(ERASE).filter((line) => line.includes('2 ahead')).length > 1,
    )
    world.write('go', '')
    const { exit, stdout } = await run.ended
    expect(exit).toBe(0)
    expect(stdout.endsWith(`${ERASE}mine\r\n`)).toBe(true)
    expect(stdout.trim()).not.toContain('\n')
  })

  test('NO_COLOR and --quiet are heeded', async () => {
    const plain = world.onTerminal('holdfast run k -- true', { NO_COLOR: '1' })
    await seen(plain, `waiting for k: held by ${hostname()} pid ${holder.pid}`)
    const quiet = world.onTerminal('holdfast run k --quiet -- true')
    await eventually('both in line', async () => (await length()) === 3)
    world.write('go', '')
    await plain.ended
    expect(await quiet.ended).toMatchObject({ exit: 0, stdout: '' })
  })

  test('Ctrl-C gives up the place in line and leaves a clean line: 130', async () => {
    const run = world.onTerminal('holdfast run k -- touch ran')
    await seen(run, 'waiting for')
    run.stdin.write(INTERRUPT)
    const { exit, stdout } = await run.ended
    expect(exit).toBe(130)
    expect(stdout.endsWith(ERASE)).toBe(true)
    expect(await length()).toBe(1)
    expect(world.exists('ran')).toBe(false)
  })
})

test('run killed with -9: its command and what that has started are ended, though they share the group of the shell, which is not', async () => {
  const family = `sh -c 'trap "" TERM; echo $$ > grandchild; while :; do sleep 0.05; done' & echo $$ > child; wait`
  const run = world.onTerminal(
    `holdfast run k --grace 500ms -- sh -c "${family.replaceAll('"', '\\"').replaceAll('$', '\\$')}" & echo $! > pid; wait $!; echo survived $?`,
  )
  const family_ = [await pidIn('child'), await pidIn('grandchild')]
  process.kill(await pidIn('pid'), 'SIGKILL')
  await eventually('their end', () => !family_.some(isRunning))
  expect((await run.ended).stdout).toContain('survived 137')
})

test('TERM to run ends all that the command has started, before the lock is given back', async () => {
  world.write('work', 'trap "sleep 0.2; touch tidied; exit" TERM; echo $$ > worker; while :; do sleep 0.02; done')
  world.write('job', 'sh ./work; touch more')
  const run = world.onTerminal('holdfast run k -- sh ./job & echo $! > pid; wait $!; echo "ended $?"; read over')
  const worker = await pidIn('worker')
  process.kill(await pidIn('pid'), 'SIGTERM')
  await seen(run, 'ended 143')
  expect({ works: isRunning(worker), tidied: world.exists('tidied') }).toEqual({ works: false, tidied: true })
  expect(world.exists('more')).toBe(false)
  run.stdin.write('\r')
  await run.ended
})

test('Ctrl-Z stops the job; brought back in time it goes on, brought back too late it was ended: 79', async () => {
  const run = world.spawn('script', ['-qefc', 'exec bash --norc -i', '/dev/null'], { PS1: '$ ' })
  const type = (text: string): boolean => run.stdin.write(`${text}\r`)
  type(`holdfast run k --ttl 5s -- sh -c 'echo $$ > worker; while :; do echo beat >> beats; sleep 0.02; done'`)
  const worker = await pidIn('worker')
  run.stdin.write(SUSPEND)
  await seen(run, 'Stopped')
  const beats = world.lines('beats').length
  type('fg')
  await eventually('more beats', () => world.lines('beats').length > beats + 5)
  run.stdin.write(SUSPEND)
  await eventually('its end', () => !isRunning(worker))
  expect(await world.run('run', 'k', '--', 'true')).toMatchObject({ exit: 0 })
  type('fg')
  type('echo "code $?"')
  await seen(run, 'code 79')
  type('exit')
  await run.ended
})
