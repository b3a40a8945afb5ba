/**
 * `holdfast run`, its command, or both of them, killed with -9 and stopped past the ttl: never two commands under one
 * lock, never a command without a lock.
 */
import { readFileSync } from 'node:fs'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { eventually, isRunning, type Running, World } from './holdfast.ts'

let world: World
beforeEach(() => {
  world = new World()
})
afterEach(async () => {
  // One that has outlived its run keeps the pipes of its world open.
  const worker = Number(world.read('worker'))
  if (worker > 0 && isRunning(worker)) process.kill(worker, 'SIGKILL')
  await world[Symbol.asyncDispose]()
})

/** Long enough that no test here waits for it. */
const LONG_TTL = '10m'

/** Writes its pid, and then a line every 20 ms for as long as it lives. */
const WORKER = 'echo $$ > worker; while :; do echo $HOLDFAST_TOKEN >> beats; sleep 0.02; done'
/** The same, two processes down, and deaf to TERM. */
const STUBBORN_FAMILY = `trap "" TERM; sh -c '${WORKER}' & echo $! > child; wait`

async function pidIn(file: string): Promise<number> {
  return eventually(`a pid in ${file}`, () => Number.parseInt(world.read(file), 10) || undefined)
}

async function holding(...args: string[]): Promise<{ run: Running; worker: number }> {
  const run = world.start(['run', 'k', ...args])
  return { run, worker: await pidIn('worker') }
}

/** A successor that writes down whether the worker was alive when it began. */
function successor(...options: string[]): Running {
  const worker = '$(cat worker)'
  const state = `sed 's/.*) \\(.\\).*/\\1/' /proc/${worker}/stat 2>/dev/null || true`
  return world.start([
    'run',
    'k',
    ...options,
    '--',
    'sh',
    '-c',
    `echo "began $HOLDFAST_TOKEN while worker is [$(${state})]"`,
  ])
}

const WORKER_IS_DEAD = /^began \d+ while worker is \[[ZX]?\]\n$/

test('run killed with -9: its command is ended, and the next one begins at once, not at the end of the ttl, and not before', async () => {
  const { run, worker } = await holding('--ttl', LONG_TTL, '--', 'sh', '-c', WORKER)
  const next = successor()
  await eventually('a waiter', async () => (await waiting()) === 1)
  run.signal('SIGKILL')
  expect(await next.ended).toMatchObject({ exit: 0, stdout: expect.stringMatching(WORKER_IS_DEAD) })
  expect(isRunning(worker)).toBe(false)
})

test('run killed with -9: grandchildren that ignore TERM are killed with the rest, before the next one begins', async () => {
  const { run, worker } = await holding('--ttl', LONG_TTL, '--grace', '2s', '--', 'sh', '-c', STUBBORN_FAMILY)
  const child = await pidIn('child')
  const next = successor()
  await eventually('a waiter', async () => (await waiting()) === 1)
  run.signal('SIGKILL')
  expect(await next.ended).toMatchObject({ exit: 0, stdout: expect.stringMatching(WORKER_IS_DEAD) })
  expect([worker, child].filter(isRunning)).toEqual([])
})

test('run killed with -9 while its command is stopped: the command is killed, and does not wake up later', async () => {
  const { run, worker } = await holding('--ttl', LONG_TTL, '--', 'sh', '-c', WORKER)
  process.kill(worker, 'SIGSTOP')
  run.signal('SIGKILL')
  expect(await successor().ended).toMatchObject({ exit: 0, stdout: expect.stringMatching(WORKER_IS_DEAD) })
})

test('an outer run killed with -9: the command of a run inside it is killed with that, however long its grace is', async () => {
  const inner = ['holdfast', 'run', 'inner', '--ttl', LONG_TTL, '--grace', LONG_TTL, '--', 'sh', '-c']
  const work = 'trap "" TERM; echo $$ > worker; while :; do sleep 0.02; done'
  const { run, worker } = await holding('--ttl', LONG_TTL, '--grace', '1s', '--', ...inner, work)
  run.signal('SIGKILL')
  await eventually('its end', () => !isRunning(worker))
})

test('the command killed with -9: run ends with 137, and the next one begins at once', async () => {
  const { run, worker } = await holding('--ttl', LONG_TTL, '--', 'sh', '-c', WORKER)
  const next = successor()
  process.kill(worker, 'SIGKILL')
  expect(await run.ended).toMatchObject({ exit: 137 })
  expect(await next.ended).toMatchObject({ exit: 0, stdout: expect.stringMatching(WORKER_IS_DEAD) })
})

test('run and its command killed with -9: the next one begins at once', async () => {
  const { run, worker } = await holding('--ttl', LONG_TTL, '--', 'sh', '-c', WORKER)
  run.signal('SIGKILL')
  process.kill(worker, 'SIGKILL')
  expect(await successor().ended).toMatchObject({ exit: 0, stdout: expect.stringMatching(WORKER_IS_DEAD) })
})

test('run stopped past the ttl: its command is ended before the next one begins, and run says so with 79 when it wakes', async () => {
  const { run, worker } = await holding('--ttl', '3s', '--', 'sh', '-c', WORKER)
  const next = successor('--ttl', '3s')
  run.signal('SIGSTOP')
  expect(await next.ended).toMatchObject({ exit: 0, stdout: expect.stringMatching(WORKER_IS_DEAD) })
  expect(isRunning(worker)).toBe(false)
  run.signal('SIGCONT')
  expect(await run.ended).toMatchObject({ exit: 79 })
})

test('run stopped until the guardian has begun to end the command, and woken before the ttl is over, says so with 79', async () => {
  const work = 'trap "echo told" TERM; echo $$ > worker; while :; do sleep 0.02; done'
  const { run, worker } = await holding('--ttl', '12s', '--', 'sh', '-c', work)
  run.signal('SIGSTOP')
  await eventually('TERM of the guardian', () => run.stdout.includes('told'))
  run.signal('SIGCONT')
  expect(await run.ended).toMatchObject({ exit: 79, stderr: expect.stringContaining("losing 'k'") })
  expect(isRunning(worker)).toBe(false)
})

test.each(['SIGKILL', 'SIGSTOP'] as const)(
  'run gets %s in the grace of --at-most: its command, which goes on until then, does not outlive the lock',
  async (signal) => {
    const work = 'trap "echo told >> told" TERM; echo $$ > worker; while :; do sleep 0.02; done'
    const options = ['--ttl', '6s', '--at-most', '1s', '--grace', LONG_TTL]
    const { run, worker } = await holding(...options, '--', 'sh', '-c', work)
    await eventually('TERM', () => world.lines('told').length > 0)
    await eventually('a hold longer than the ttl', async () => ((await show()).entries[0]?.heldMs ?? 0) > 8000)
    expect({ told: world.lines('told').length, works: isRunning(worker) }).toEqual({ told: 1, works: true })
    run.signal(signal)
    await eventually('its end', () => !isRunning(worker))
  },
)

test('run killed with -9: what has a process group of its own (timeout, set -m) is ended before the next one begins', async (context) => {
  if (process.platform !== 'linux') context.skip('it is found in /proc')
  const work = `timeout 600 sh -c 'trap "" TERM; ${WORKER}'; true`
  const { run, worker } = await holding('--ttl', LONG_TTL, '--grace', '1s', '--', 'sh', '-c', work)
  const next = successor()
  await eventually('a waiter', async () => (await waiting()) === 1)
  run.signal('SIGKILL')
  expect(await next.ended).toMatchObject({ exit: 0, stdout: expect.stringMatching(WORKER_IS_DEAD) })
  expect(isRunning(worker)).toBe(false)
})

test('run and its command stopped past the ttl: the command is dead before the next one begins, and never wakes up', async () => {
  const { run, worker } = await holding('--ttl', '3s', '--', 'sh', '-c', WORKER)
  run.signal('SIGSTOP')
  process.kill(worker, 'SIGSTOP')
  const beats = world.lines('beats').length
  expect(await successor('--ttl', '3s').ended).toMatchObject({ exit: 0, stdout: expect.stringMatching(WORKER_IS_DEAD) })
  run.signal('SIGCONT')
  expect(await run.ended).toMatchObject({ exit: 79 })
  expect(world.lines('beats').length).toBeLessThanOrEqual(beats + 1)
})

test('the command stopped past the ttl: run renews, no other command gets in, and the command goes on', async () => {
  const { run, worker } = await holding('--ttl', '3s', '--', 'sh', '-c', WORKER)
  process.kill(worker, 'SIGSTOP')
  // Two ttls and more, in the words of the engine: its holder has been holding for that long.
  await eventually('a long hold', async () => ((await show()).entries[0]?.heldMs ?? 0) > 6500)
  expect(await world.run('run', 'k', '-n', '--', 'true')).toMatchObject({ exit: 75 })
  const beats = world.lines('beats').length
  process.kill(worker, 'SIGCONT')
  await eventually('more beats', () => world.lines('beats').length > beats)
  run.signal('SIGTERM')
  expect(await run.ended).toMatchObject({ exit: 143 })
})

test('the guardian killed with -9: run says so, goes on, and ends its command itself when it has to', async () => {
  const run = world.start(['run', 'k', '--ttl', '3s', '--', 'sh', '-c', `trap "echo told; exit" TERM; ${WORKER}`])
  const worker = await pidIn('worker')
  for (const pid of (await processesOf(run.pid)).filter((pid) => pid !== worker && parentOf(pid) === run.pid))
    process.kill(pid, 'SIGKILL')
  await eventually('a warning', () => run.stderr.includes('the guardian was killed'))
  await eventually('a hold longer than its alarm', async () => ((await show()).entries[0]?.heldMs ?? 0) > 3500)
  expect(await world.run('evict', 'k', '--token', world.lines('beats')[0] ?? '')).toMatchObject({ exit: 0 })
  expect(await run.ended).toMatchObject({ exit: 79, stdout: 'told\n' })
  expect(isRunning(worker)).toBe(false)
})

test('nothing is left behind: no guardian, no alarm, no command', async () => {
  const { run } = await holding('--ttl', '2s', '--', 'sh', '-c', WORKER)
  // Some renewals, each of which sets the guardian's alarm again.
  await eventually('renewals', async () => ((await show()).entries[0]?.heldMs ?? 0) > 2000)
  const family = await processesOf(run.pid)
  expect(family.length).toBeGreaterThanOrEqual(2)
  run.signal('SIGTERM')
  await run.ended
  await eventually('all of them gone', () => !family.some(isRunning))
})

interface Shown {
  readonly entries: readonly { readonly state: string; readonly heldMs: number | null }[]
}

const show = (): Promise<Shown> => world.json<Shown>('show', 'k')
const waiting = async (): Promise<number> => (await show()).entries.filter(({ state }) => state === 'waiting').length

function parentOf(pid: number): number {
  const stat = isRunning(pid) ? readFileSync(`/proc/${pid}/stat`, 'utf8') : ') - 0'
  return Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1])
}

/** Everything that `pid` has started, directly or not. */
async function processesOf(pid: number): Promise<number[]> {
  const { stdout } = await world.spawn('ps', ['-A', '-o', 'pid=', '-o', 'ppid=']).ended
  const pairs = stdout
    .trim()
    .split('\n')
    .map((line) => line.trim().split(/\s+/).map(Number) as [number, number])
  const under = (parent: number): number[] =>
    pairs.filter(([, above]) => above === parent).flatMap(([child]) => [child, ...under(child)])
  return under(pid)
}
