/**
 * Fastify, Express and Hono themselves, each in two processes, which are killed and told to end; on SQLite, and Fastify
 * on Redis, too.
 */
import { dirname, join } from 'node:path'
import { beforeAll, describe, expect, test } from 'vitest'
import { builtModule } from '../built.ts'
import { findRedis, RedisServer } from '../servers/redis.ts'
import { describeServer } from '../servers/suite.ts'
import { WebFleet, type WebServer } from './web-fleet.ts'
import {
  expectBusyToBeTold,
  expectGoodEnd,
  expectLossToBeTold,
  expectOneAtATime,
  expectTakeover,
  post,
} from './web-scenes.ts'

const LIMIT_MS = 90_000
let modules: string

beforeAll(() => {
  modules = dirname(builtModule('src/index.ts'))
})

/** Three an hour, whichever process is asked. */
async function expectRateOfBoth([a, b]: readonly [WebServer, WebServer]): Promise<void> {
  const asked = [a, b, a, b].map((server) => post(server, 'limited'))
  const statuses = (await Promise.all(asked)).map(({ status }) => status)
  expect(statuses.toSorted((one, other) => one - other)).toEqual([200, 200, 200, 429])
}

async function expectDoor({ url }: WebServer): Promise<void> {
  const put = (token: string): Promise<Response> =>
    fetch(`${url}/accounts/7`, { method: 'PUT', headers: { 'fencing-token': token, connection: 'close' } })
  expect(await (await put('7')).text()).toBe('7')
  expect((await put('6')).status).toBe(412)
}

async function expectAll(framework: string, locksUrl: (folder: string) => string): Promise<void> {
  await using fleet = new WebFleet('test/engines/web.child.mjs', framework, modules)
  const url = locksUrl(fleet.folder)
  const [a, b] = await Promise.all([fleet.serve(url), fleet.serve(url)])
  await expectOneAtATime(fleet, [a, b])
  await expectBusyToBeTold(fleet, [a, b])
  await expectRateOfBoth([a, b])
  await expectDoor(b)
  await expectLossToBeTold(fleet, b, url)
  await expectTakeover(fleet, a, b)
  await expectGoodEnd(fleet, b, url)
}

describe.each(['fastify', 'express', 'hono'])('%s on SQLite', (framework) => {
  test('two processes lock, take over, replay, and end in good order', { timeout: LIMIT_MS }, () =>
    expectAll(framework, (folder) => `sqlite:${join(folder, 'locks.db')}`),
  )
})

await describeServer('fastify on Redis', findRedis, (source) => {
  test('two processes lock, take over, replay, and end in good order', { timeout: LIMIT_MS }, async () => {
    await using server = await RedisServer.start(source)
    await expectAll('fastify', () => server.url)
  })
})
