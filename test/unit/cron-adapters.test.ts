/** node-cron 4 and `@nestjs/schedule`, themselves: two hosts of each, on one memory server, by the real clock. */
import 'reflect-metadata'
import { setTimeout as sleep } from 'node:timers/promises'
import { Module } from '@nestjs/common'
import { NestFactory } from '@nestjs/core'
import { Cron, ScheduleModule } from '@nestjs/schedule'
import { schedule } from 'node-cron'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { MemoryServer, memory } from '../../src/engines/memory/index.ts'
import { OncePerTick } from '../../src/frameworks/nest/index.ts'
import { createLocks, type Locks } from '../../src/locks.ts'
import { coordinator, cron, type Run } from '../../src/recipes/cron/index.ts'

const LIMIT_MS = 20_000
let opened: { close(): Promise<unknown> }[]
let server: MemoryServer
beforeEach(() => {
  opened = []
  server = new MemoryServer()
})
afterEach(async () => {
  for (const one of opened.reverse()) await one.close()
})

function hostLocks(): Locks {
  const locks = createLocks(memory({ server }))
  opened.push(locks)
  return locks
}

describe('node-cron', () => {
  test('runs each tick on one of two hosts, and the lock is held until the task is over', async () => {
    const ticks: number[] = []
    const skipped: unknown[] = []
    const busy: number[] = []
    let running = 0
    for (const locks of [hostLocks(), hostLocks()]) {
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
      opened.push({ close: async () => task.destroy() })
    }
    await vi.waitFor(() => expect(busy.length).toBeGreaterThanOrEqual(3), LIMIT_MS)
    expect(new Set(ticks).size, 'no tick twice').toBe(ticks.length)
    expect(new Set(skipped)).toEqual(new Set(['not-elected']))
    expect(new Set(busy)).toEqual(new Set([1]))
  })

  test('is told when a task has no name, which would be another one on each host', async () => {
    const shouldRun = coordinator(hostLocks()).shouldRun(`${crypto.randomUUID()}:2026-11-16T12:00:00.000Z`, 30_000)
    await expect(shouldRun).rejects.toThrow(/give the task a name/)
  })
})

describe('@nestjs/schedule', () => {
  /** As the compiler applies decorators: the last one first. */
  type Decorate = (target: object, key: string, descriptor: PropertyDescriptor) => unknown

  async function start(inOrder: (cron: Decorate, once: Decorate) => readonly Decorate[], seen: Run[]): Promise<void> {
    class Reports {
      readonly locks = hostLocks()
      async nightly(run: Run): Promise<void> {
        expect(this, 'the method has its object').toBeInstanceOf(Reports)
        seen.push(run)
      }
    }
    const once = OncePerTick<Reports>({ locks: (service) => service.locks }) as Decorate
    const descriptor = Object.getOwnPropertyDescriptor(Reports.prototype, 'nightly') as PropertyDescriptor
    for (const decorate of inOrder(Cron('* * * * * *', { timeZone: 'Europe/Berlin' }) as Decorate, once))
      decorate(Reports.prototype, 'nightly', descriptor)
    Object.defineProperty(Reports.prototype, 'nightly', descriptor)
    class App {}
    Module({ imports: [ScheduleModule.forRoot()], providers: [Reports] })(App)
    const app = await NestFactory.createApplicationContext(App, { logger: false })
    opened.push(app)
  }

  test.each<[string, (cron: Decorate, once: Decorate) => readonly Decorate[]]>([
    ['above @Cron', (cronFirst, once) => [cronFirst, once]],
    ['below @Cron', (cronLast, once) => [once, cronLast]],
  ])('@OncePerTick %s: each tick is run on one of two hosts', async (_, inOrder) => {
    const seen: Run[] = []
    await start(inOrder, seen)
    await start(inOrder, seen)
    await vi.waitFor(() => expect(seen.length).toBeGreaterThanOrEqual(3), LIMIT_MS)
    const ticks = seen.map(({ tick }) => tick.getTime())
    expect(new Set(ticks).size, 'no tick twice').toBe(ticks.length)
    expect(ticks.every((at) => at % 1000 === 0)).toBe(true)
    const jobs = cron(hostLocks())
    for await (const { name } of jobs.list()) expect(name).toBe('Reports.nightly')
    await jobs.close()
  })

  test('@OncePerTick without @Cron says so', async () => {
    class Alone {
      async job(): Promise<void> {}
    }
    const descriptor = Object.getOwnPropertyDescriptor(Alone.prototype, 'job') as PropertyDescriptor
    OncePerTick({ locks: hostLocks() })(Alone.prototype, 'job', descriptor)
    await expect((descriptor.value as () => Promise<void>).call(new Alone())).rejects.toThrow(
      /needs @Cron\(\) beside it, at Alone.job/,
    )
  })
})
