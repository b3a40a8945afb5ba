/**
 * Pools on every server that keeps them, under a clock of ours: random steps, by three clients, are answered as the
 * memory engine answers them. That one has the rule itself, which is compared with a model in unit/pool-rule.test.ts.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, test } from 'vitest'
import { comparable, PoolTrace } from '../../conformance/pool-trace.ts'
import type { Engine } from '../../src/core/engine.ts'
import type { Store } from '../../src/core/store.ts'
import type { PoolAnswer, PoolStep } from '../../src/core/store-hold.ts'
import { openMysql } from '../../src/engines/mysql/index.ts'
import { openPostgres } from '../../src/engines/postgres/index.ts'
import { openRedis } from '../../src/engines/redis/index.ts'
import { sqlite } from '../../src/engines/sqlite/index.ts'
import { type FakeClock, fakeClock, MemoryServer, memory } from '../../src/testing.ts'
import { Clockwork } from '../servers/clockwork.ts'
import { describeServer } from '../servers/suite.ts'

const CLIENTS = 3
const CALLS = 600
const SEEDS = [1, 2]

function hold(engine: Engine, steps: readonly PoolStep[]): Promise<readonly PoolAnswer[]> {
  return (engine.store as Store & { hold: NonNullable<Store['hold']> }).hold(steps)
}

async function compare(
  seed: number,
  engines: readonly Engine[],
  advance: (ms: number) => void,
  clock: FakeClock = fakeClock(),
): Promise<void> {
  const reference = memory({ server: new MemoryServer({ clock }) })
  const trace = new PoolTrace(seed)
  try {
    for (let call = 0; call < CALLS; call += 1) {
      const next = trace.next()
      if (typeof next === 'number') {
        await clock.advance(next)
        advance(next)
        continue
      }
      const engine = engines[call % engines.length] as Engine
      const limit = engine.store?.traits.batchLimit ?? 1
      for (let from = 0; from < next.length; from += limit) {
        const steps = next.slice(from, from + limit)
        const [expected, found] = [await hold(reference, steps), await hold(engine, steps)]
        for (const [index, step] of steps.entries())
          expect(comparable(found[index]), `seed ${seed}, call ${call}, ${JSON.stringify(step)}`).toEqual(
            comparable(expected[index]),
          )
      }
    }
  } finally {
    await Promise.all(engines.map((engine) => engine[Symbol.asyncDispose]()))
  }
}

/** The engine of one client, of a trace. */
type Open<Server> = (server: Server, seed: number) => Promise<Engine>

function compared<Server extends AsyncDisposable>(open: Open<Server>): (clockwork: Clockwork<Server>) => void {
  return (clockwork) => {
    const { clock, server } = clockwork
    afterAll(() => clockwork[Symbol.asyncDispose]())

    test.each(SEEDS)('answers as memory does, three clients, seed %i', async (seed) => {
      const engines = await Promise.all(Array.from({ length: CLIENTS }, () => open(server, seed)))
      await compare(seed, engines, (ms) => clock.advance(ms))
    })
  }
}

await describeServer(
  'pools on Redis',
  Clockwork.start,
  compared((server, seed) => openRedis(server.url, { prefix: `seed ${seed}:` })),
)

await describeServer(
  'pools on PostgreSQL',
  Clockwork.postgres,
  compared((server, seed) => openPostgres(server.url, { name: `seed_${seed}`, listen: false })),
)

await describeServer(
  'pools on MariaDB',
  Clockwork.mariadb,
  compared((server, seed) => openMysql(server.url, { name: `seed_${seed}`, listen: false })),
)

describe('pools on SQLite', () => {
  test.each(SEEDS)('answers as memory does, three clients, seed %i', async (seed) => {
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-stock-'))
    const clock = fakeClock()
    const open = (): Engine => sqlite({ file: join(folder, 'locks.db'), clock })
    try {
      await compare(seed, Array.from({ length: CLIENTS }, open), () => undefined, clock)
    } finally {
      rmSync(folder, { recursive: true })
    }
  })
})
