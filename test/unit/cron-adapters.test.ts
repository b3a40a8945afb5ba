/** node-cron 4 and `@nestjs/schedule`, themselves: two hosts of each, on one memory server, by the real clock. */
import { setTimeout as sleep } from 'node:timers/promises'
import { Cron, ScheduleModule } from '@nestjs/schedule'
import { schedule } from 'node-cron'
import { describe, expect, test, vi } from 'vitest'
import { OncePerTick } from '../../src/frameworks/nest/index.ts'
import { coordinator, cron, type Run } from '../../src/recipes/cron/index.ts'
import { closedAtEnd, contextOf, decorate, NestHosts } from './nest-world.ts'

const LIMIT_MS = 20_000
const hosts = new NestHosts()

describe('node-cron', () => {
  test('runs each tick on one of two hosts, and the lock is held until the task is over', async () => {
    const ticks: number[] = []
    const skipped: unknown[] = []
    const busy: number[] = []
    let running = 0
    for (const locks of [hosts.locks(), hosts.locks()]) {
      const task = schedule(
        '* * * * * *',
        async ({ date }) => {
          ticks.push(date.getTime())
          running += 1
          await sleep(100)
          busy.push((await locks.inspect('cron:report')).entries.filter(({ state }) => state === 'held').length)
          expect(running).toBe(1)
          running -= 1
        },
        { name: 'report', distributed: true, runCoordinator: coordinator(locks) },
      )
      task.on('execution:skipped', ({ reason }) => {
        skipped.push(reason)
      })
      closedAtEnd({ close: async () => task.destroy() })
    }
    await vi.waitFor(() => expect(busy.length).toBeGreaterThanOrEqual(3), LIMIT_MS)
    expect(new Set(ticks).size, 'no tick twice').toBe(ticks.length)
    expect(new Set(skipped)).toEqual(new Set(['not-elected']))
    expect(new Set(busy)).toEqual(new Set([1]))
  })

  test('is told when a task has no name, which would be another one on each host', async () => {
    const shouldRun = coordinator(hosts.locks()).shouldRun(`${crypto.randomUUID()}:2026-11-16T12:00:00.000Z`, 30_000)
    await expect(shouldRun).rejects.toThrow(/give the task a name/)
  })
})

describe('@nestjs/schedule', () => {
  async function start(order: (cron: unknown, once: unknown) => readonly unknown[], seen: Run[]): Promise<void> {
    class Reports {
      readonly locks = hosts.locks()
      async nightly(run: Run): Promise<void> {
        expect(this, 'the method has its object').toBeInstanceOf(Reports)
        seen.push(run)
      }
    }
    const once = OncePerTick<Reports>({ locks: (service) => service.locks })
    decorate(Reports, 'nightly', ...order(Cron('* * * * * *', { timeZone: 'Europe/Berlin' }), once))
    closedAtEnd(await contextOf({ imports: [ScheduleModule.forRoot()], providers: [Reports] }))
  }

  test.each<[string, (cron: unknown, once: unknown) => readonly unknown[]]>([
    ['above @Cron', (theirs, once) => [once, theirs]],
    ['below @Cron', (theirs, once) => [theirs, once]],
  ])('@OncePerTick %s: each tick is run on one of two hosts', async (_, order) => {
    const seen: Run[] = []
    await start(order, seen)
    await start(order, seen)
    await vi.waitFor(() => expect(seen.length).toBeGreaterThanOrEqual(3), LIMIT_MS)
    const ticks = seen.map(({ tick }) => tick.getTime())
    expect(new Set(ticks).size, 'no tick twice').toBe(ticks.length)
    expect(ticks.every((at) => at % 1000 === 0)).toBe(true)
    const jobs = cron(hosts.locks())
    for await (const { name } of jobs.list()) expect(name).toBe('Reports.nightly')
    await jobs.close()
  })

  test('@OncePerTick without @Cron says so', async () => {
    class Alone {
      async job(): Promise<void> {}
    }
    const descriptor = Object.getOwnPropertyDescriptor(Alone.prototype, 'job') as PropertyDescriptor
    OncePerTick({ locks: hosts.locks() })(Alone.prototype, 'job', descriptor)
    await expect((descriptor.value as () => Promise<void>).call(new Alone())).rejects.toThrow(
      /needs @Cron\(\) beside it, at Alone.job/,
    )
  })
})
