/**
 * Hosts that end in the middle of a run: by SIGTERM, which is a deployment, and by KILL, which is a crash. On SQLite
 * and on Redis.
 */
import { once } from 'node:events'
import { dirname, join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { connect } from '../../src/connect.ts'
import { cron, type PastRun } from '../../src/recipes/cron/index.ts'
import { builtModule } from '../built.ts'
import { findRedis, RedisServer } from '../servers/redis.ts'
import { describeServer } from '../servers/suite.ts'
import { type Noted, WebFleet } from './web-fleet.ts'

const LIMIT_MS = 90_000

function fleetOf(how: 'jobs' | 'ticks'): WebFleet {
  return new WebFleet('test/engines/cron-host.child.mjs', dirname(builtModule('src/index.ts')), how)
}

async function historyOf(url: string): Promise<PastRun[]> {
  await using locks = await connect(url)
  const runs: PastRun[] = []
  for await (const run of cron(locks).history('report')) runs.push(run)
  return runs
}

const shown = ({ what, tick, attempt }: Noted): string => `${what} ${String(tick)} ${String(attempt)}`

async function expectStopped(locksUrl: (folder: string) => string): Promise<void> {
  await using fleet = fleetOf('jobs')
  const url = locksUrl(fleet.folder)
  const hosts = await Promise.all([fleet.serve(url), fleet.serve(url)])
  const [begun] = (await fleet.until('begin', 1)) as [Noted]
  const host = hosts.find(({ child }) => child.pid === begun.pid)
  if (host === undefined) throw new Error(`no host of ours has begun ${begun.pid}`)
  const gone = once(host.child, 'exit')
  host.child.kill('SIGTERM')
  expect(await gone).toEqual([null, 'SIGTERM'])
  fleet.open()
  await fleet.until('end', 2)
  const tick = Number(begun.tick)
  expect(fleet.noted().slice(0, 4).map(shown)).toEqual([
    `begin ${tick} 1`,
    `end ${tick} 1`,
    `begin ${tick} 2`,
    `end ${tick} 2`,
  ])
  expect(fleet.noted('error')).toEqual([])
  const outcomes = (await historyOf(url)).filter((run) => run.tick.getTime() === tick).map(({ outcome }) => outcome)
  expect(outcomes.at(-1)).toBe('stopped')
}

async function expectNoTickLost(locksUrl: (folder: string) => string): Promise<void> {
  await using fleet = fleetOf('ticks')
  const url = locksUrl(fleet.folder)
  const host = await fleet.serve(url)
  const [begun] = (await fleet.until('begin', 1)) as [Noted]
  await fleet.kill(host)
  fleet.open()
  const { pid } = (await fleet.serve(url)).child
  await fleet.until('end', 4)
  const after = fleet.noted().filter((one) => one.pid === pid)
  const asked = after.filter(({ what }) => what === 'ask').map(({ tick }) => tick)
  const ran = after.filter(({ what }) => what === 'begin')
  expect(ran[0]).toMatchObject({ tick: begun.tick, attempt: 2 })
  expect(
    ran.slice(1, 4).map(({ tick }) => tick),
    'and then each tick that was asked for',
  ).toEqual(asked.slice(0, 3))
}

const onSqlite = (folder: string): string => `sqlite:${join(folder, 'locks.db')}`
const STOPPED = 'a run of a host that gets SIGTERM is stopped, and the next host runs it again at once'
const NO_TICK_LOST = 'a single host that was killed runs what it left behind, and each tick after it'

describe('hosts with jobs on SQLite', () => {
  test(STOPPED, { timeout: LIMIT_MS }, () => expectStopped(onSqlite))
  test(NO_TICK_LOST, { timeout: LIMIT_MS }, () => expectNoTickLost(onSqlite))
})

await describeServer('hosts with jobs on Redis', findRedis, (source) => {
  test(STOPPED, { timeout: LIMIT_MS }, async () => {
    await using server = await RedisServer.start(source)
    await expectStopped(() => server.url)
  })

  test(NO_TICK_LOST, { timeout: LIMIT_MS }, async () => {
    await using server = await RedisServer.start(source)
    await expectNoTickLost(() => server.url)
  })
})
