/** What a host that died has left behind: who takes it over, until when, and what becomes of the ticks after it. */
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import {
  coordinator,
  type JobOptions,
  type Run,
  type TickOptions,
  type TickResult,
  tick,
} from '../../src/recipes/cron/index.ts'
import { type CronHost, CronWorld, described, historyOf, NOON } from './cron-world.ts'
import { gate, type Watched, watched } from './world.ts'

let world: CronWorld
let ran: string[]
beforeEach(() => {
  world = new CronWorld()
  ran = []
})
afterEach(() => world.close())

const HOUR_MS = 3_600_000

/** Work that is killed with its host. */
function dying(host: CronHost): (run: Run) => Promise<never> {
  return (run) => {
    ran.push(`${described(world.time(), run)} dies`)
    host.die()
    return new Promise(() => {})
  }
}

const working = (run: Run): string => {
  ran.push(described(world.time(), run))
  return described('', run).trim()
}

/** `attempt 2 of 12:00:10 done`: the newest first. */
async function told(host: CronHost): Promise<string[]> {
  const runs = await historyOf(host, 'job')
  return runs.map(({ tick: at, attempt, outcome, error }) => {
    const why = error === undefined ? '' : `: ${error}`
    return `${attempt} of ${at.toISOString().slice(11, 19)} ${outcome}${why}`
  })
}

describe('tick()', () => {
  /** A host is asked for the tick that is so many seconds after noon. */
  function ask(
    host: CronHost,
    seconds: number,
    work: (run: Run) => unknown,
    options: TickOptions = {},
  ): Watched<TickResult<unknown>> {
    return watched(tick(host.locks, 'job', NOON + seconds * 1000, { takeover: 1, ttl: '2s', ...options }, work))
  }

  test('takes over what was left behind, and goes on with the tick that it was asked for', async () => {
    const killed = world.host('killed')
    ask(killed, 10, dying(killed))
    await world.clock.advance('20s')
    const started = world.host('started')
    const asked = ask(started, 20, working)
    await world.clock.advance('1s')
    expect(asked.value, 'the answer is that of the tick that was asked for').toEqual({ ran: true, value: '12:00:20' })
    expect(ran).toEqual(['12:00:10 12:00:10 dies', '12:00:20 12:00:10 attempt 2', '12:00:20 12:00:20'])
    expect(await told(started)).toEqual(['1 of 12:00:20 done', '2 of 12:00:10 done', '1 of 12:00:10 lost'])
  })

  test('stays in line for its tick, though another host has begun it meanwhile, and takes it over if that one dies', async () => {
    const [killed, one, other] = ['killed', 'one', 'other'].map((name) => world.host(name)) as [
      CronHost,
      CronHost,
      CronHost,
    ]
    ask(killed, 10, dying(killed))
    await world.clock.advance('20s')
    const slow = gate()
    const asked = ask(one, 20, async (run) => {
      working(run)
      if (run.tick.getTime() === NOON + 10_000) await slow.opened
    })
    await world.clock.advance('100ms')
    ask(other, 20, dying(other))
    await world.clock.advance('1s')
    slow.open()
    await world.clock.advance('5s')
    expect(ran).toEqual([
      '12:00:10 12:00:10 dies',
      '12:00:20 12:00:10 attempt 2',
      '12:00:21 12:00:20 dies',
      expect.stringMatching(/^12:00:2[23] 12:00:20 attempt 2$/),
    ])
    expect(asked.value).toMatchObject({ ran: true })
  })

  test('says that its tick is claimed where another host has run it', async () => {
    const [killed, one, other] = ['killed', 'one', 'other'].map((name) => world.host(name)) as [
      CronHost,
      CronHost,
      CronHost,
    ]
    ask(killed, 10, dying(killed))
    await world.clock.advance('20s')
    const slow = gate()
    const asked = ask(one, 20, () => slow.opened)
    await world.clock.advance('100ms')
    const second = ask(other, 20, working)
    await world.clock.advance('100ms')
    slow.open()
    await world.clock.advance('1s')
    expect(second.value).toEqual({ ran: true, value: '12:00:20' })
    expect(asked.value).toEqual({ ran: false, why: 'claimed' })
  })

  test('runs its tick although what it took over has failed, and rejects with that', async () => {
    const killed = world.host('killed')
    ask(killed, 10, dying(killed))
    await world.clock.advance('20s')
    const host = world.host('started')
    const asked = ask(host, 20, (run) => {
      working(run)
      if (run.attempt > 1) throw new Error('no disk')
    })
    await world.clock.advance('1s')
    expect(asked.error).toMatchObject({ message: 'no disk' })
    expect(await told(host)).toEqual(['1 of 12:00:20 done', '2 of 12:00:10 failed: no disk', '1 of 12:00:10 lost'])
  })

  test('rejects with both errors where both runs have failed', async () => {
    const killed = world.host('killed')
    ask(killed, 10, dying(killed))
    await world.clock.advance('20s')
    const asked = ask(world.host('started'), 20, ({ attempt }) => {
      throw new Error(`failed in attempt ${attempt}`)
    })
    await world.clock.advance('1s')
    expect(asked.error).toBeInstanceOf(AggregateError)
    expect((asked.error as AggregateError).errors.map(String)).toEqual([
      'Error: failed in attempt 2',
      'Error: failed in attempt 1',
    ])
  })

  test('is not late because what it took over has worked for longer than its grace', async () => {
    const killed = world.host('killed')
    ask(killed, 10, dying(killed))
    await world.clock.advance('20s')
    const slow = gate()
    const asked = ask(world.host('started'), 20, async (run) => {
      working(run)
      if (run.attempt > 1) await slow.opened
    })
    await world.clock.advance('5m')
    slow.open()
    await world.clock.advance('1s')
    expect(asked.value).toMatchObject({ ran: true })
    expect(ran).toEqual(['12:00:10 12:00:10 dies', '12:00:20 12:00:10 attempt 2', '12:05:20 12:00:20'])
  })

  test('begins no take-over later than the grace that was given, and the history says so', async () => {
    const killed = world.host('killed')
    ask(killed, 10, dying(killed), { grace: '3s', ttl: '5s' })
    const standing = world.host('standing')
    const stood = ask(standing, 10, working, { grace: '3s' })
    await world.clock.advance('20s')
    expect(stood.value).toEqual({ ran: false, why: 'claimed' })
    const asked = ask(standing, 20, working, { grace: '3s' })
    await world.clock.advance('1s')
    expect(asked.value).toMatchObject({ ran: true })
    expect(ran).toEqual(['12:00:10 12:00:10 dies', '12:00:20 12:00:20'])
    expect(await told(standing)).toEqual([
      '1 of 12:00:20 done',
      '1 of 12:00:10 lost: not taken over: its grace was over',
    ])
  })

  test('of a night makes no report of the night before', async () => {
    const killed = world.host('killed')
    ask(killed, 10, dying(killed))
    await world.clock.advance('24h')
    const asked = ask(world.host('started'), 10 + 24 * 3600, working)
    await world.clock.advance('20s')
    expect(ran).toEqual(['12:00:10 12:00:10 dies', '12:00:10 12:00:10'])
    expect(asked.value).toMatchObject({ ran: true })
  })
})

test('node-cron runs a task once for a tick: so what was left behind is lost, and the lock is free after the task', async () => {
  const [killed, started] = [world.host('killed'), world.host('started')]
  const key = (seconds: number): string => `job:${new Date(NOON + seconds * 1000).toISOString()}`
  const asked = coordinator(killed.locks, { takeover: 1 }).shouldRun(key(0), 30_000)
  await world.clock.advance('1s')
  expect(await asked).toBe(true)
  killed.die()
  await world.clock.advance('40s')
  const next = coordinator(started.locks, { takeover: 1 })
  expect(await next.shouldRun(key(40), 30_000)).toBe(true)
  const completed = watched(next.onComplete(key(40)))
  await world.clock.advance('1s')
  expect(completed.state).toBe('resolved')
  expect(await told(started)).toEqual(['1 of 12:00:40 done', '1 of 12:00:00 lost'])
})

describe('a job', () => {
  /** The host that runs the tick of 13:00 is killed `afterMs` after it. The other one is there a minute after it. */
  async function killed(options: JobOptions, afterMs: number): Promise<CronHost> {
    const first = world.host('first')
    first.jobs.add('job', '0 * * * *', { takeover: 1, ...options }, (run) => {
      ran.push(`${described(world.time(), run)} dies`)
      world.clock.timer(afterMs, () => first.die())
      return new Promise(() => {})
    })
    await world.clock.advance('61m')
    const other = world.host('other')
    other.jobs.add('job', '0 * * * *', { takeover: 1, ...options }, working)
    return other
  }

  test('begins no take-over later than the grace that was given', async () => {
    const other = await killed({ grace: '5m' }, 10 * 60_000)
    await world.clock.advance('30m')
    expect(ran).toEqual(['13:00:00 13:00:00 dies'])
    await world.clock.advance('30m')
    expect(ran).toEqual(['13:00:00 13:00:00 dies', '14:00:00 14:00:00'])
    expect(await told(other)).toEqual(['1 of 14:00:00 done', '1 of 13:00:00 lost: not taken over: its grace was over'])
  })

  test('is taken over within that grace', async () => {
    await killed({ grace: '15m' }, 10 * 60_000)
    await world.clock.advance('30m')
    expect(ran).toEqual(['13:00:00 13:00:00 dies', expect.stringMatching(/^13:10:\d\d 13:00:00 attempt 2$/)])
  })

  test('is taken over for half a day where no grace was given, however long it had worked', async () => {
    const first = world.host('first')
    const daily = '0 13 * * *'
    first.jobs.add('job', daily, { takeover: 1 }, () => {
      world.clock.timer(11 * HOUR_MS, () => first.die())
      return new Promise(() => {})
    })
    await world.clock.advance('61m')
    world.host('other').jobs.add('job', daily, { takeover: 1 }, working)
    await world.clock.advance('12h')
    expect(ran).toEqual([expect.stringMatching(/^00:00:\d\d 13:00:00 attempt 2$/)])
  })

  test('of a night is not taken over in the next one', async () => {
    const first = world.host('first')
    first.jobs.add('job', '0 13 * * *', { takeover: 1 }, dying(first))
    await world.clock.advance('24h')
    world.host('started').jobs.add('job', '0 13 * * *', { takeover: 1 }, working)
    await world.clock.advance('2h')
    expect(ran).toEqual(['13:00:00 13:00:00 dies', '13:00:00 13:00:00'])
  })

  test('that is taken over when its next tick is due: that one is run after it, however long it takes', async () => {
    const first = world.host('first')
    first.jobs.add('job', '0 * * * *', { takeover: 1 }, dying(first))
    await world.clock.advance('119m')
    await world.clock.advance('90s')
    world.host('started').jobs.add('job', '0 * * * *', { takeover: 1 }, async (run) => {
      working(run)
      const done = gate()
      world.clock.timer(300_000, done.open)
      await done.opened
    })
    await world.clock.advance('20m')
    expect(ran).toEqual(['13:00:00 13:00:00 dies', '14:00:30 13:00:00 attempt 2', '14:05:30 14:00:00'])
  })

  test('that is taken over when its next tick is due: that one is run right after it', async () => {
    const first = world.host('first')
    const options: JobOptions = { takeover: 1, ttl: '1s' }
    first.jobs.add('job', { every: '10s' }, options, dying(first))
    await world.clock.advance('21s')
    world.host('started').jobs.add('job', { every: '10s' }, options, working)
    await world.clock.advance('2s')
    expect(ran).toEqual(['12:00:10 12:00:10 dies', '12:00:21 12:00:10 attempt 2', '12:00:21 12:00:20'])
  })
})
