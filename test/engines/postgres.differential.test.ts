/** PostgreSQL under a clock of ours answers as the memory engine does, and its tokens do not go back with the clock. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { Claim, Engine, Line } from '../../src/core/engine.ts'
import { openPostgres } from '../../src/engines/postgres/index.ts'
import { Clockwork } from '../servers/clockwork.ts'
import { describeServer } from '../servers/suite.ts'
import { Pair, Trace } from './differential.ts'

const CLIENTS = 3
const STEPS = 1500

function claimOf(key: string, id: string): Claim {
  return { key, id, holder: 'test', weight: 1, limit: 1, ttlMs: 10_000, wait: true }
}

async function tokenOf(engine: Engine, claim: Claim): Promise<bigint> {
  const [standing] = await engine.enter([claim])
  if (standing?.state !== 'held' || standing.token === null) throw new Error(`not held: ${standing?.state}`)
  await engine.leave([claim])
  return standing.token
}

await describeServer('PostgreSQL under a clock of ours', Clockwork.postgres, ({ clock, server }) => {
  let database: string

  beforeAll(async () => {
    database = await server.database()
  })

  afterAll(async () => {
    await server[Symbol.asyncDispose]()
    clock[Symbol.dispose]()
  })

  test.each([1, 2, 3, 4])('answers as memory does, three clients, seed %i', async (seed) => {
    const name = `seed_${seed}`
    await using pair = new Pair(
      clock,
      await Promise.all(Array.from({ length: CLIENTS }, () => openPostgres(database, { name, listen: false }))),
    )
    const trace = new Trace(seed, pair)
    for (let number = 0; number < STEPS; number += 1) await trace.step(number)
  })

  test.each([
    ['alone', []],
    ['before one that waits', ['waiter']],
  ])(
    'what is to outlive its process, %s, is not cut short by an enter or a renewal from before that comes late',
    async (name, others) => {
      await using pair = new Pair(clock, [
        await openPostgres(database, { name: `outlives_${others.length}`, listen: false }),
      ])
      const [memory, other] = [pair.memories[0] as Engine, pair.others[0] as Engine]
      const claim = claimOf(name, 'leaving')
      const both = async (what: string, ask: (engine: Engine) => Promise<unknown>): Promise<unknown> => {
        const [expected, found] = [await ask(memory), await ask(other)]
        pair.learn(expected, found, [name])
        pair.same(expected, found, what, [name])
        return found
      }
      const remaining = async (): Promise<number> =>
        Math.round(((await both('inspect', (engine) => engine.inspect(name))) as Line).entries[0]?.remainingMs ?? 0)
      await both('enter', (engine) => engine.enter([claim]))
      for (const id of others)
        await both('wait', (engine) => engine.enter([{ ...claimOf(name, id), ttlMs: 3_600_000 }]))
      await both('leave for later', (engine) => engine.renew([{ ...claim, ttlMs: 60_000, outlives: true }]))
      await both('a late renewal', (engine) => engine.renew([claim]))
      expect(await remaining()).toBe(60_000)
      await both('a late enter', (engine) => engine.enter([claim]))
      await both('a late batch', (engine) => engine.enter([claim, { ...claim, key: 'another' }]))
      expect(await remaining()).toBe(60_000)
      // A renewal that says so again may.
      await both('leave for sooner', (engine) => engine.renew([{ ...claim, ttlMs: 20_000, outlives: true }]))
      expect(await remaining()).toBe(20_000)
      await pair.advance(20_001)
      expect(await both('gone', (engine) => engine.renew([claim]))).toEqual([{ state: 'gone', why: 'unknown' }])
      // The next one to hold the line is an entry like any other.
      const next = claimOf(name, 'next')
      for (const id of others) await both('leave', (engine) => engine.leave([claimOf(name, id)]))
      await both('enter', (engine) => engine.enter([next]))
      await both('renew', (engine) => engine.renew([{ ...next, ttlMs: 1000 }]))
      expect(await remaining()).toBe(1000)
    },
  )

  test('tokens go on rising when the clock is set back, also when the rows of their lines have been removed', async () => {
    const rows = async (): Promise<unknown> => {
      await using connection = await server.connect(database)
      return await connection.value('SELECT count(*)::int FROM holdfast_line')
    }
    let last = 0n
    for (let round = 0; round < 4; round += 1) {
      const engine = await openPostgres(database, { listen: false })
      for (const ids of [['a'], ['b', 'c']]) {
        const claims = ids.map((id) => claimOf(id === 'c' ? 'other' : 'key', `${id}${round}`))
        const [standing] = await engine.enter(claims)
        if (standing?.state !== 'held' || standing.token === null) throw new Error(`not held: ${standing?.state}`)
        expect(standing.token).toBeGreaterThan(last)
        last = standing.token
        await engine.leave(claims)
      }
      // An engine that is closed clears away what it left.
      await engine[Symbol.asyncDispose]()
      expect(await rows()).toBe(0)
      clock.advance(-3_600_000)
    }
    clock.advance(4 * 3_600_000)
  })

  test('a clock that is set back does not take a lock away, and does not give one twice', async () => {
    await using engine = await openPostgres(database, { listen: false })
    const [first, second] = [claimOf('taken', '1'), claimOf('taken', '2')]
    await engine.enter([first])
    clock.advance(20_000)
    const [granted] = await engine.enter([second])
    expect(granted?.state).toBe('held')
    clock.advance(-20_000)
    const [late, holding] = await engine.renew([first, second])
    expect(late).toEqual({ state: 'gone', why: 'unknown' })
    expect(holding?.state).toBe('held')
    await engine.leave([second])
    expect(await tokenOf(engine, claimOf('taken', '3'))).toBeGreaterThan(
      granted?.state === 'held' ? (granted.token ?? 0n) : 0n,
    )
    clock.advance(20_000)
  })
})
