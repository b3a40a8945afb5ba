/**
 * An application of Nest itself, in two processes, which are killed and told to end: on SQLite and on Redis. It is
 * compiled as its users compile it, strictly and with their decorators.
 */
import { execFileSync } from 'node:child_process'
import { join } from 'node:path'
import { beforeAll, describe, expect, test } from 'vitest'
import { builtModule } from '../built.ts'
import { findRedis, RedisServer } from '../servers/redis.ts'
import { describeServer } from '../servers/suite.ts'
import { WebFleet } from './web-fleet.ts'
import {
  expectBusyToBeTold,
  expectGoodEnd,
  expectLossToBeTold,
  expectOneAtATime,
  expectTakeover,
} from './web-scenes.ts'

const LIMIT_MS = 90_000
const PROGRAM = join('dist', 'nest-app', 'main.js')

beforeAll(() => {
  builtModule('src/index.ts')
  execFileSync(join('node_modules', '.bin', 'tsc'), ['-p', 'test/engines/nest-app/tsconfig.json'], { stdio: 'inherit' })
}, LIMIT_MS)

async function expectAll(locksUrl: (folder: string) => string): Promise<void> {
  await using fleet = new WebFleet(PROGRAM)
  const url = locksUrl(fleet.folder)
  const [a, b] = await Promise.all([fleet.serve(url), fleet.serve(url)])
  expect(await (await fetch(`${b.url}/ready`)).json()).toEqual({ locks: { status: 'up', ms: expect.any(Number) } })
  await expectOneAtATime(fleet, [a, b])
  await expectBusyToBeTold(fleet, [a, b])
  await expectLossToBeTold(fleet, b, url)
  await expectTakeover(fleet, a, b)
  await fleet.until('tick', 2)
  await expectGoodEnd(fleet, b, url)
  const ticks = fleet.noted('tick').map(({ tick }) => tick)
  expect(new Set(ticks).size, 'no tick twice').toBe(ticks.length)
}

describe('Nest on SQLite', () => {
  test('two processes lock, take over, replay, and end in good order', { timeout: LIMIT_MS }, () =>
    expectAll((folder) => `sqlite:${join(folder, 'locks.db')}`),
  )
})

await describeServer('Nest on Redis', findRedis, (source) => {
  test('two processes lock, take over, replay, and end in good order', { timeout: LIMIT_MS }, async () => {
    await using server = await RedisServer.start(source)
    await expectAll(() => server.url)
  })
})
