/** How runs end when their process does: what is stored of them, who hears of it, and when the next host begins. */
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { ClosedError, LeaseLostError } from '../../src/core/errors.ts'
import { type Run, tick } from '../../src/recipes/cron/index.ts'
import { type CronHost, CronWorld, historyOf, NOON } from './cron-world.ts'
import { type Gate, gate, settled, watched } from './world.ts'

let world: CronWorld
beforeEach(() => {
  world = new CronWorld()
})
afterEach(() => world.close())

const ENDINGS: [string, (host: CronHost) => Promise<void>][] = [
  ['jobs.drain()', ({ jobs }) => jobs.drain({ grace: '1s' })],
  ['jobs.close()', ({ jobs }) => jobs.close()],
  ['locks.drain()', ({ locks }) => locks.drain({ grace: '1s' })],
  ['locks.close()', ({ locks }) => locks.close()],
]

/** Resolves when the signal of the run has aborted, and a little later rejects with its reason, as a real work does. */
async function untilTold({ signal }: Run): Promise<never> {
  const told = gate()
  signal.addEventListener('abort', told.open)
  await told.opened
  await settled()
  throw signal.reason
}

/** A host that works on the tick of 12:01, and another one that stands in line, to take it over. */
async function running(
  work: (run: Run) => Promise<unknown>,
): Promise<{ host: CronHost; other: CronHost; ran: string[] }> {
  const ran: string[] = []
  const host = world.host('host')
  host.jobs.add('job', '* * * * *', { takeover: 1 }, async (run) => {
    ran.push('begins')
    try {
      return await work(run)
    } finally {
      ran.push('ends')
    }
  })
  await world.clock.advance('61s')
  const other = world.host('other')
  other.jobs.add('job', '* * * * *', { takeover: 1 }, ({ attempt }) => {
    ran.push(`attempt ${attempt}`)
  })
  await world.clock.advance('1s')
  return { host, other, ran }
}

describe.each(ENDINGS)('%s', (_, end) => {
  test('a run that throws because it was told to stop is stopped, and is no error', async () => {
    const { host, other, ran } = await running(untilTold)
    const ended = end(host)
    await world.clock.advance('2s')
    await ended
    expect(host.errors).toEqual([])
    expect(ran, 'the next host begins when this one has ended').toEqual(['begins', 'ends', 'attempt 2'])
    const [again, first] = await historyOf(other, 'job')
    expect(again).toMatchObject({ outcome: 'done', attempt: 2 })
    expect(first).toMatchObject({ outcome: 'stopped', error: expect.stringMatching(/were closed/) })
  })

  test('a run that ends when it is told to is done', async () => {
    const { host, other, ran } = await running((run) => untilTold(run).catch(() => {}))
    const ended = end(host)
    await world.clock.advance('2s')
    await ended
    expect(ran).toEqual(['begins', 'ends'])
    expect(await historyOf(other, 'job')).toMatchObject([{ outcome: 'done' }])
  })
})

describe.each(ENDINGS.slice(2))('%s', (_, end) => {
  test('a run that does not heed its signal is lost, and that is told when it ends at last', async () => {
    const done = gate()
    const { host, other } = await running(() => done.opened)
    const ended = watched(end(host))
    await world.clock.advance('7s')
    expect(ended.state, 'it is not waited for without end').toBe('resolved')
    expect(await historyOf(other, 'job')).toMatchObject([{ attempt: 2 }, { outcome: 'lost' }])
    done.open()
    await settled()
    expect(host.errors).toEqual([expect.any(LeaseLostError)])
    expect(host.errors[0]).toMatchObject({ why: 'closed' })
  })

  test('a tick() that throws because it was told to stop is stopped, and rejects with what it threw', async () => {
    const host = world.host('host')
    const asked = watched(tick(host.locks, 'job', NOON, untilTold))
    await settled()
    const ended = end(host)
    await world.clock.advance('2s')
    await ended
    expect(asked.error).toBeInstanceOf(ClosedError)
    expect(await historyOf(world.host('other'), 'job')).toMatchObject([{ outcome: 'stopped' }])
  })

  test('what else is held is lost at once, while a run ends', async () => {
    const done: Gate = gate()
    const { host } = await running(async (run) => {
      await untilTold(run).catch(() => {})
      await done.opened
    })
    const lease = await host.locks.mutex('other').acquire()
    const ended = watched(end(host))
    await world.clock.advance('1s')
    expect(lease.signal.reason).toMatchObject({ why: 'closed' })
    // The moment in which its holder may tidy up, after a drain.
    await world.clock.advance('500ms')
    await expect(host.locks.mutex('other').acquire()).rejects.toThrow(ClosedError)
    await expect(tick(host.locks, 'other', NOON, () => {})).rejects.toThrow(ClosedError)
    expect(ended.state).toBe('pending')
    done.open()
    await world.clock.advance('1s')
    expect(ended.state).toBe('resolved')
  })
})

test('what a run throws by itself while the jobs are drained is told', async () => {
  const done = gate()
  const { host, other } = await running(async () => {
    await done.opened
    throw new Error('no disk')
  })
  const drained = host.locks.drain({ grace: '10s' })
  await world.clock.advance('1s')
  done.open()
  await world.clock.advance('1s')
  await drained
  expect(host.errors.map(String)).toEqual(['Error: no disk'])
  expect(await historyOf(other, 'job')).toMatchObject([{ outcome: 'failed' }])
})
