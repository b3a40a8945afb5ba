/**
 * Behind PgBouncer, which gives a connection for one transaction only: locks work, waiters poll, and with a way past it
 * they are woken.
 */
import { afterAll, beforeAll, describe, expect, it, test, vi } from 'vitest'
import { conformance } from '../../conformance/index.ts'
import { openPostgres } from '../../src/engines/postgres/index.ts'
import { createLocks, type Locks } from '../../src/index.ts'
import { findPgBouncer, PgBouncer } from '../servers/pgbouncer.ts'
import { findOwnPostgres, PostgresServer } from '../servers/postgres.ts'
import { Missing, type Program } from '../servers/programs.ts'
import { describeServer } from '../servers/suite.ts'
import { postgresWorld } from './postgres-world.ts'

const LIMIT = { timeout: 30_000, interval: 5 }

async function findBoth(): Promise<
  { readonly postgres: { readonly program: Program }; readonly bouncer: Program } | Missing
> {
  const postgres = await findOwnPostgres()
  if (postgres instanceof Missing) return postgres
  const bouncer = await findPgBouncer()
  return bouncer instanceof Missing ? bouncer : { postgres, bouncer }
}

await describeServer('behind PgBouncer in transaction mode', findBoth, (source) => {
  let server: PostgresServer
  let bouncer: PgBouncer
  let database: string
  const opened: Locks[] = []

  async function open(options: Parameters<typeof openPostgres>[1] = {}): Promise<Locks> {
    const locks = createLocks(await openPostgres(bouncer.through(database), options), { ttl: '600s' })
    opened.push(locks)
    return locks
  }

  beforeAll(async () => {
    server = await PostgresServer.start(source.postgres)
    // Fewer connections than clients: they share them, and meet each other's traces.
    bouncer = await PgBouncer.start(source.bouncer, server, { poolSize: 2 })
    database = await server.database()
    return async () => {
      await Promise.all(opened.splice(0).map((locks) => locks.close()))
      await bouncer[Symbol.asyncDispose]()
      await server[Symbol.asyncDispose]()
    }
  })

  async function handOff(one: Locks, other: Locks): Promise<void> {
    const lease = await one.mutex('key').acquire()
    const waiting = other.mutex('key').acquire()
    await vi.waitFor(async () => expect((await one.inspect('key')).entries).toHaveLength(2), LIMIT)
    await lease.release()
    const next = await waiting
    expect(next.token).toBeGreaterThan(lease.token as bigint)
    await next.release()
  }

  test('a waiter looks often enough, though it cannot be told anything', async () => {
    const [one, other] = [await open(), await open()]
    for (let round = 0; round < 5; round += 1) await handOff(one, other)
  })

  test('with a way to listen past it, a waiter is woken, and does not poll', async () => {
    const [one, other] = [await open({ listenUrl: database }), await open({ listenUrl: database })]
    await handOff(one, other)
    const lease = await one.mutex('key').acquire()
    const waiting = other.mutex('key').acquire()
    await vi.waitFor(async () => expect((await one.inspect('key')).entries).toHaveLength(2), LIMIT)
    await using connection = await server.connect(database)
    const asked = async (): Promise<number> =>
      Number(await connection.value(`SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()`))
    // It hears its own message at the first look, and from then on it is silent: only our own question counts, while a
    // poller would ask every half second.
    await vi.waitFor(
      async () => {
        const before = await asked()
        await new Promise((resolve) => setTimeout(resolve, 1500))
        expect((await asked()) - before).toBeLessThanOrEqual(1)
      },
      { timeout: 30_000 },
    )
    await lease.release()
    await (await waiting).release()
  })

  test('many at once, on two connections, lose no update', async () => {
    const all = await Promise.all(Array.from({ length: 6 }, () => open()))
    let counter = 0
    await Promise.all(
      all.flatMap((locks) =>
        Array.from({ length: 10 }, () =>
          locks.mutex('counter').using(async () => {
            const before = counter
            await new Promise((resolve) => setImmediate(resolve))
            counter = before + 1
          }),
        ),
      ),
    )
    expect(counter).toBe(60)
  })
})

/** What depends on the way to the server. */
const ASKED = ['batches', 'looking', 'expiry', 'trying', 'sharing']

await describeServer('PostgreSQL by way of PgBouncer', findBoth, (source) => {
  let bouncer: PgBouncer
  const makeWorld = async () => {
    const server = await PostgresServer.start(source.postgres)
    bouncer = await PgBouncer.start(source.bouncer, server, { poolSize: 3 })
    return await postgresWorld(server, (database) => ({
      engine: () => openPostgres(bouncer.through(database)),
      close: () => bouncer[Symbol.asyncDispose](),
    }))
  }
  conformance({ describe, it, afterAll }, 'postgres', makeWorld, { only: (_, property) => ASKED.includes(property) })
})
