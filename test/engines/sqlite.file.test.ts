/** What is in the file over time: it survives what it should, forgets what it should, and nothing piles up. */
import { existsSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test, vi } from 'vitest'
import { loadDriver } from '../../src/clients/sqlite/driver.ts'
import { type Claim, type News, type Standing, UNLIMITED } from '../../src/core/engine.ts'
import { LineFullError } from '../../src/core/errors.ts'
import { type SqliteEngine, sqlite } from '../../src/engines/sqlite/index.ts'
import { WakeFiles } from '../../src/engines/sqlite/listen.ts'
import { createLocks } from '../../src/locks.ts'
import { fakeClock } from '../../src/testing.ts'
import { claim } from './sqlite.process.ts'
import { children, file, open } from './sqlite-world.ts'

/**
 * With a connection of our own, of the same SQLite as the engine's: two copies of it in one process would undo each
 * other's file locks.
 */
async function sql(statement: string): Promise<Record<string, unknown>[]> {
  const database = (await loadDriver()).open(file)
  try {
    return database.prepare(statement).all() as Record<string, unknown>[]
  } finally {
    database.close()
  }
}

async function rows(...tables: string[]): Promise<unknown[]> {
  const counts: unknown[] = []
  for (const table of tables) counts.push((await sql(`select count(*) as count from ${table}`))[0]?.count)
  return counts
}

async function enterOne(engine: SqliteEngine, one: Claim): Promise<Standing> {
  const [standing] = await engine.enter([one])
  return standing as Standing
}

async function tokenOf(engine: SqliteEngine, key: string): Promise<bigint> {
  const standing = await enterOne(engine, claim(key))
  if (standing.state !== 'held' || standing.token === null) throw new Error(`not held but ${standing.state}`)
  return standing.token
}

test('an engine that is closed while another process keeps the file busy gives up soon, and lets the process end', async () => {
  const engine = open()
  await tokenOf(engine, 'k')
  const other = (await loadDriver()).open(file)
  try {
    other.exec('begin immediate')
    await engine[Symbol.asyncDispose]()
  } finally {
    other.close()
  }
  const later = open()
  expect(
    (await later.inspect('k')).entries,
    'what it could not take out is there until its process is dead',
  ).toHaveLength(1)
  // Half of what the engine waits for a busy file as long as it is open.
}, 15_000)

describe('after a restart of the machine', () => {
  test('all entries of before are gone, and tokens go on', async () => {
    const before = open()
    const token = await tokenOf(before, 'k')
    await enterOne(before, claim('k'))
    await before[Symbol.asyncDispose]()
    await sql("update holdfast_file set boot = 'the one before' returning 1")
    const after = open()
    expect((await after.inspect('k')).entries).toEqual([])
    expect(await tokenOf(after, 'k')).toBeGreaterThan(token)
  })

  test('a clock that went back says so where the machine has no boot id', async () => {
    const late = fakeClock()
    await late.advance(1_000_000)
    const before = open({ clock: late })
    const token = await tokenOf(before, 'k')
    await before[Symbol.asyncDispose]()
    await sql('update holdfast_file set boot = null returning 1')
    const after = open({ clock: fakeClock() })
    expect((await after.inspect('k')).entries).toEqual([])
    expect(await tokenOf(after, 'k')).toBeGreaterThan(token)
  })

  test('a process that lives on, because it is on another machine, may not enter any more', async () => {
    const here = open()
    const held = claim('k')
    await enterOne(here, held)
    await sql('update holdfast_file set epoch = epoch + 1 returning 1')
    await expect(here.enter([claim('other')])).rejects.toThrow(/taken over by another machine/)
  })
})

describe('tokens', () => {
  test('go on from the last one when the wall clock is behind it', async () => {
    const engine = open()
    const first = await tokenOf(engine, 'a')
    await sql('update holdfast_file set token = token + 1000000000000000 returning 1')
    const later = await tokenOf(engine, 'b')
    expect(later).toBeGreaterThan(first + 1_000_000_000_000_000n)
    expect(await tokenOf(engine, 'c')).toBe(later + 1n)
  })

  test('go on from the wall clock when the file was lost, and a holder in it learns that', async () => {
    const engine = open()
    const held = claim('k')
    const before = await enterOne(engine, held)
    for (const part of ['', '-wal', '-shm']) rmSync(file + part)
    const other = open()
    const after = await tokenOf(other, 'k')
    expect(after).toBeGreaterThan((before as { token: bigint }).token)
    await expect.poll(() => engine.renew([held])).toEqual([{ state: 'gone', why: 'unknown' }])
    expect(await enterOne(engine, claim('k', { wait: false }))).toEqual({ state: 'busy', ahead: 1 })
  })
})

describe('a line', () => {
  test('takes ten thousand and no more, and lets them through in order', async () => {
    const engine = open()
    const told: string[] = []
    await engine.subscribe((news) => 'id' in news && told.push(news.id))
    const claims = Array.from({ length: 10_000 }, () => claim('k'))
    for (let from = 0; from < claims.length; from += 1000) await engine.enter(claims.slice(from, from + 1000))
    const [full] = await engine.enter([claim('k')])
    expect(full).toMatchObject({ state: 'failed', error: expect.any(LineFullError) })
    for (let from = 0; from < claims.length; from += 1000) {
      // Each leave lets the next one hold, which leaves in the same batch.
      expect(await engine.leave(claims.slice(from, from + 1000))).toEqual(Array(1000).fill(true))
    }
    expect(told).toEqual(claims.slice(1).map(({ id }) => id))
    expect(await rows('holdfast_entry', 'holdfast_line')).toEqual([0, 0])
  })

  test('does not forget the limit of the one that was there first, alone', async () => {
    const engine = open()
    const claims = [3, 2, UNLIMITED, UNLIMITED, UNLIMITED].map((limit) => claim('k', { limit }))
    expect((await engine.enter(claims)).map(({ state }) => state)).toEqual([
      'held',
      'held',
      'waiting',
      'waiting',
      'waiting',
    ])
    await engine.leave([claims[1] as Claim])
    expect((await engine.inspect('k')).entries.map(({ state }) => state)).toEqual(['held', 'held', 'held', 'waiting'])
  })

  test('knows the smallest of many limits, in whatever order holders leave', async () => {
    const engine = open()
    const claims = [5, UNLIMITED, 3, 3, 4].map((limit) => claim('k', { limit }))
    const states = (await engine.enter(claims)).map(({ state }) => state)
    expect(states).toEqual(['held', 'held', 'held', 'waiting', 'waiting'])
    await engine.leave([claims[2] as Claim])
    expect((await engine.inspect('k')).entries.map(({ state }) => state)).toEqual(['held', 'held', 'held', 'waiting'])
    await engine.leave([claims[3] as Claim])
    expect((await engine.inspect('k')).entries.map(({ state }) => state)).toEqual(['held', 'held', 'held'])
  })
})

describe('nothing piles up', () => {
  test('after many cycles of acquiring, cancelling and releasing', async () => {
    const locks = createLocks(open(), { ttl: '5s' })
    for (let round = 0; round < 300; round += 1) {
      const key = `k${round % 7}`
      const lease = await locks.mutex(key).acquire()
      const cancel = new AbortController()
      const cancelled = locks.mutex(key).acquire({ signal: cancel.signal })
      if (round % 2 === 0) await new Promise(setImmediate)
      cancel.abort(new Error('enough'))
      await expect(cancelled).rejects.toThrow('enough')
      await lease.release()
    }
    await locks.close()
    expect(await rows('holdfast_entry', 'holdfast_line', 'holdfast_client')).toEqual([0, 0, 0])
    expect(existsSync(`${file}-wake`) ? readdirSync(`${file}-wake`) : []).toEqual([])
  })

  test('what was evicted is forgotten when it would have expired', async () => {
    const clock = fakeClock()
    const engine = open({ clock })
    const held = claim('k', { ttlMs: 1000 })
    const standing = await enterOne(engine, held)
    await engine.evict('k', (standing as { token: bigint }).token, 'now')
    expect(await engine.renew([held])).toEqual([{ state: 'gone', why: 'evicted' }])
    await clock.advance(1001)
    expect(await engine.renew([held])).toEqual([{ state: 'gone', why: 'unknown' }])
    expect(await rows('holdfast_entry')).toEqual([0])
  })

  test('rows and wake files of killed processes go when others come', async () => {
    const engine = open()
    await enterOne(engine, claim('k'))
    for (let round = 0; round < 3; round += 1) {
      const child = await children.start({ file })
      await child.enter(claim('k'))
      await child.end()
    }
    expect(readdirSync(`${file}-wake`).length).toBeGreaterThan(0)
    const next = open()
    await enterOne(next, claim('another'))
    expect(await rows('holdfast_client', 'holdfast_entry')).toEqual([2, 2])
    const living = (await sql('select client from holdfast_client')).map(({ client }) => String(client))
    expect(living).toEqual(expect.arrayContaining(readdirSync(`${file}-wake`)))
  })
})

test('an observer without an entry hears that a line of another process has changed', async () => {
  const [engine, child] = [open(), await children.start({ file })]
  let heard = 0
  const watching = await engine.watch('k', () => {
    heard += 1
  })
  const held = claim('k')
  await child.enter(held)
  await expect.poll(() => heard, { timeout: 20_000 }).toBeGreaterThan(0)
  const before = heard
  await child.ask('leave', [held])
  await expect.poll(() => heard, { timeout: 20_000 }).toBeGreaterThan(before)
  await watching[Symbol.asyncDispose]()
})

test('a wake file tells the token of a grant, and none that is not there twice', async () => {
  const LIMIT = { timeout: 10_000, interval: 5 }
  writeFileSync(file, '')
  const heard: number[] = []
  const [one, other] = [new WakeFiles(file, (token) => heard.push(token)), new WakeFiles(file, () => {})]
  one.listen(7)
  other.wake(new Map([[7, 1_700_000_000_000_001]]))
  await vi.waitFor(() => expect(heard.at(-1)).toBe(1_700_000_000_000_001), LIMIT)
  // Half of one record and half of another.
  writeFileSync(join(`${file}-wake`, '7'), new BigUint64Array([1n, 2n]), { flag: 'r+' })
  await vi.waitFor(() => expect(heard.at(-1)).toBe(0), LIMIT)
  one.close()
  other.close()
})

test('free locks in a row leave the event loop its turns', async () => {
  const engine = open()
  let turns = 0
  const timer = setInterval(() => {
    turns += 1
  }, 1)
  const limit = performance.now() + 5_000
  while (turns < 5 && performance.now() < limit) {
    const one = claim('k')
    await engine.enter([one])
    await engine.leave([one])
  }
  clearInterval(timer)
  expect(turns).toBe(5)
})

test('opening and closing keeps no descriptor', async (context) => {
  if (process.platform !== 'linux') return context.skip('only Linux lists the descriptors of a process')
  const cycle = async (): Promise<void> => {
    const engine = sqlite({ file })
    await engine.enter([claim('k', { ttlMs: 50 })])
    await engine[Symbol.asyncDispose]()
  }
  const count = (): number => readdirSync('/proc/self/fd').length
  await cycle()
  const before = count()
  for (let round = 0; round < 50; round += 1) await cycle()
  // Some room for what else this process does.
  expect(count() - before).toBeLessThan(10)
})

test('a holder that never waited hears at once that it was evicted by expiry, and its leaving frees the line', async () => {
  const [here, there] = [open(), await children.start({ file })]
  const [held, next] = [claim('k'), claim('k')]
  const heard = new Promise<News>((resolve) => void here.subscribe(resolve))
  const token = await enterOne(here, held).then((standing) => (standing as { token: bigint }).token)
  expect(await there.enter(next)).toMatchObject({ state: 'waiting' })
  expect(await there.ask('evict', 'k', token, 'expire')).toBe(true)
  expect(await heard).toEqual({ key: 'k', id: held.id, standing: { state: 'gone', why: 'evicted' } })
  expect((await here.inspect('k')).entries.map(({ state }) => state)).toEqual(['held', 'waiting'])
  expect(await here.leave([held])).toEqual([true])
  expect((await here.inspect('k')).entries).toMatchObject([{ id: next.id, state: 'held' }])
})

test('a holder that evicts itself by expiry is told as well', async () => {
  const engine = open()
  const held = claim('k')
  const heard = new Promise<News>((resolve) => void engine.subscribe(resolve))
  await engine.evict('k', ((await enterOne(engine, held)) as { token: bigint }).token, 'expire')
  expect(await heard).toEqual({ key: 'k', id: held.id, standing: { state: 'gone', why: 'evicted' } })
})
