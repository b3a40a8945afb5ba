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

  function reportsOf(decorators: readonly unknown[], seen: Run[]): { nightly(run: Run): Promise<void> } {
    class Reports {
      async nightly(run: Run): Promise<void> {
        seen.push(run)
      }
    }
    decorate(Reports, 'nightly', ...decorators)
    return new Reports()
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

  test.each([
    ['* * * * * *', 700, 0, 'of each second that comes late is one of its own second'],
    ['* * * * * *', 980, 1000, 'of each second that comes a little early is one of the next'],
    ['*/10 * * * * *', 9_000, 0, 'of each ten seconds that comes late is one of its own'],
    ['0 * * * * *', 59_600, 60_000, 'of each minute that comes early is one of the next'],
  ])('@OncePerTick %s: a call at +%i ms %s', async (pattern, callAt, tickAt) => {
    const seen: Run[] = []
    const reports = reportsOf([Cron(pattern), OncePerTick({ locks: hosts.locks(), grace: '1h' })], seen)
    const start = Math.floor(Date.now() / 60_000 - 2) * 60_000
    const clock = vi.spyOn(Date, 'now').mockReturnValue(start + callAt)
    await (reports.nightly as unknown as () => Promise<void>)().finally(() => clock.mockRestore())
    expect(seen.map(({ tick }) => tick.getTime() - start)).toEqual([tickAt])
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
