/**
 * Workers of BullMQ in two processes, which are killed and stopped: of each user, no more jobs run at a time than
 * allowed, and each job is done.
 */
import { dirname } from 'node:path'
import { Queue } from 'bullmq'
import { Redis } from 'ioredis'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { builtModule } from '../built.ts'
import { findRedis, RedisServer } from '../servers/redis.ts'
import { describeServer } from '../servers/suite.ts'
import { type Noted, WebFleet } from './web-fleet.ts'

const LIMIT_MS = 90_000
const USERS = ['ann', 'bob', 'eve']
const JOBS = 24

/** The most jobs of one user that were inside at a time. What a process had inside is over when it is killed. */
function mostInside(noted: readonly Noted[], user: string): number {
  const inside = new Set<string>()
  let most = 0
  for (const { what, pid, job, user: whose } of noted) {
    if (what === 'killed') for (const each of inside) if (each.startsWith(`${pid} `)) inside.delete(each)
    if (whose !== user) continue
    if (what === 'begin') inside.add(`${pid} ${job}`)
    else inside.delete(`${pid} ${job}`)
    most = Math.max(most, inside.size)
  }
  return most
}

await describeServer('BullMQ', findRedis, (source) => {
  let server: RedisServer
  let connection: Redis
  beforeAll(async () => {
    server = await RedisServer.start(source)
    connection = new Redis(server.url, { maxRetriesPerRequest: null })
  })
  afterAll(async () => {
    connection.disconnect()
    await server[Symbol.asyncDispose]()
  })

  async function scene(options: object): Promise<{ fleet: WebFleet; queue: Queue }> {
    await connection.flushall()
    const fleet = new WebFleet(
      'test/engines/bullmq.child.mjs',
      dirname(builtModule('src/index.ts')),
      server.url,
      JSON.stringify(options),
    )
    return { fleet, queue: new Queue('mail', { connection }) }
  }

  async function allDone(queue: Queue, count: number): Promise<void> {
    await vi.waitFor(async () => expect(await queue.getCompletedCount()).toBe(count), { timeout: 60_000, interval: 50 })
  }

  describe.each([
    ['put back', { limit: 2, delay: '50ms' }],
    ['waiting in line', { limit: 2, wait: '30s' }],
  ])('a job whose key is busy is %s', (_, options) => {
    test('two processes, one is killed: two of each user at a time, and all are done', {
      timeout: LIMIT_MS,
    }, async () => {
      const { fleet, queue } = await scene(options)
      await using _fleet = fleet
      try {
        const [a] = await Promise.all([fleet.serve(server.url), fleet.serve(server.url)])
        const jobs = Array.from({ length: JOBS }, (_each, index) => ({
          name: 'send',
          data: { user: USERS[index % USERS.length], held: index < 2 },
        }))
        await queue.addBulk(jobs)
        await fleet.until('begin', 3)
        await fleet.kill(a)
        fleet.note({ what: 'killed', pid: a.child.pid as number })
        fleet.open()
        await allDone(queue, JOBS)
        for (const user of USERS) expect(mostInside(fleet.noted(), user), user).toBeLessThanOrEqual(2)
        expect(await queue.getFailedCount()).toBe(0)
      } finally {
        await queue.close()
      }
    })
  })

  test('a worker that was stopped for longer than its locks is told, and another does the job', {
    timeout: LIMIT_MS,
  }, async () => {
    const { fleet, queue } = await scene({ limit: 1, delay: '50ms' })
    await using _fleet = fleet
    try {
      const a = await fleet.serve(server.url)
      await queue.add('send', { user: 'ann', held: true })
      const [first] = await fleet.until('begin', 1)
      await fleet.serve(server.url)
      a.child.kill('SIGSTOP')
      const [, second] = await fleet.until('begin', 2)
      expect([first?.pid, second?.job], 'another process, the same job').toEqual([a.child.pid, first?.job])
      expect(second?.pid).not.toBe(a.child.pid)
      expect(BigInt(second?.fence as string), 'a higher token').toBeGreaterThan(BigInt(first?.fence as string))
      a.child.kill('SIGCONT')
      const [told] = await fleet.until('aborted', 1)
      expect(told?.pid).toBe(a.child.pid)
      fleet.open()
      await allDone(queue, 1)
      const [job] = await queue.getCompleted()
      expect(job?.returnvalue, 'the result of the second one').toBe(second?.fence)
    } finally {
      await queue.close()
    }
  })
})
