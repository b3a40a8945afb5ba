/** ls, show, watch, evict and doctor, for people and as JSON. */
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs'
import { hostname } from 'node:os'
import { dirname, join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { eventually, type Running, World } from './holdfast.ts'

let world: World
beforeEach(() => {
  world = new World()
})
afterEach(() => world[Symbol.asyncDispose]())

interface Shown {
  readonly entries: readonly {
    readonly state: string
    readonly token: string
    readonly pid: number
    readonly evicted: boolean
  }[]
}

const show = (key: string): Promise<Shown> => world.json<Shown>('show', key)

async function holder(key: string, ...options: string[]): Promise<Running> {
  const run = world.start(['run', key, ...options, '--', 'sleep', '60'])
  await eventually('a holder', async () => (await show(key)).entries.some(({ pid }) => pid === run.pid))
  return run
}

const MS = expect.any(Number)
const TIME = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/)
const TOKEN = expect.stringMatching(/^\d+$/)

test('ls lists what is held or waited for, in order of the keys', async () => {
  expect(await world.run('ls')).toMatchObject({ exit: 0, stdout: '' })
  expect(await world.json('ls')).toEqual({ holdfast: 1, command: 'ls', prefix: '', lines: [] })
  await Promise.all([holder('b'), holder('a:2'), holder('a:1')])
  await holder('b')
  const a = [
    { key: 'a:1', held: 1, waiting: 0 },
    { key: 'a:2', held: 1, waiting: 0 },
  ]
  expect(await world.json('ls')).toMatchObject({ lines: [...a, { key: 'b', held: 1, waiting: 1 }] })
  expect(await world.json('ls', 'a:')).toEqual({ holdfast: 1, command: 'ls', prefix: 'a:', lines: a })
  expect((await world.run('ls', 'b')).stdout).toBe('HELD  WAITING  KEY\n1     1        b\n')
})

test('ls -l tells who has held for longest, and how long others have waited, the longest hold first', async () => {
  const first = await holder('b')
  await holder('a')
  const waiter = await holder('b')
  const { lines } = await world.json<{ lines: readonly { key: string; oldestHoldMs: number }[] }>('ls', '--long')
  const who = { holder: `${hostname()}:${first.pid} sleep 60`, host: hostname(), pid: first.pid, command: 'sleep 60' }
  const [b, a] = lines
  expect(b).toEqual({ key: 'b', held: 1, waiting: 1, oldestHoldMs: MS, since: TIME, oldestWaitMs: MS, ...who })
  expect(a).toMatchObject({ key: 'a', held: 1, waiting: 0, oldestWaitMs: null })
  expect(b?.oldestHoldMs).toBeGreaterThan(a?.oldestHoldMs ?? 0)
  const { stdout } = await world.run('ls', '-l')
  expect(stdout).toMatch(
    new RegExp(`^HELD.*HOLDER\\n1 .* b +${hostname()}:${first.pid} sleep 60\\n1 .* a +${hostname()}`),
  )
  waiter.signal('SIGTERM')
  await waiter.ended
})

test('metrics prints gauges of the lines, by class, for Prometheus', async () => {
  expect((await world.run('metrics')).stdout).toMatch(/^holdfast_line_unsampled\{holdfast_engine="sqlite"\} 0$/m)
  await holder('order:1')
  await Promise.all([holder('order:2'), holder('nightly')])
  await holder('order:2')
  const value = (text: string, name: string): string | undefined =>
    new RegExp(`^holdfast_line_${name}\\{holdfast_engine="sqlite",holdfast_class="order:\\*"\\} (.+)$`, 'm').exec(
      text,
    )?.[1]
  const { stdout } = await world.run('metrics', 'order:')
  expect(['busy', 'held', 'waiting', 'longest'].map((name) => value(stdout, name))).toEqual(['2', '2', '1', '1'])
  expect(Number(value(stdout, 'oldest_hold_seconds'))).toBeGreaterThan(0)
  expect(stdout).not.toContain('nightly')
  expect((await world.run('metrics')).stdout).toContain('holdfast_class="nightly"')
  expect(await world.json('metrics', 'order:', '--most', '1')).toMatchObject({
    lines: [{ key: 'order:2' }],
    unsampled: 1,
  })
})

test('show tells who holds: host, pid, command, token, since when, for how long, and the line in order', async () => {
  const first = await holder('k', '--ttl', '20s')
  const second = await holder('k', '--shared')
  const common = {
    host: hostname(),
    command: 'sleep 60',
    weight: 1,
    token: TOKEN,
    remainingMs: MS,
    ageMs: MS,
    since: TIME,
    evicted: false,
  }
  expect(await show('k')).toEqual({
    holdfast: 1,
    command: 'show',
    key: 'k',
    entries: [
      {
        ...common,
        state: 'held',
        holder: `${hostname()}:${first.pid} sleep 60`,
        pid: first.pid,
        limit: 1,
        ttlMs: 20000,
        heldMs: MS,
      },
      {
        ...common,
        state: 'waiting',
        holder: `${hostname()}:${second.pid} sleep 60`,
        pid: second.pid,
        limit: null,
        ttlMs: 30000,
        heldMs: null,
      },
    ],
  })
  const { stdout } = await world.run('show', 'k')
  const [, , heldRow, waitingRow] = stdout.split('\n')
  expect(heldRow).toMatch(new RegExp(`^held +\\d+ +${hostname()} +${first.pid} .*sleep 60$`))
  expect(waitingRow).toMatch(new RegExp(`^waiting +\\d+ +${hostname()} +${second.pid} .* read +sleep 60$`))
  expect(await world.run('show', 'other')).toMatchObject({ exit: 0, stdout: 'other: nobody holds it, nobody waits\n' })
})

test('what others wrote cannot command the terminal', async () => {
  const key = 'k\x1b[2J'
  const run = world.start(['run', key, '--', 'sh', '-c', 'exec sleep 60 # \x1b]0;title\x07'])
  await eventually('a holder', async () => (await show(key)).entries.length === 1)
  for (const args of [['ls'], ['show', key]])
    expect((await world.run(...args)).stdout.replaceAll('\n', '')).not.toMatch(/\p{Cc}/u)
  run.signal('SIGTERM')
  await run.ended
})

test('watch tells every change, one object in a line', async () => {
  const watch = world.start(['watch', 'k', '--json', '--count', '4'])
  const changes = (): Shown[] =>
    watch.stdout
      .split('\n')
      .slice(0, -1)
      .map((line) => JSON.parse(line) as Shown)
  await eventually('a first look', () => changes().length === 1)
  const first = await holder('k')
  await eventually('a holder', () => changes().length === 2)
  const second = world.start(['run', 'k', '--', 'sleep', '60'])
  await eventually('a waiter', () => changes().length === 3)
  first.signal('SIGTERM')
  expect(await watch.ended).toMatchObject({ exit: 0 })
  expect(changes().map(({ entries }) => entries.map(({ state, pid }) => [state, pid]))).toEqual([
    [],
    [['held', first.pid]],
    [
      ['held', first.pid],
      ['waiting', second.pid],
    ],
    [['held', second.pid]],
  ])
})

test('watch tells that a holder was evicted while it is still at work', async () => {
  const work = 'trap "" TERM; echo $HOLDFAST_TOKEN > token; while [ ! -e go ]; do sleep 0.02; done'
  const run = world.start(['run', 'k', '--grace', '10s', '--', 'sh', '-c', work])
  const token = await eventually('a token', () => world.lines('token')[0])
  const watch = world.start(['watch', 'k', '--json', '--count', '2'])
  await eventually('a first look', () => watch.stdout.includes('\n'))
  await world.run('evict', 'k', '--token', token)
  expect(await watch.ended).toMatchObject({ exit: 0 })
  const looks = watch.stdout
    .trim()
    .split('\n')
    .map((look) => JSON.parse(look) as Shown)
  expect(looks.map(({ entries }) => entries.map(({ state, evicted }) => [state, evicted]))).toEqual([
    [['held', false]],
    [['held', true]],
  ])
  await world.run('run', 'other', '--', 'touch', 'go')
  expect(await run.ended).toMatchObject({ exit: 79 })
})

test('watch ends quietly with Ctrl-C', async () => {
  const watch = world.start(['watch', 'k'])
  await eventually('a first look', () => watch.stdout.includes('nobody'))
  watch.signal('SIGINT')
  expect(await watch.ended).toMatchObject({ exit: 0, stderr: '' })
})

test('watch ends when no reader is left: the next change finds that out', async () => {
  const piped = world.spawn('sh', ['-c', 'holdfast watch k --json | head -1; echo over'])
  await eventually('a first look', () => piped.stdout.includes('\n'))
  await eventually('its end', async () => {
    await world.run('run', 'k', '--', 'true')
    return piped.stdout.endsWith('over\n')
  })
  expect(await piped.ended).toMatchObject({ exit: 0, stderr: '' })
})

test('evict takes it away, and refuses a token that has moved on', async () => {
  const run = await holder('k', '--ttl', '3s')
  const token = (await show('k')).entries[0]?.token as string
  const wrong = String(BigInt(token) - 1n)
  expect(await world.run('evict', 'k', '--token', wrong)).toMatchObject({
    exit: 1,
    stdout: '',
    stderr: expect.stringContaining(`has ${token} held`),
  })
  expect(await show('k')).toMatchObject({ entries: [{ token }] })
  expect(await world.json('evict', 'k', '--token', token)).toEqual({
    holdfast: 1,
    command: 'evict',
    key: 'k',
    token,
    how: 'expire',
    evicted: true,
  })
  expect(await run.ended).toMatchObject({ exit: 79 })
  expect(await world.run('run', 'k', '--', 'true')).toMatchObject({ exit: 0 })
  expect(await world.run('evict', 'k', '--token', token)).toMatchObject({ exit: 1 })
})

test('evict says that the holder is told, and that the key is free as soon as it has stopped', async () => {
  const { pid } = await holder('k')
  const [entry] = (await show('k')).entries
  const { stdout } = await world.run('evict', 'k', '--token', entry?.token ?? '')
  const told = `${hostname()} pid ${pid} (sleep 60) is told to stop; the key is free as soon as it has, in `
  expect(stdout).toContain(`evicted token ${entry?.token} from 'k': ${told}`)
})

test('evict says that the token was that of a waiter, and who still holds', async () => {
  const run = await holder('k', '--ttl', '60s')
  const next = world.start(['run', 'k', '--', 'true'])
  const waiter = await eventually('a waiter', async () => (await show('k')).entries[1]?.token)
  const held = (await show('k')).entries[0]?.token as string
  expect(await world.run('evict', 'k', '--token', waiter)).toMatchObject({
    exit: 0,
    stdout: expect.stringMatching(new RegExp(`: it waited; .* still holds it, with token ${held}`)),
  })
  await next.ended
  run.signal('SIGTERM')
  await run.ended
})

test('evict --now lets the next one in at once', async () => {
  const run = await holder('k', '--ttl', '3s')
  const token = (await show('k')).entries[0]?.token as string
  const next = world.start(['run', 'k', '--', 'true'])
  expect(await world.json('evict', 'k', '--token', token, '--now')).toMatchObject({ how: 'now', evicted: true })
  expect(await next.ended).toMatchObject({ exit: 0 })
  expect(await run.ended).toMatchObject({ exit: 79 })
})

test('run --json tells on stderr how it went; stdout stays the command’s', async () => {
  const ran = world.start(['run', 'k', '--json', '--', 'sh', '-c', 'echo out; exit 3'])
  const { stdout, stderr } = await ran.ended
  expect(stdout).toBe('out\n')
  expect(JSON.parse(stderr)).toEqual({
    holdfast: 1,
    command: 'run',
    key: 'k',
    outcome: 'ran',
    exit: 3,
    signal: null,
    token: TOKEN,
    holder: expect.stringContaining(`:${ran.pid} sh -c`),
    waitedMs: MS,
    heldMs: MS,
  })
  await holder('k')
  const busy = await world.run('run', 'k', '-n', '--json', '--', 'true')
  expect(JSON.parse(busy.stderr)).toMatchObject({ holdfast: 1, command: 'run', key: 'k', outcome: 'busy', exit: 75 })
  const waited = await world.run('run', 'k', '--wait', '1s', '--json', '--', 'true')
  expect(JSON.parse(waited.stderr)).toMatchObject({ holdfast: 1, command: 'run', error: { kind: 'waited' }, exit: 124 })
})

test('-v says which engine and file, who is waited for, and when it is ours', async () => {
  const first = world.start(['run', 'k', '--', 'sh', '-c', 'while [ ! -e go ]; do sleep 0.02; done'])
  await eventually('a holder', async () => (await show('k')).entries.length === 1)
  const second = world.start(['run', 'k', '-v', '--', 'true'])
  await eventually('its remark', () => second.stderr.includes(`held by ${hostname()} pid ${first.pid}`))
  world.write('go', '')
  const { stderr } = await second.ended
  expect(stderr).toContain(`engine sqlite, file ${world.path('locks.db')}`)
  expect(stderr).toMatch(/holding 'k', token \d+/)
})

interface Diagnosis {
  readonly ok: boolean
  readonly checks: readonly {
    readonly name: string
    readonly status: string
    readonly finding: string
    readonly todo: string | null
  }[]
}

const statusOf = ({ checks }: Diagnosis, name: string): string | undefined =>
  checks.find((check) => check.name === name)?.status

test('doctor: all is well', async () => {
  const diagnosis = await world.json<Diagnosis>('doctor')
  expect(diagnosis).toMatchObject({ holdfast: 1, command: 'doctor', engine: 'sqlite', url: world.url, ok: true })
  expect(diagnosis.checks.filter(({ status }) => status !== 'ok')).toEqual([])
  for (const { todo } of diagnosis.checks) expect(todo).toBe(null)
  for (const name of ['node', 'reachable', 'round trip', 'verbs', 'hand-off', 'file', 'file system', 'version'])
    expect(statusOf(diagnosis, name)).toBe('ok')
  expect((await world.run('doctor')).exit).toBe(0)
  expect(await world.json('ls')).toMatchObject({ lines: [] })
})

test('doctor: an engine that cannot be used is a failure with what to do about it', async () => {
  mkdirSync(world.path('folder'))
  const ended = await world.run('doctor', '--json', '--url', `sqlite:${world.path('folder')}`)
  expect(ended.exit).toBe(1)
  expect(JSON.parse(ended.stdout)).toMatchObject({
    ok: false,
    checks: expect.arrayContaining([
      expect.objectContaining({ name: 'reachable', status: 'fail', todo: expect.any(String) }),
    ]),
  })
})

test('doctor: warns of a file that others can write, and of a second state folder', async () => {
  await world.run('run', 'k', '--', 'true')
  chmodSync(world.path('locks.db'), 0o666)
  expect(statusOf(await world.json<Diagnosis>('doctor'), 'file')).toBe('warn')
  // The shell has XDG_STATE_HOME, the cron job of the same user has not.
  const plain = join(world.folder, '.local', 'state', 'holdfast', 'locks.db')
  mkdirSync(dirname(plain), { recursive: true })
  writeFileSync(plain, '')
  const { stdout } = await world.start(['doctor', '--json'], { HOLDFAST_URL: '', XDG_STATE_HOME: world.path('xdg') })
    .ended
  expect(statusOf(JSON.parse(stdout) as Diagnosis, 'state folders')).toBe('warn')
  expect(stdout).toContain(plain)
})
