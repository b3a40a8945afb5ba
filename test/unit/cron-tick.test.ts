/** `tick()`: one tick, whatever scheduler told of it, and clocks of hosts that are wrong. */
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { faulty } from '../../conformance/faulty.ts'
import { LeaseLostError } from '../../src/core/errors.ts'
import { memory } from '../../src/engines/memory/index.ts'
import { createLocks } from '../../src/locks.ts'
import { tick } from '../../src/recipes/cron/index.ts'
import { type CronHost, CronWorld, historyOf, NOON, TTL } from './cron-world.ts'
import { gate, settled, watched } from './world.ts'

let world: CronWorld
beforeEach(() => {
  world = new CronWorld()
})
afterEach(() => world.close())

const two = (): [CronHost, CronHost] => [world.host(), world.host()]

test('is run by the first host that comes, and answers what the work did', async () => {
  const [one, other] = two()
  expect(await tick(one.locks, 'job', new Date(NOON), ({ tick }) => tick.getTime())).toEqual({ ran: true, value: NOON })
  expect(await tick(other.locks, 'job', NOON, () => 'again')).toEqual({ ran: false, why: 'claimed' })
  expect(await historyOf(other, 'job')).toMatchObject([{ holder: 'host-1', outcome: 'done' }])
})

test('of hosts that come at the same time, one runs it', async () => {
  const hosts = Array.from({ length: 8 }, () => world.host())
  const done = gate()
  const asked = hosts.map(({ locks }) => watched(tick(locks, 'job', NOON, () => done.opened)))
  await world.clock.advance('1s')
  expect(asked.filter(({ state }) => state === 'pending')).toHaveLength(1)
  done.open()
  await world.clock.advance('1s')
  expect(asked.filter(({ value }) => value.ran)).toHaveLength(1)
})

test('replaces the run of the tick before, also where that has begun after the instant of this one', async () => {
  const [one, other] = two()
  const options = { overlap: 'replace', grace: '5m' } as const
  await world.clock.advance('65s')
  const told = ({ signal }: { signal: AbortSignal }): Promise<unknown> =>
    new Promise((resolve) => signal.addEventListener('abort', resolve))
  const first = watched(tick(one.locks, 'job', NOON, options, told))
  await world.clock.advance('5s')
  const second = watched(tick(other.locks, 'job', NOON + 60_000, options, () => 'second'))
  await world.clock.advance('5s')
  expect(second.value).toEqual({ ran: true, value: 'second' })
  expect(first.state).not.toBe('pending')
})

test('a host that stands still when it has claimed, and before it is told so, does not work: another one has', async () => {
  const engine = faulty(memory({ server: world.server }))
  await using locks = createLocks(engine, { clock: world.clock, ttl: TTL })
  const other = world.host()
  const ran: string[] = []
  const held = engine.next('put', 'hold reply')
  const asked = tick(locks, 'job', NOON, { takeover: 1 }, () => ran.push('first'))
  await held.reached
  world.clock.stall(TTL + 1_000)
  const taken = await tick(other.locks, 'job', NOON, { takeover: 1 }, ({ attempt }) => ran.push(`attempt ${attempt}`))
  expect(taken.ran).toBe(true)
  held.release()
  await expect(asked).rejects.toThrow(LeaseLostError)
  expect(ran).toEqual(['attempt 2'])
})

describe('the clock of a host', () => {
  test('that is an hour ahead cannot claim what is to come', async () => {
    const [ahead, right] = two()
    const hour = 3_600_000
    expect(await tick(ahead.locks, 'job', NOON + hour, () => 'ran')).toEqual({ ran: false, why: 'early' })
    expect(await tick(right.locks, 'job', NOON, () => 'ran')).toMatchObject({ ran: true })
    await world.clock.advance('1h')
    expect(await tick(right.locks, 'job', NOON + hour, () => 'ran')).toMatchObject({ ran: true })
  })

  test('that is a minute ahead is waited for: the work begins at the tick, by the time of the server', async () => {
    const { locks } = world.host()
    const asked = watched(tick(locks, 'job', NOON + 60_000, () => world.time()))
    await world.clock.advance('59s')
    expect(asked.state).toBe('pending')
    await world.clock.advance('2s')
    expect(asked.value).toEqual({ ran: true, value: '12:01:00' })
  })

  test('that is a minute behind finds the tick claimed', async () => {
    const [right, behind] = two()
    await tick(right.locks, 'job', NOON, () => 'ran')
    await world.clock.advance('59s')
    expect(await tick(behind.locks, 'job', NOON, () => 'again')).toEqual({ ran: false, why: 'claimed' })
  })
})

test('comes too late when the grace is over', async () => {
  const { locks } = world.host()
  await world.clock.advance('61s')
  expect(await tick(locks, 'job', NOON, () => 'ran')).toEqual({ ran: false, why: 'late' })
  expect(await tick(locks, 'job', NOON, { grace: '2m' }, () => 'ran')).toEqual({ ran: true, value: 'ran' })
})

test('that comes while the job runs is not run, or waits, as asked', async () => {
  const [one, other] = two()
  const done = gate()
  const first = watched(tick(one.locks, 'job', NOON, () => done.opened))
  await world.clock.advance('10s')
  const skipped = watched(tick(other.locks, 'job', NOON + 10_000, () => 'ran'))
  const queued = watched(tick(other.locks, 'job', NOON + 10_000, { overlap: 'queue' }, () => 'ran'))
  await world.clock.advance('1s')
  done.open()
  await world.clock.advance('1s')
  expect(first.value.ran).toBe(true)
  expect(queued.value).toEqual({ ran: true, value: 'ran' })
  expect(skipped.value).toEqual({ ran: false, why: expect.stringMatching(/overlap|claimed/) })
})

test('rejects with what the work threw, which is stored; or with the loss of the lock', async () => {
  const host = world.host()
  await expect(tick(host.locks, 'job', NOON, () => Promise.reject(new Error('no disk')))).rejects.toThrow('no disk')
  expect(await historyOf(host, 'job')).toMatchObject([{ outcome: 'failed', error: 'no disk' }])
  const lost = watched(
    tick(
      host.locks,
      'other',
      NOON,
      ({ signal }) =>
        new Promise<void>((_, reject) => {
          signal.addEventListener('abort', () => reject(signal.reason as Error))
        }),
    ),
  )
  await settled()
  host.cutOff(true)
  await world.clock.advance('40s')
  host.cutOff(false)
  await world.clock.advance('5s')
  expect(lost.error).toBeInstanceOf(LeaseLostError)
})

test('ends when its signal does: before the work, or by telling the work', async () => {
  const { locks } = world.host()
  const controller = new AbortController()
  const early = watched(tick(locks, 'job', NOON + 60_000, { signal: controller.signal }, () => 'ran'))
  const told = watched(
    tick(
      locks,
      'other',
      NOON,
      { signal: controller.signal },
      ({ signal }) =>
        new Promise<void>((_, reject) => {
          signal.addEventListener('abort', () => reject(signal.reason as Error))
        }),
    ),
  )
  await settled()
  controller.abort(new Error('enough'))
  await world.clock.advance('1s')
  expect(early.value).toEqual({ ran: false, why: 'stopped' })
  expect(told.error).toMatchObject({ message: 'enough' })
})

test('wrong arguments are refused', async () => {
  const { locks } = world.host()
  await expect(tick(locks, 'job', Number.NaN, () => {})).rejects.toThrow(/milliseconds since 1970/)
  await expect(tick(locks, 'job', new Date('no'), () => {})).rejects.toThrow(/milliseconds since 1970/)
  await expect(tick(locks, 'job', NOON, {} as never)).rejects.toThrow(/as a function/)
  await expect(tick(locks, 'job', NOON, { missed: 'all' } as never, () => {})).rejects.toThrow(/unknown option/)
})
