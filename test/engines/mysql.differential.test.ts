/** MariaDB under a clock of ours answers as the memory engine does, and its tokens do not go back with the clock. */

import { createPool } from 'mysql2/promise'
import { afterAll, expect, test, vi } from 'vitest'
import type { Claim, Engine, Standing } from '../../src/core/engine.ts'
import { mysql, openMysql } from '../../src/engines/mysql/index.ts'
import { createLocks } from '../../src/index.ts'
import { newClaim } from '../claims.ts'
import { Clockwork } from '../servers/clockwork.ts'
import { describeServer } from '../servers/suite.ts'
import { Pair, Trace } from './differential.ts'

const CLIENTS = 3
const STEPS = 1200

function claimOf(key: string): Claim {
  return newClaim(key, { ttlMs: 10_000 })
}

function tokenOf(standing: Standing | undefined): bigint {
  if (standing?.state !== 'held' || standing.token === null) throw new Error(`not held: ${standing?.state}`)
  return standing.token
}

await describeServer('MariaDB under a clock of ours', Clockwork.mariadb, ({ clock, server }) => {
  afterAll(async () => {
    await server[Symbol.asyncDispose]()
    clock[Symbol.dispose]()
  })

  test.each([1, 2, 3, 4])('answers as memory does, three clients, seed %i', async (seed) => {
    const name = `seed_${seed}`
    const open = (): Promise<Engine> => openMysql(server.url, { name, listen: false })
    await using pair = new Pair(clock, await Promise.all(Array.from({ length: CLIENTS }, open)))
    const trace = new Trace(seed, pair)
    for (let number = 0; number < STEPS; number += 1) await trace.step(number)
  })

  test('answers so also where a statement says only what it has changed, and not what it has found', async () => {
    const pool = createPool({ uri: server.url, flags: ['-FOUND_ROWS'] })
    const open = (): Engine => mysql({ client: pool, name: 'found_rows', listen: false })
    {
      await using pair = new Pair(clock, Array.from({ length: CLIENTS }, open))
      const trace = new Trace(5, pair)
      for (let number = 0; number < STEPS / 2; number += 1) await trace.step(number)
    }
    await pool.end()
  })

  test('what is to outlive its process is not cut short by what was sent before and comes late: alone, in a batch, in a crowd, or asked for again', async () => {
    await using engine = await openMysql(server.url, { listen: false })
    const claims = ['outlives', 'outlives 2', 'outlives 3'].map(claimOf)
    const [first] = claims as [Claim]
    // To ten milliseconds: where time stands still, MariaDB counts a microsecond for each statement of a connection.
    const remainingMs = async ({ key }: Claim): Promise<number> => {
      const [entry] = (await engine.inspect(key)).entries
      return Math.round((entry?.remainingMs ?? 0) / 10) * 10
    }
    await engine.enter(claims)
    for (const claim of claims) await engine.renew([{ ...claim, ttlMs: 60_000, outlives: true }])
    await engine.renew([first])
    expect(await remainingMs(first)).toBe(60_000)
    await engine.renew(claims)
    expect(await Promise.all(claims.map(remainingMs))).toEqual([60_000, 60_000, 60_000])
    await engine.enter([first])
    expect(await remainingMs(first)).toBe(60_000)
    await engine.enter([claimOf('outlives')])
    await engine.renew([first])
    await engine.enter([first])
    expect(await remainingMs(first)).toBe(60_000)
    // It can be renewed for longer, and for less by a process that knows of it.
    await engine.renew([{ ...first, ttlMs: 90_000 }])
    expect(await remainingMs(first)).toBe(90_000)
    await engine.renew([{ ...first, ttlMs: 30_000, outlives: true }])
    expect(await remainingMs(first)).toBe(30_000)
    clock.advance(90_000)
    // The next entry has nothing of it.
    const [next] = [claimOf('outlives 2')] as [Claim]
    await engine.enter([next])
    await engine.renew([{ ...next, ttlMs: 1_000 }])
    expect(await remainingMs(next)).toBe(1_000)
  })

  test('tokens go on rising when the clock is set back, also when the rows of their lines have been removed', async () => {
    const rows = async (): Promise<unknown> =>
      (await server.asRoot('select count(*) as n from holdfast.holdfast_line'))[0]
    let last = 0n
    for (let round = 0; round < 4; round += 1) {
      const engine = await openMysql(server.url, { listen: false })
      for (const others of [[], ['other'], ['other', 'more']]) {
        const claims = ['key', ...others].map(claimOf)
        const [standing] = await engine.enter(claims)
        expect(tokenOf(standing)).toBeGreaterThan(last)
        last = tokenOf(standing)
        await engine.leave(claims)
      }
      // An engine that is closed clears away what it left.
      clock.advance(3_000)
      if (round === 0 || round === 3) clock.advance(4 * 3_600_000)
      await engine[Symbol.asyncDispose]()
      if (round === 0 || round === 3) expect(await rows()).toEqual({ n: 0 })
      clock.advance(-3_600_000)
    }
    clock.advance(4 * 3_600_000)
  })

  test('two who are let hold by one token, in two lines, are both told: tokens are those of a line, and with a clock set back they follow each other', async () => {
    const options = { ttl: '600s', callTimeout: '20s' } as const
    await using one = createLocks(await openMysql(server.url), options)
    await using other = createLocks(await openMysql(server.url), options)
    const line = (key: string, size: number) =>
      vi.waitFor(async () => expect((await one.inspect(key)).entries).toHaveLength(size), { timeout: 30_000 })
    const [first, second] = await Promise.all([one.mutex('token 1').acquire(), one.mutex('token 2').acquire()])
    expect(second.token).toBe((first.token as bigint) + 1n)
    clock.advance(-60_000)
    const next = one.mutex('token 1').acquire()
    await line('token 1', 2)
    const waiting = [other.mutex('token 1').acquire(), other.mutex('token 2').acquire()] as const
    await line('token 1', 3)
    await line('token 2', 2)
    await first.release()
    await (await next).release()
    const { token } = await waiting[0]
    await second.release()
    expect((await waiting[1]).token).toBe(token)
    clock.advance(60_000)
  })

  test('a clock that is set back leaves no waiter unheard: waiters are woken as before', async () => {
    // A third of this ttl is longer than the test may take.
    const options = { ttl: '600s', callTimeout: '20s' } as const
    await using one = createLocks(await openMysql(server.url), options)
    await using other = createLocks(await openMysql(server.url), options)
    for (let round = 0; round < 6; round += 1) {
      const lease = await one.mutex('heard').acquire()
      const waiting = other.mutex('heard').acquire()
      await vi.waitFor(async () => expect((await one.inspect('heard')).entries).toHaveLength(2), { timeout: 30_000 })
      if (round % 2 === 1) clock.advance(-60_000)
      await lease.release()
      await (await waiting).release()
    }
    clock.advance(4 * 60_000)
  })

  test('whom the clearing away of the dead lets hold is told, also if nothing could be cleared away', async () => {
    // By the clock of this process, a third of this ttl is longer than the test may take, and so is the ttl of the dead
    // one. By that of the server, no sleep is over.
    const options = { ttl: '7200s', callTimeout: '20s' } as const
    const dead = await openMysql(server.url, { listen: false })
    await dead.enter([{ ...claimOf('dead'), ttlMs: 200_000 }])
    await using waits = createLocks(await openMysql(server.url), options)
    const waiting = waits.mutex('dead').acquire()
    await vi.waitFor(async () => expect((await waits.inspect('dead')).entries).toHaveLength(2), { timeout: 30_000 })
    const passing = await openMysql(server.url, { listen: false })
    const claim = claimOf('dead')
    await passing.enter([claim])
    await passing.leave([claim])
    clock.advance(300_000)
    const hand = await server.connect()
    await hand.query('begin')
    await hand.query('select floor from holdfast_meta for update')
    // An engine that is closed clears away what it has left.
    await passing[Symbol.asyncDispose]()
    await (await waiting).release()
    await hand.query('commit')
    hand.destroy()
    await dead[Symbol.asyncDispose]()
  })

  test('a clock that is set back does not take a lock away, and does not give one twice', async () => {
    await using engine = await openMysql(server.url, { listen: false })
    const [first, second, third] = [claimOf('taken'), claimOf('taken'), claimOf('taken')]
    await engine.enter([first])
    clock.advance(20_000)
    const [granted] = await engine.enter([second])
    clock.advance(-20_000)
    const [late, holding] = await engine.renew([first, second])
    expect(late).toEqual({ state: 'gone', why: 'unknown' })
    expect(tokenOf(holding)).toBe(tokenOf(granted))
    await engine.leave([second])
    const [next] = await engine.enter([third])
    expect(tokenOf(next)).toBeGreaterThan(tokenOf(granted))
    await engine.leave([third])
    clock.advance(20_000)
  })
})
