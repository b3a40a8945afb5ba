/** Records beside session locks: their connection is not that of the locks, and neither fails with the other. */
import { expect, test } from 'vitest'
import { isStored, putOne, putting, read, textOf } from '../../conformance/records.ts'
import type { Store } from '../../src/core/store.ts'
import {
  openPostgresAdvisory,
  postgresAdvisory,
  type SessionClient,
} from '../../src/engines/postgres-advisory/index.ts'
import { createLocks } from '../../src/index.ts'
import { fakeClock } from '../../src/testing.ts'
import { findPostgres, PostgresConnection, type PostgresServer } from '../servers/postgres.ts'
import { FaultProxy } from '../servers/proxy.ts'
import { describeServer } from '../servers/suite.ts'
import { withLooker } from './postgres-looker.ts'

await describeServer('records beside session locks', findPostgres, (source) => {
  let server: PostgresServer
  let database: string
  let looker: PostgresConnection

  withLooker(source, (there) => {
    ;({ server, database, looker } = there)
  })

  test('a connection that the server ends, and a statement that fails, cost no lock', async () => {
    const engine = await openPostgresAdvisory(database)
    await using locks = createLocks(engine)
    const { store } = engine as { store: Store }
    const lease = await locks.mutex('held').acquire()
    isStored(await putOne(store, putting('key', 'first')))
    await looker.query(
      `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND query LIKE '%advisory1_put%' AND pid <> pg_backend_pid()`,
    )
    // Whether the end of the connection is known by now is not said: the second call finds another one.
    await store.get(['key']).catch(() => undefined)
    expect(await textOf(store, 'key')).toBe('first')
    await looker.query('ALTER TABLE holdfast_advisory1_records RENAME TO holdfast_advisory1_elsewhere')
    await expect(putOne(store, putting('key', 'second'))).rejects.toMatchObject({ outcome: 'not-applied' })
    await looker.query('ALTER TABLE holdfast_advisory1_elsewhere RENAME TO holdfast_advisory1_records')
    isStored(await putOne(store, putting('key', 'third')))
    expect(lease.held).toBe(true)
    expect(await lease.release()).toBe(true)
  })

  test('a user who may not make the table leaves no connection behind, however often it is tried', async () => {
    const fresh = await server.database()
    await using owner = await server.connect(fresh)
    await owner.query('CREATE ROLE clerk LOGIN')
    await owner.query('REVOKE CREATE ON SCHEMA public FROM public')
    const url = new URL(fresh)
    url.username = 'clerk'
    const engine = await openPostgresAdvisory(url.href)
    try {
      for (let attempt = 0; attempt < 5; attempt += 1)
        await expect(engine.store?.get(['key'])).rejects.toThrow(/permission denied/)
      const backends = (): Promise<readonly object[]> =>
        owner.query(`SELECT pid FROM pg_stat_activity WHERE usename = 'clerk' AND datname = current_database()`)
      await expect.poll(backends, { timeout: 10_000 }).toEqual([])
    } finally {
      await engine[Symbol.asyncDispose]()
    }
  })

  test('a server that takes the connection and says nothing is left in time, and the next call finds it well', async () => {
    await using proxy = await FaultProxy.start(server)
    const url = new URL(database)
    url.host = `127.0.0.1:${proxy.port}`
    let connections = 0
    const connect = async (): Promise<SessionClient> => {
      const { client } = await PostgresConnection.open(url.href)
      connections += 1
      if (connections === 1) proxy.blackHole()
      return client as unknown as SessionClient
    }
    const clock = fakeClock()
    const engine = postgresAdvisory({ connect, clock })
    try {
      const store = engine.store as Store
      const first = store.get(['silent'])
      // A call that comes later waits for the same opening.
      const second = store.get(['silent'])
      const refused = expect(first).rejects.toMatchObject({ code: 'ENGINE', outcome: 'not-applied' })
      await expect.poll(() => proxy.heldBytes('requests')).toBeGreaterThan(0)
      await clock.advance('10s')
      await refused
      await proxy.heal()
      expect(await second).toMatchObject([{ state: 'read', stored: { value: null } }])
      expect(connections).toBe(2)
      // The first one has ended.
      await expect.poll(() => proxy.size).toBe(1)
    } finally {
      await engine[Symbol.asyncDispose]()
    }
  })

  test('rows of what has expired go when the engine is closed, and versions go on', async () => {
    const engine = await openPostgresAdvisory(database)
    const before = isStored(await putOne(engine.store as Store, putting('short', 'x', {}, { ttlMs: 1 })))
    await expect.poll(() => textOf(engine.store as Store, 'short')).toBe(null)
    await engine[Symbol.asyncDispose]()
    expect(await looker.query(`SELECT key FROM holdfast_advisory1_records WHERE key = 'short'`)).toEqual([])
    const next = await openPostgresAdvisory(database)
    try {
      const { version } = isStored(await putOne(next.store as Store, putting('short', 'y', { version: 0n })))
      expect(version).toBeGreaterThan(before.version)
      expect((await read(next.store as Store, 'short')).version).toBe(version)
    } finally {
      await next[Symbol.asyncDispose]()
    }
  })
})
