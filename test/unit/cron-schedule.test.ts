/** Schedules: when a job runs, the same on every host, also when clocks are changed. */

import { createRequire } from 'node:module'
import fc from 'fast-check'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { type JobSchedule, type Schedule, scheduleOf } from '../../src/recipes/cron/schedule.ts'

const DAY_MS = 24 * 3_600_000
/** The one that schedules use: that of an `import` is another class. */
const { Cron } = createRequire(import.meta.url)('croner') as typeof import('croner')

afterEach(() => vi.restoreAllMocks())

function of(schedule: JobSchedule, zone?: string): Schedule {
  return scheduleOf('job', schedule, zone)
}

/** The ticks after `from`, up to and including `until`, counted forwards. */
function forwards(schedule: Schedule, from: number, until: number): readonly number[] {
  const ticks: number[] = []
  for (let tick = schedule.next(from); tick !== null && tick <= until; tick = schedule.next(tick)) ticks.push(tick)
  return ticks
}

interface Change {
  readonly name: string
  readonly pattern: string
  readonly zone: string
  /** From midnight of that day, in UTC, for a day and a half. */
  readonly day: string
  readonly ticks: readonly string[]
}

/** When clocks are put forward, a local time is left out; when they are put back, one comes twice. */
const CHANGES: readonly Change[] = [
  {
    name: 'a time that is left out: when the clocks have been put forward',
    pattern: '30 2 * * *',
    zone: 'America/New_York',
    day: '2026-03-08',
    ticks: ['2026-03-08T07:00', '2026-03-09T06:30'],
  },
  {
    name: 'a time that comes twice: the first time only',
    pattern: '30 1 * * *',
    zone: 'America/New_York',
    day: '2026-11-01',
    ticks: ['2026-11-01T05:30', '2026-11-02T06:30'],
  },
  {
    name: 'each half hour goes on when clocks are put forward',
    pattern: '*/30 1-3 * * *',
    zone: 'America/New_York',
    day: '2026-03-08',
    ticks: ['2026-03-08T06:00', '2026-03-08T06:30', '2026-03-08T07:00', '2026-03-08T07:30'].concat(
      ['2026-03-09T05:00', '2026-03-09T05:30', '2026-03-09T06:00', '2026-03-09T06:30', '2026-03-09T07:00'],
      ['2026-03-09T07:30'],
    ),
  },
  {
    name: 'each half hour goes on when clocks are put back: the hour that comes twice has four',
    pattern: '*/30 1 * * *',
    zone: 'America/New_York',
    day: '2026-11-01',
    ticks: ['2026-11-01T05:00', '2026-11-01T05:30', '2026-11-01T06:00', '2026-11-01T06:30'].concat([
      '2026-11-02T06:00',
      '2026-11-02T06:30',
    ]),
  },
  {
    name: 'Berlin, put forward',
    pattern: '30 2 * * *',
    zone: 'Europe/Berlin',
    day: '2026-03-29',
    ticks: ['2026-03-29T01:00', '2026-03-30T00:30'],
  },
  {
    name: 'Berlin, put back',
    pattern: '30 2 * * *',
    zone: 'Europe/Berlin',
    day: '2026-10-25',
    ticks: ['2026-10-25T00:30', '2026-10-26T01:30'],
  },
  {
    name: 'Lord Howe, put forward by half an hour',
    pattern: '15 2 * * *',
    zone: 'Australia/Lord_Howe',
    day: '2026-10-03',
    ticks: ['2026-10-03T15:30'],
  },
  {
    name: 'a zone without changes, half an hour off',
    pattern: '0 3 * * *',
    zone: 'Asia/Kolkata',
    day: '2026-03-29',
    ticks: ['2026-03-29T21:30'],
  },
  {
    name: 'UTC',
    pattern: '30 2 * * *',
    zone: 'UTC',
    day: '2026-03-29',
    ticks: ['2026-03-29T02:30', '2026-03-30T02:30'],
  },
]

describe('when clocks are changed', () => {
  test.each(CHANGES)('$name ($pattern, $zone)', ({ pattern, zone, day, ticks }) => {
    const from = Date.parse(`${day}T00:00:00Z`) - 1
    const found = forwards(of(pattern, zone), from, from + 1.5 * DAY_MS)
    expect(found.map((tick) => new Date(tick).toISOString())).toEqual(ticks.map((tick) => `${tick}:00.000Z`))
  })

  test('a tick is the same one from wherever the count begins', () => {
    const zones = ['America/New_York', 'Europe/Berlin', 'Australia/Lord_Howe', 'UTC']
    const patterns = [
      '30 2 * * *',
      '30 1 * * *',
      '*/20 1-3 * * *',
      '0,30 1 * * *',
      '15 2 * * 0',
      '5 0 1 * *',
      '* 3 * * 0',
      '*/9 * 4 * * 6',
    ]
    const days = ['2026-03-07', '2026-03-28', '2026-10-03', '2026-10-24', '2026-10-31']
    const begins = fc.record({
      zone: fc.constantFrom(...zones),
      pattern: fc.constantFrom(...patterns),
      day: fc.constantFrom(...days),
      afterMs: fc.integer({ min: 0, max: 2 * DAY_MS }),
      most: fc.integer({ min: 1, max: 12 }),
    })
    fc.assert(
      fc.property(begins, ({ zone, pattern, day, afterMs, most }) => {
        const schedule = of(pattern, zone)
        const [from, until] = [Date.parse(day), Date.parse(day) + 3 * DAY_MS]
        const all = forwards(schedule, from, until)
        const later = all.filter((tick) => tick > from + afterMs)
        expect(schedule.next(from + afterMs)).toBe(later[0] ?? schedule.next(until))
        expect(schedule.newest(from + afterMs, until, most)).toEqual(later.slice(-most))
      }),
      { numRuns: 200 },
    )
  })
})

describe('slots', () => {
  test('are multiples of their length since 1970, whenever a host was started', () => {
    const { next, newest } = of({ every: '30s' })
    expect(next(30_000)).toBe(60_000)
    expect(next(30_001)).toBe(60_000)
    expect(newest(0, 95_000, 10)).toEqual([30_000, 60_000, 90_000])
    expect(newest(0, 95_000, 2)).toEqual([60_000, 90_000])
    expect(newest(60_000, 89_999, 2)).toEqual([])
  })
})

test('a week of missed seconds is counted without walking through them', () => {
  const schedule = of('* * * * * *')
  const until = Date.parse('2026-11-16T12:00:00Z')
  const steps = schedule.newest(until - 7 * DAY_MS, until, 100)
  expect(steps).toEqual(Array.from({ length: 100 }, (_, index) => until - (99 - index) * 1000))
})

describe('a schedule that cannot be meant is refused, and the message says why', () => {
  test.each<[JobSchedule, string | undefined, RegExp]>([
    ['61 * * * *', undefined, /'job'.*'61 \* \* \* \*'.*minute/],
    ['* * *', undefined, /five, six, or seven/],
    ['? * * * *', undefined, /another time on each host/],
    ['2026-12-24T18:00:00', undefined, /a date is no pattern/],
    ['0 3 * * *', 'Mars/Base', /Mars\/Base/],
    [{ every: 0 }, undefined, /at least 100 ms/],
    [{ every: '0.3ms' }, undefined, /at least 100 ms/],
    [{ every: '1h' }, 'Europe/Berlin', /the same in every zone/],
    [5 as never, undefined, /cron pattern or \{ every/],
  ])('%j in %s', (schedule, zone, message) => {
    expect(() => of(schedule, zone)).toThrow(message)
  })
})

test.each(['* * * * * 1', '* * 3 * * 1', '* * * 9 11 *', '*/2 59 23 * * 1', '0 0 1 1 *'])(
  'ticks that are dense in some places are counted without walking through them: %s',
  (pattern) => {
    const schedule = of(pattern)
    const steps = vi.spyOn(Cron.prototype, 'nextRun')
    const until = Date.parse('2026-11-15T12:00:00Z')
    const found = schedule.newest(until - 2000 * DAY_MS, until, 100)
    // A step takes a tenth of a millisecond, and nothing else happens meanwhile.
    expect(steps.mock.calls.length).toBeLessThan(2000)
    expect(new Set(found).size).toBe(found.length)
    const [first = until] = found
    expect(forwards(schedule, first - 1, until)).toEqual(found)
    expect(found.length === 100 || schedule.next(until - 2000 * DAY_MS) === first).toBe(true)
  },
)
