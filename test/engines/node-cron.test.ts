/**
 * node-cron itself, in two processes, of which one is killed in the middle of its task: no tick is begun twice, no two
 * runs overlap, and the other process goes on.
 */
import { rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { describe, expect, test, vi } from 'vitest'
import { builtModule } from '../built.ts'
import { findRedis, RedisServer } from '../servers/redis.ts'
import { describeServer } from '../servers/suite.ts'
import { type Noted, WebFleet } from './web-fleet.ts'

const LIMIT_MS = 90_000
const WAIT = { timeout: 30_000, interval: 20 }

/** The run that has begun and not ended. A process that was killed has none. */
function insideOf(noted: readonly Noted[]): Noted | undefined {
  let inside: Noted | undefined
  for (const one of noted) {
    if (one.what === 'begin') {
      expect(inside, 'no two runs at a time').toBe(undefined)
      inside = one
    } else if (one.pid === inside?.pid) inside = undefined
  }
  return inside
}

async function expectEachTickOnce(locksUrl: (folder: string) => string): Promise<void> {
  await using fleet = new WebFleet('test/engines/node-cron.child.mjs', dirname(builtModule('src/index.ts')))
  const url = locksUrl(fleet.folder)
  const held = join(fleet.folder, 'journal.held')
  const hosts = await Promise.all([fleet.serve(url), fleet.serve(url)])
  await fleet.until('end', 2)
  writeFileSync(held, '')
  const begun = await vi.waitFor(() => insideOf(fleet.noted()) ?? Promise.reject(new Error('no run has begun')), WAIT)
  const victim = hosts.find(({ child }) => child.pid === begun.pid)
  if (victim === undefined) throw new Error(`no host of ours has begun ${begun.pid}`)
  await fleet.kill(victim)
  fleet.note({ what: 'killed', pid: begun.pid })
  const before = fleet.noted('end').length
  rmSync(held)
  const after = (await fleet.until('end', before + 2)).slice(before)
  expect(new Set(after.map(({ pid }) => pid)).has(begun.pid), 'the other goes on').toBe(false)
  const ticks = fleet.noted('begin').map(({ tick }) => tick)
  insideOf(fleet.noted())
  expect(new Set(ticks).size, 'no tick twice').toBe(ticks.length)
}

describe('node-cron on SQLite', () => {
  test('two processes, one is killed in the middle', { timeout: LIMIT_MS }, () =>
    expectEachTickOnce((folder) => `sqlite:${join(folder, 'locks.db')}`),
  )
})

await describeServer('node-cron on Redis', findRedis, (source) => {
  test('two processes, one is killed in the middle', { timeout: LIMIT_MS }, async () => {
    await using server = await RedisServer.start(source)
    await expectEachTickOnce(() => server.url)
  })
})
