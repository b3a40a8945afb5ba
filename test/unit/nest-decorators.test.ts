/** What the decorators of `holdfast/nest` leave as it was, in whatever order they are written; and `@Once`. */
import { SetMetadata, type Type } from '@nestjs/common'
import { Cron, ScheduleModule } from '@nestjs/schedule'
import { describe, expect, test, vi } from 'vitest'
import { KeyReusedError } from '../../src/core/errors.ts'
import { currentAttempt, currentLease, Locked, locksToken, Once, OncePerTick } from '../../src/frameworks/nest/index.ts'
import type { Locks } from '../../src/locks.ts'
import { cron, type PastRun, type Run } from '../../src/recipes/cron/index.ts'
import { closedAtEnd, contextOf, decorate, keptLog, NestHosts } from './nest-world.ts'
import { gate } from './world.ts'

const hosts = new NestHosts()

describe('metadata of other decorators', () => {
  const Mark = SetMetadata('mark', 'noted')
  const inOrders: readonly [string, (ours: unknown, theirs: unknown) => readonly unknown[]][] = [
    ['above', (ours, theirs) => [ours, theirs]],
    ['below', (ours, theirs) => [theirs, ours]],
  ]

  test.each(inOrders)('is at the method that is called, with @Locked and @Once %s', (_, order) => {
    for (const ours of [Locked('a'), Once('a')]) {
      class Orders {
        async ship(_id: string, _other: string): Promise<void> {}
      }
      decorate(Orders, 'ship', ...order(ours, Mark))
      expect(Reflect.getMetadata('mark', Orders.prototype.ship)).toBe('noted')
      expect([Orders.prototype.ship.name, Orders.prototype.ship.length]).toEqual(['ship', 2])
    }
  })

  test.each<[string, (theirs: unknown, tick: unknown, lock: unknown) => readonly unknown[]]>([
    ['@Cron @Locked @OncePerTick', (theirs, tick, lock) => [theirs, lock, tick]],
    ['@Locked @OncePerTick @Cron', (theirs, tick, lock) => [lock, tick, theirs]],
    ['@OncePerTick @Cron @Locked', (theirs, tick, lock) => [tick, theirs, lock]],
  ])('%s: each tick is run on one of two hosts, under the lock', async (_, order) => {
    const ticks: number[] = []
    class Reports {
      async nightly(run: Run): Promise<void> {
        expect(currentLease().key).toBe('reports')
        ticks.push(run.tick.getTime())
      }
    }
    decorate(
      Reports,
      'nightly',
      ...order(Cron('* * * * * *', { timeZone: 'Europe/Berlin' }), OncePerTick(), Locked('reports')),
    )
    for (const _host of ['a', 'b'])
      closedAtEnd(await contextOf({ imports: [ScheduleModule.forRoot(), hosts.module], providers: [Reports] }))
    await vi.waitFor(() => expect(ticks.length).toBeGreaterThanOrEqual(2), 20_000)
    expect(new Set(ticks).size, 'no tick twice').toBe(ticks.length)
    const listed: unknown[] = []
    const jobs = cron(hosts.locks())
    for await (const { name, schedule } of jobs.list()) listed.push([name, schedule])
    expect(listed).toEqual([['Reports.nightly', '* * * * * * (Europe/Berlin)']])
  })
})

test('a tick that comes while the application ends is left to another host, and is no error', async () => {
  let runs = 0
  class Reports {
    async nightly(_run?: Run): Promise<void> {
      runs += 1
    }
  }
  decorate(Reports, 'nightly', Cron('0 3 * * *'), OncePerTick())
  const ending = await hosts.application(Reports)
  await ending.get<Locks>(locksToken()).drain()
  expect([await ending.get(Reports).nightly(), runs]).toEqual([undefined, 0])
})

describe('a run that goes on when the application ends', () => {
  /** The method begins at the next second. Answers the log of the application when it has ended, and the history. */
  async function ended(work: (run: Run) => Promise<unknown>): Promise<{ lines: string[]; runs: PastRun[] }> {
    const begun = gate()
    class Reports {
      async nightly(run: Run): Promise<void> {
        begun.open()
        await work(run)
      }
    }
    decorate(Reports, 'nightly', Cron('* * * * * *'), OncePerTick())
    const imports = [ScheduleModule.forRoot(), hosts.moduleWith({ grace: '50ms', callTimeout: '200ms' })]
    const { lines, logger } = keptLog()
    const app = await contextOf({ imports, providers: [Reports] }, logger)
    await begun.opened
    await app.close()
    const locks = hosts.locks()
    const runs: PastRun[] = []
    for await (const run of cron(locks).history('Reports.nightly')) runs.push(run)
    return { lines, runs }
  }

  /** Throws when its signal aborts. */
  async function heeding({ signal }: Run): Promise<void> {
    const told = gate()
    signal.addEventListener('abort', told.open)
    await told.opened
    throw new Error('half of it is done', { cause: signal.reason })
  }

  test('and stops when it is told to is one line of the log', async () => {
    const { lines, runs } = await ended(heeding)
    expect(lines).toEqual([expect.stringMatching(/^warn OncePerTick: Reports\.nightly of .*Z was stopped/)])
    expect(runs).toMatchObject([{ outcome: 'stopped', error: 'half of it is done' }])
  })

  test('and does not heed its signal is one line as well', async () => {
    const late = gate()
    const { lines, runs } = await ended(() => late.opened)
    late.open()
    await vi.waitFor(() => expect(lines).toHaveLength(1), 20_000)
    expect(lines).toEqual([expect.stringMatching(/^warn OncePerTick: Reports\.nightly of .*Z did not stop in time/)])
    expect(runs).toMatchObject([{ outcome: 'lost' }])
  })

  test('and fails by itself is an error', async () => {
    const { lines, runs } = await ended(async () => {
      throw new Error('no disk')
    })
    expect(lines).toEqual([expect.stringMatching(/^error Scheduler: .*no disk/)])
    expect(runs).toMatchObject([{ outcome: 'failed' }])
  })
})

describe('@Once', () => {
  interface Payment {
    readonly tenant: string
    readonly key: string
    readonly cents: number
  }

  test('runs once for each key and scope, and answers what is stored', async () => {
    const charges: string[] = []
    class Payments {
      async pay({ cents }: Payment): Promise<object> {
        const attempt = currentAttempt()
        charges.push(attempt.id)
        return { cents, id: await attempt.step('charge', async () => attempt.id) }
      }
    }
    decorate(
      Payments,
      'pay',
      Once('{0.key}', { scope: '{0.tenant}', fingerprint: (payment: Payment) => payment, keep: '1h' }),
    )
    const one = (await hosts.application(Payments)).get(Payments)
    const two = (await hosts.application(Payments)).get(Payments)
    const payment = { tenant: 'acme', key: 'k', cents: 5 }
    const answers = await Promise.all([one, two, one].map((payments) => payments.pay(payment)))
    expect(new Set(answers.map((each) => JSON.stringify(each)))).toEqual(
      new Set([JSON.stringify({ cents: 5, id: charges[0] })]),
    )
    expect(charges.length).toBe(1)
    await two.pay({ ...payment, tenant: 'other' })
    expect(charges.length, 'another scope is another payment').toBe(2)
    await expect(one.pay({ ...payment, cents: 6 })).rejects.toThrow(KeyReusedError)
    expect(() => currentAttempt()).toThrow('currentAttempt() is for what runs inside of a @Once() method')
  })

  test('takes no two keys for one, and no two methods', async () => {
    const seen: string[] = []
    class Mails {
      async send(...args: string[]): Promise<void> {
        seen.push(args.join(' + '))
      }
      async post(...args: string[]): Promise<void> {
        seen.push(args.join(' + '))
      }
    }
    for (const name of ['send', 'post']) decorate(Mails, name, Once('{0}:{1}'))
    const mails = (await hosts.application(Mails)).get(Mails)
    await mails.send('a:b', 'c')
    await mails.send('a', 'b:c')
    await mails.post('a', 'b:c')
    await mails.post('a', 'b:c')
    expect(seen).toEqual(['a:b + c', 'a + b:c', 'a + b:c'])
  })
})

describe('what can never work is told when the application starts', () => {
  class Job {
    async work(): Promise<void> {}
  }
  const job = (...written: readonly unknown[]): Type => {
    class Made extends Job {
      override async work(): Promise<void> {}
    }
    decorate(Made, 'work', ...written)
    return Made
  }

  test.each<[string, Type, string]>([
    ['no @Cron', job(OncePerTick()), '@OncePerTick() needs @Cron() beside it, at Made.work'],
    ['no pattern', job(Cron('at noon'), OncePerTick()), "the schedule of 'Made.work' cannot be read"],
    ['no duration', job(Cron('0 3 * * *'), OncePerTick({ grace: 'soon' as '5s' })), 'grace'],
    ['kept for less than a ttl', job(Once('a', { keep: '1s' })), 'keep must be at least the ttl of 8000 ms'],
  ])('%s', async (_, provider, message) => {
    await expect(hosts.application(provider)).rejects.toThrow(message)
  })

  test('a class keeps its own hook, and that of its parent', async () => {
    const called: string[] = []
    class Parent {
      async onModuleInit(): Promise<void> {
        called.push('parent')
      }
    }
    class Own extends Parent {
      override async onModuleInit(): Promise<void> {
        called.push('own')
      }
      async work(): Promise<void> {}
    }
    class Inheriting extends Parent {
      async work(): Promise<void> {}
    }
    decorate(Own, 'work', Once('a'))
    decorate(Inheriting, 'work', Once('a'))
    await hosts.application(Own, Inheriting)
    expect(called.toSorted()).toEqual(['own', 'parent'])
  })
})
