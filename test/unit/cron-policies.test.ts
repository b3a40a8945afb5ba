/** Ticks that are missed, and ticks that come while the job runs: the policies of a job. */
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import type { Run } from '../../src/recipes/cron/index.ts'
import { type CronHost, CronWorld, clockTime, described, historyOf } from './cron-world.ts'
import { gate } from './world.ts'

let world: CronWorld
beforeEach(() => {
  world = new CronWorld()
})
afterEach(() => world.close())

describe('missed ticks', () => {
  /** Five minutes without any host. The first run is that of 12:01. */
  async function outage(missed: 'skip' | 'last' | 'all', grace?: '2m'): Promise<string[]> {
    const runs: string[] = []
    const add = ({ jobs }: CronHost): void =>
      jobs.add('job', '* * * * *', { missed, ...(grace === undefined ? {} : { grace }) }, (run) => {
        runs.push(described(world.time(), run))
      })
    const first = world.host()
    add(first)
    await world.clock.advance('90s')
    await first.jobs.close()
    await world.clock.advance('225s')
    add(world.host())
    await world.clock.advance('30s')
    await world.hosts.at(-1)?.jobs.close()
    return runs
  }

  test('skip: are not run, but for the last one if it is within the grace', async () => {
    expect(await outage('skip')).toEqual(['12:01:00 12:01:00', '12:05:15 12:05:00 missed 3'])
  })

  test('last: the last one is run', async () => {
    expect(await outage('last')).toEqual(['12:01:00 12:01:00', '12:05:15 12:05:00 missed 3'])
  })

  test('all: each is run, in order', async () => {
    expect(await outage('all')).toEqual([
      '12:01:00 12:01:00',
      '12:05:15 12:02:00',
      '12:05:15 12:03:00',
      '12:05:15 12:04:00',
      '12:05:15 12:05:00',
    ])
  })

  test('all, with a grace: those that are not later than that', async () => {
    expect(await outage('all', '2m')).toEqual(['12:01:00 12:01:00', '12:05:15 12:04:00 missed 2', '12:05:15 12:05:00'])
  })

  test.each([
    ['skip', '2h', []],
    ['last', '2h', ['15:00:00 12:30:00']],
    ['last', '24h', ['15:00:00 12:30:00']],
  ] as const)('%s, hours later (%s)', async (missed, _, expected) => {
    const runs: string[] = []
    const first = world.host()
    first.jobs.add('job', '30 12 * * *', { missed }, () => runs.push('first'))
    await world.clock.advance('1m')
    await first.jobs.close()
    await world.clock.advance('179m')
    world.host().jobs.add('job', '30 12 * * *', { missed }, (run) => runs.push(described(world.time(), run)))
    await world.clock.advance('1m')
    expect(runs).toEqual(expected)
  })

  test('of a job that was never seen before are none', async () => {
    const runs: string[] = []
    world.host().jobs.add('job', '* * * * *', { missed: 'all' }, (run) => runs.push(described('', run)))
    await world.clock.advance('59s')
    expect(runs).toEqual([])
  })

  test('of seconds are at most a hundred', async () => {
    const runs: Run[] = []
    const add = ({ jobs }: CronHost): void =>
      jobs.add('job', { every: '1s' }, { missed: 'all' }, (run) => {
        runs.push(run)
      })
    const first = world.host()
    add(first)
    await first.jobs.close()
    await world.clock.advance('10m')
    add(world.host())
    await world.clock.advance('100ms')
    expect(runs).toHaveLength(100)
    expect(runs[0]?.missed).toBe(100)
    expect(clockTime(runs.at(-1)?.tick as Date)).toBe('12:10:00')
  })

  test('because the server could not be reached are run when it can be', async () => {
    const runs: string[] = []
    const host = world.host()
    host.jobs.add('job', '* * * * *', (run) => runs.push(described(world.time(), run)))
    await world.clock.advance('30s')
    host.cutOff(true)
    await world.clock.advance('60s')
    expect(host.errors, 'told once, not for each try').toHaveLength(1)
    host.cutOff(false)
    await world.clock.advance('15s')
    expect(runs).toHaveLength(1)
    expect(runs[0]).toMatch(/12:01:00$/)
  })
})

describe('a tick that comes while the job runs', () => {
  /** Two hosts; the run of 12:01 lasts for two and a half minutes. */
  async function longRun(overlap: 'skip' | 'queue' | 'replace', missed: 'skip' | 'all' = 'skip'): Promise<string[]> {
    const runs: string[] = []
    for (const name of ['a', 'b']) {
      world.host(name).jobs.add('job', '* * * * *', { overlap, missed }, async (run) => {
        runs.push(described(world.time(), run))
        if (runs.length > 1) return
        const done = gate()
        world.clock.timer(150_000, done.open)
        run.signal.addEventListener('abort', done.open)
        await done.opened
        runs.push(`end ${world.time()}${run.signal.aborted ? ' aborted' : ''}`)
        run.signal.throwIfAborted()
      })
    }
    await world.clock.advance('245s')
    return runs
  }

  test('skip: is not run', async () => {
    expect(await longRun('skip')).toEqual(['12:01:00 12:01:00', 'end 12:03:30', '12:04:00 12:04:00 missed 2'])
  })

  test.each(['done', 'failed', 'stopped'] as const)(
    'skip, all: is not run later either, after others that were missed, when that run was %s',
    async (outcome) => {
      const runs: string[] = []
      let first = true
      const add = (host: CronHost): void =>
        host.jobs.add('job', '* * * * *', { missed: 'all' }, async (run) => {
          runs.push(described(world.time(), run))
          if (!first) return
          first = false
          const ended = gate()
          world.clock.timer(60_000, ended.open)
          run.signal.addEventListener('abort', ended.open)
          await ended.opened
          if (outcome !== 'done') throw new Error('as it was told to')
        })
      const before = world.host()
      add(before)
      await before.jobs.close()
      await world.clock.advance('190s')
      const host = world.host()
      add(host)
      await world.clock.advance('55s')
      // A deployment: the one that goes on is another host.
      const stopped = outcome === 'stopped' ? host.jobs.close() : undefined
      if (outcome === 'stopped') add(world.host())
      await world.clock.advance('60s')
      await stopped
      expect(runs.map((run) => run.slice(9))).toEqual(['12:01:00', '12:02:00', '12:03:00', '12:05:00 missed 1'])
      expect((await historyOf(host, 'job')).at(-1)?.outcome).toBe(outcome)
    },
  )

  test('queue: is run when that run has ended; of several, the last one', async () => {
    expect(await longRun('queue')).toEqual([
      '12:01:00 12:01:00',
      'end 12:03:30',
      '12:03:30 12:03:00 missed 1',
      '12:04:00 12:04:00',
    ])
  })

  test('queue, all: each is run', async () => {
    expect(await longRun('queue', 'all')).toEqual([
      '12:01:00 12:01:00',
      'end 12:03:30',
      '12:03:30 12:02:00',
      '12:03:30 12:03:00',
      '12:04:00 12:04:00',
    ])
  })

  test('replace: that run is told to stop, and it begins when it has', async () => {
    expect(await longRun('replace')).toEqual([
      '12:01:00 12:01:00',
      'end 12:02:00 aborted',
      '12:02:00 12:02:00',
      '12:03:00 12:03:00',
      '12:04:00 12:04:00',
    ])
    const [host] = world.hosts as [CronHost]
    expect((await historyOf(host, 'job')).map(({ outcome }) => outcome)).toEqual(['done', 'done', 'done', 'replaced'])
    expect(
      world.hosts.flatMap(({ errors }) => errors),
      'it is no error',
    ).toEqual([])
  })

  /** Two hosts come after an outage of three ticks, which they are to run one after the other. */
  async function catchUp(workMs: number): Promise<string[]> {
    const runs: string[] = []
    const add = (host: CronHost): void =>
      host.jobs.add('job', '* * * * *', { overlap: 'replace', missed: 'all' }, async (run) => {
        const done = gate()
        const timer = world.clock.timer(workMs, done.open)
        run.signal.addEventListener('abort', done.open)
        await done.opened
        timer.cancel()
        runs.push(described(`${world.time()}${run.signal.aborted ? ' aborted' : ''}`, run))
        run.signal.throwIfAborted()
      })
    const first = world.host()
    add(first)
    await first.jobs.close()
    await world.clock.advance('190s')
    add(world.host())
    add(world.host())
    await world.clock.advance('100s')
    return runs
  }

  test('replace, all: those that were missed do not replace each other', async () => {
    expect(await catchUp(10_000)).toEqual([
      '12:03:20 12:01:00',
      '12:03:30 12:02:00',
      '12:03:40 12:03:00',
      '12:04:10 12:04:00',
    ])
  })

  test('replace, all: one that was missed is replaced when a tick comes, by the next one in order', async () => {
    expect(await catchUp(10_000_000)).toEqual(['12:04:00 aborted 12:01:00'])
  })

  describe('queue: when the run that it waits for has died with its host', () => {
    const runs: string[] = []
    const add = (host: CronHost, dies = false): void =>
      host.jobs.add('job', '0 * * * *', { overlap: 'queue' }, (run) => {
        runs.push(described(world.time(), run))
        return dies ? new Promise(() => {}) : undefined
      })

    beforeEach(() => {
      runs.length = 0
    })

    /** A host that has stood behind a run of 13:00, which has died with its host at 14:30. */
    async function behindOneThatDied(): Promise<CronHost> {
      const [first, other] = [world.host(), world.host()]
      add(first, true)
      await world.clock.advance('61m')
      add(other)
      await world.clock.advance('89m')
      first.die()
      return other
    }

    test('is not run hours later, by any of the hosts that come together then', async () => {
      const first = world.host()
      add(first, true)
      await world.clock.advance('90m')
      first.die()
      await world.clock.advance('180m')
      add(world.host())
      add(world.host())
      await world.clock.advance('10m')
      expect(runs).toEqual(['13:00:00 13:00:00'])
      await world.clock.advance('30m')
      expect(runs).toEqual(['13:00:00 13:00:00', '17:00:00 17:00:00 missed 3'])
    })

    test('is run by a host that has stood behind that run all the time', async () => {
      await behindOneThatDied()
      await world.clock.advance('1m')
      expect(runs).toEqual(['13:00:00 13:00:00', expect.stringMatching(/^14:30:\d\d 14:00:00$/)])
    })

    test('is run by a host that has stood behind that run until an outage, in which the run has died', async () => {
      const other = await behindOneThatDied()
      other.cutOff(true)
      await world.clock.advance('2m')
      other.cutOff(false)
      await world.clock.advance('1m')
      expect(runs).toEqual(['13:00:00 13:00:00', expect.stringMatching(/^14:3\d:\d\d 14:00:00$/)])
    })
  })

  test('queue: a single host does it, too, and a tick that waited for long is not late', async () => {
    const runs: string[] = []
    const done = gate()
    world.host().jobs.add('job', '0 * * * *', { overlap: 'queue' }, async (run) => {
      runs.push(described(world.time(), run))
      if (runs.length === 1) await done.opened
    })
    await world.clock.advance('2h')
    await world.clock.advance('30m')
    done.open()
    await world.clock.advance('1s')
    expect(runs).toEqual(['13:00:00 13:00:00', '14:30:00 14:00:00'])
  })
})
