/** Jobs of a fleet: who runs which tick, and what becomes of runs that are not ended. */
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { LeaseLostError } from '../../src/core/errors.ts'
import type { Lease } from '../../src/core/lease.ts'
import { VALUE_LIMIT_BYTES } from '../../src/core/store.ts'
import { type JobRecord, withBeginning, withEnding } from '../../src/recipes/cron/job-record.ts'
import { type CronHost, CronWorld, clockTime, described, historyOf } from './cron-world.ts'
import { type Gate, gate } from './world.ts'

let world: CronWorld
beforeEach(() => {
  world = new CronWorld()
})
afterEach(() => world.close())

describe('a tick', () => {
  test('is run by one host, which has a token, and the others need one command to see it', async () => {
    const runs: string[] = []
    const tokens: (bigint | null)[] = []
    const hosts = Array.from({ length: 8 }, () => world.host())
    for (const { jobs } of hosts) {
      jobs.add('job', '0 * * * *', (run) => {
        runs.push(clockTime(run.tick))
        tokens.push(run.token)
      })
    }
    await world.clock.advance('59m')
    for (const { calls } of hosts) calls.length = 0
    await world.clock.advance('2h')
    expect(runs).toEqual(['13:00:00', '14:00:00'])
    expect(tokens[1]).toBeGreaterThan(tokens[0] as bigint)
    const all = hosts.flatMap(({ calls }) => calls)
    const ofRunners = ['enter', 'leave', 'put', 'put']
    expect(all.filter((call) => call !== 'get').sort()).toEqual([...ofRunners, ...ofRunners].sort())
    expect(all.filter((call) => call === 'get').length, 'one look for each host and tick').toBe(2 * 8)
  })

  test('is as in the zone of the job, which is UTC unless given', async () => {
    const runs: string[] = []
    const { jobs } = world.host()
    jobs.add('utc', '0 13 * * *', () => runs.push(`utc ${world.time()}`))
    jobs.add('berlin', '30 13 * * *', { zone: 'Europe/Berlin' }, () => runs.push(`berlin ${world.time()}`))
    expect(jobs.next('berlin')?.toISOString()).toMatch(/T12:30:00/)
    jobs.add('never', '0 0 30 2 *', () => {})
    expect(jobs.next('never')).toBeUndefined()
    await world.clock.advance('24h')
    expect(runs).toEqual(['berlin 12:30:00', 'utc 13:00:00'])
  })

  test('can be a slot, which is the same one whenever a host was started', async () => {
    const runs: string[] = []
    await world.clock.advance('7s')
    world.host().jobs.add('job', { every: '30s' }, () => runs.push(world.time()))
    await world.clock.advance('11s')
    world.host().jobs.add('job', { every: '30s' }, () => runs.push(world.time()))
    await world.clock.advance('1m')
    expect(runs).toEqual(['12:00:30', '12:01:00'])
  })

  test('that was claimed is not run again, however late a host is, and though its run is over', async () => {
    const runs: string[] = []
    const job = (host: CronHost): void => host.jobs.add('job', '* * * * *', () => runs.push(world.time()))
    const [first, late] = [world.host(), world.host()]
    job(first)
    late.cutOff(true)
    job(late)
    await world.clock.advance('61s')
    late.cutOff(false)
    await world.clock.advance('30s')
    expect(runs).toEqual(['12:01:00'])
    expect(late.calls, 'it did look').toContain('get')
    expect(late.errors).toHaveLength(1)
  })

  test('is run although the host that came first died before it could claim it', async () => {
    const runs: string[] = []
    const killed = world.host('killed')
    const other = world.host('other')
    killed.jobs.add('job', '0 * * * *', () => runs.push('killed'))
    other.jobs.add('job', '0 * * * *', () => runs.push(`other ${world.time()}`))
    await world.clock.advance('59m')
    const lease = await killed.locks.mutex('cron:job').acquire()
    killed.die()
    await world.clock.advance('2m')
    expect(lease.held).toBe(false)
    expect(runs, 'as soon as the lease of the dead one was over').toEqual(['other 13:00:00'])
  })
})

describe('an outage in the middle', () => {
  /** `at` the tick, or when its work ends, the server answers nothing of what is stored, for ten seconds. */
  async function outage(at: 'claim' | 'ending'): Promise<{ runs: string[]; host: CronHost }> {
    const runs: string[] = []
    const host = world.host()
    host.jobs.add('job', '0 * * * *', { takeover: 1 }, (run) => {
      runs.push(described(world.time(), run))
      if (at === 'ending') host.losePuts(true)
    })
    await world.clock.advance('59m')
    if (at === 'claim') host.losePuts(true)
    await world.clock.advance('70s')
    host.losePuts(false)
    await world.clock.advance('2m')
    return { runs, host }
  }

  test('of a claim: it was made, so the work begins when that is known', async () => {
    const { runs, host } = await outage('claim')
    expect(runs).toEqual(['13:00:10 13:00:00'])
    expect(await historyOf(host, 'job')).toMatchObject([{ outcome: 'done', attempt: 1 }])
  })

  test('of an ending: the work is not done again', async () => {
    const { runs, host } = await outage('ending')
    expect(runs).toEqual(['13:00:00 13:00:00'])
    expect(await historyOf(host, 'job')).toMatchObject([{ outcome: 'done', attempt: 1 }])
  })
})

describe('work that throws', () => {
  test('is told, and stored; the next tick is run', async () => {
    const host = world.host()
    host.jobs.add('job', '* * * * *', () => {
      throw new Error(`no disk ${'x'.repeat(300)}`)
    })
    await world.clock.advance('121s')
    expect(host.errors.map(String)).toEqual([expect.stringMatching(/no disk/), expect.stringMatching(/no disk/)])
    const [last, ...others] = await historyOf(host, 'job')
    expect(last).toMatchObject({ outcome: 'failed', attempt: 1, holder: 'host-1', error: expect.stringMatching(/…$/) })
    expect(others).toHaveLength(1)
  })

  test.each([
    ['an object without a prototype', Object.create(null), 'object'],
    ['a symbol', Symbol('no disk'), 'Symbol(no disk)'],
  ])('has ended, also if it throws %s: no other host runs the tick again', async (_, thrown, told) => {
    const runs: string[] = []
    const hosts = ['a', 'b'].map((name) => world.host(name))
    for (const { jobs } of hosts)
      jobs.add('job', '0 * * * *', { takeover: 2 }, (run) => {
        runs.push(described(world.time(), run))
        throw thrown
      })
    await world.clock.advance('61m')
    expect(runs).toHaveLength(1)
    expect(await historyOf(hosts[0] as CronHost, 'job')).toMatchObject([{ outcome: 'failed', error: told }])
  })

  test('is a warning of the process where no onError was given, and no unhandled rejection', async () => {
    const { cron } = await import('../../src/recipes/cron/index.ts')
    const warned = new Promise<Error>((resolve) => process.once('warning', resolve))
    const jobs = cron(world.host().locks)
    jobs.add('job', '* * * * *', () => Promise.reject(new Error('no disk')))
    await world.clock.advance('61s')
    expect(await warned).toMatchObject({ code: 'HOLDFAST_CRON', message: "cron job 'job': no disk" })
  })
})

describe('a host that dies in the middle of a run', () => {
  /** Whichever of three hosts runs the tick of 13:00 first is killed. */
  async function killed(takeover: number, times = 1): Promise<string[]> {
    const runs: string[] = []
    for (const name of ['a', 'b', 'c']) {
      const host = world.host(name)
      host.jobs.add('job', '0 * * * *', { takeover }, async (run) => {
        runs.push(described(world.time(), run))
        if (runs.length > times) return
        host.die()
        await new Promise(() => {})
      })
    }
    await world.clock.advance('119m')
    return runs
  }

  test('takeover: another host runs the tick again, when the lease is over, with a higher attempt', async () => {
    expect(await killed(1)).toEqual(['13:00:00 13:00:00', '13:00:30 13:00:00 attempt 2'])
    const alive = world.hosts.find(({ calls }) => calls.at(-1) === 'leave') as CronHost
    const [again, first] = await historyOf(alive, 'job')
    expect(again).toMatchObject({ outcome: 'done', attempt: 2 })
    expect(first).toMatchObject({ outcome: 'lost', attempt: 1 })
    expect(again?.token).toBeGreaterThan(first?.token as bigint)
  })

  test('no takeover: a run that has begun is not begun again', async () => {
    expect(await killed(0)).toEqual(['13:00:00 13:00:00'])
    const alive = world.hosts.find((host) => host.calls.at(-1) === 'get') as CronHost
    expect(await historyOf(alive, 'job')).toMatchObject([{ outcome: 'lost' }])
  })

  test('takeover: no more often than that', async () => {
    expect(await killed(1, 2)).toEqual(['13:00:00 13:00:00', '13:00:30 13:00:00 attempt 2'])
  })

  test('the tick after it is run, under skip as well', async () => {
    const runs: string[] = []
    for (const name of ['a', 'b']) {
      const host = world.host(name)
      host.jobs.add('job', { every: '10s' }, async (run) => {
        runs.push(described(world.time(), run))
        if (runs.length > 1) return
        host.die()
        await new Promise(() => {})
      })
    }
    await world.clock.advance('55s')
    expect(runs).toEqual(['12:00:10 12:00:10', '12:00:40 12:00:40 missed 2', '12:00:50 12:00:50'])
  })
})

describe('a run that has lost its lock', () => {
  test('is told by its signal, and cannot say that it is done', async () => {
    const host = world.host('a')
    const other = world.host('b')
    const done = gate()
    let signal: AbortSignal | undefined
    host.jobs.add('job', '0 * * * *', async (run) => {
      ;({ signal } = run)
      await done.opened
    })
    await world.clock.advance('61m')
    host.cutOff(true)
    await world.clock.advance('40s')
    expect(signal?.aborted).toBe(true)
    host.cutOff(false)
    done.open()
    await world.clock.advance('1s')
    expect(host.errors).toEqual([expect.any(LeaseLostError)])
    expect(await historyOf(other, 'job')).toMatchObject([{ outcome: 'lost' }])
  })
})

describe('closing', () => {
  /** A run that goes on until its signal aborts, or `done` is opened. */
  async function running(): Promise<{ host: CronHost; done: Gate; runs: string[] }> {
    const host = world.host()
    const done = gate()
    const runs: string[] = []
    host.jobs.add('job', '* * * * *', { takeover: 1 }, async ({ signal }) => {
      runs.push('begun')
      signal.addEventListener('abort', done.open)
      await done.opened
      runs.push(signal.aborted ? 'aborted' : 'ended')
      signal.throwIfAborted()
    })
    await world.clock.advance('61s')
    return { host, done, runs }
  }

  test('drain lets runs end, and begins nothing new', async () => {
    const { host, done, runs } = await running()
    const drained = host.jobs.drain({ grace: '10m' })
    await world.clock.advance('5m')
    done.open()
    await drained
    expect(runs).toEqual(['begun', 'ended'])
    expect(await historyOf(host, 'job')).toMatchObject([{ outcome: 'done' }])
    expect(() => host.jobs.add('other', { every: '1s' }, () => {})).toThrow(/closed/)
  })

  test('drain tells runs to stop when the grace is over', async () => {
    const { host, runs } = await running()
    const drained = host.jobs.drain()
    await world.clock.advance('5s')
    await drained
    expect(runs).toEqual(['begun', 'aborted'])
    expect(host.errors).toEqual([])
  })

  test('close tells runs to stop at once; another host takes over, if it may', async () => {
    const { host, runs } = await running()
    await host.jobs.close()
    expect(runs).toEqual(['begun', 'aborted'])
    expect(await historyOf(host, 'job')).toMatchObject([{ outcome: 'stopped' }])
    const attempts: number[] = []
    world.host().jobs.add('job', '* * * * *', { takeover: 1 }, ({ attempt }) => attempts.push(attempt))
    await world.clock.advance('10s')
    expect(attempts).toEqual([2])
  })

  test('the locks ends the jobs, and drain of the locks lets runs end', async () => {
    const { host, done, runs } = await running()
    const drained = host.locks.drain({ grace: '10m' })
    await world.clock.advance('3m')
    done.open()
    await drained
    expect(runs).toEqual(['begun', 'ended'])
  })

  test('leaves no timer behind, and nothing that keeps the process alive', async () => {
    const { host } = await running()
    expect(world.clock.alive).toBeGreaterThan(0)
    await host.jobs.close()
    await host.locks.close()
    expect(world.clock.alive).toBe(0)
    expect(world.clock.timers).toBe(0)
  })

  test('a run that does not heed its signal is not waited for without end', async () => {
    const host = world.host()
    host.jobs.add('job', '* * * * *', () => new Promise(() => {}))
    await world.clock.advance('61s')
    const closed = host.jobs.close()
    await world.clock.advance('5s')
    await closed
  })
})

test('what cannot be meant is refused where it was written', () => {
  const { jobs } = world.host()
  const work = (): void => {}
  jobs.add('job', { every: '1s' }, work)
  expect(() => jobs.add('job', { every: '1s' }, work)).toThrow(/already/)
  expect(() => jobs.add('a', '* * * *', work)).toThrow(/five, six/)
  expect(() => jobs.add('a', '* * * * *', { mised: 'all' } as never, work)).toThrow(/did you mean 'missed'/)
  expect(() => jobs.add('a', '* * * * *', { missed: 'every' as never }, work)).toThrow(/skip, last, all/)
  expect(() => jobs.add('a', '* * * * *', { overlap: 'wait' as never }, work)).toThrow(/skip, queue, replace/)
  expect(() => jobs.add('a', '* * * * *', { takeover: -1 }, work)).toThrow(/takeover/)
  expect(() => jobs.add('a', '* * * * *', {} as never)).toThrow(/as a function/)
  expect(() => jobs.next('b')).toThrow(/no job 'b'/)
})

test('jobs are listed with their last run', async () => {
  const host = world.host()
  host.jobs.add('nightly', '0 3 * * *', { zone: 'Europe/Berlin' }, () => {})
  host.jobs.add('poll', { every: '30s' }, () => {})
  await world.clock.advance('65s')
  const found = []
  for await (const job of host.jobs.list()) found.push(job)
  found.sort((a, b) => (a.name < b.name ? -1 : 1))
  expect(found).toMatchObject([
    { name: 'nightly', schedule: '0 3 * * * (Europe/Berlin)', last: undefined },
    { name: 'poll', schedule: 'every 30s', last: { outcome: 'done' } },
  ])
})

test('a record fits into the store, whatever holders are called and errors say', () => {
  const holder = '\x01'.repeat(512)
  const lease = { token: 2n ** 63n } as Lease
  let record: JobRecord | undefined
  for (let tick = 0; tick < 100; tick += 1) {
    const run = { id: 'f'.repeat(32), tick: 1e13 + tick, attempt: 1000, missed: 100, holder, startedAt: 1e13, lease }
    ;({ record } = withBeginning(record, 's'.repeat(100), run, { outcome: 'lost' }))
    const ending = { endedAt: 1e13, outcome: 'failed' as const, error: new Error('\x01'.repeat(1000)) }
    record = withEnding(record, run.id, ending)
  }
  expect(record?.runs).toHaveLength(20)
  expect(Buffer.byteLength(JSON.stringify(record))).toBeLessThan(VALUE_LIMIT_BYTES)
})
