/**
 * What is special about session locks: strangers use the same locks, a crash can take tokens back, and a pooler would
 * give the locks away.
 */
import { expect, test, vi } from 'vitest'
import { advisoryKey } from '../../src/clients/postgres/advisory-key.ts'
import { openPostgresAdvisory } from '../../src/engines/postgres-advisory/index.ts'
import { connect, UnsupportedError } from '../../src/index.ts'
import { createLocks, type Locks } from '../../src/locks.ts'
import { xactLock } from '../../src/transactions/postgres.ts'
import { findPgBouncer, PgBouncer } from '../servers/pgbouncer.ts'
import { findPostgres, type PostgresConnection, PostgresServer } from '../servers/postgres.ts'
import { describeServer, present } from '../servers/suite.ts'
import { withLooker } from './postgres-looker.ts'

/** For how long a server takes a silent session for alive, at least. */
const SESSION_MS = 30_000
const LIMIT = { timeout: 30_000, interval: 10 }

await describeServer('session locks', findPostgres, (source) => {
  let server: PostgresServer
  let database: string
  let looker: PostgresConnection

  withLooker(source, (there) => {
    ;({ server, database, looker } = there)
  })

  const open = async (): Promise<Locks> => createLocks(await openPostgresAdvisory(database))
  const locked = (key: string): Promise<unknown> =>
    looker.value(
      `SELECT count(*)::int FROM pg_locks WHERE locktype = 'advisory' AND ((classid::bigint << 32) | objid::bigint) = $1`,
      [String(advisoryKey(key))],
    )

  test('a release between the two looks of one that comes to wait is not missed', async () => {
    const [lock, flag, gate] = ['missed', 'missed\0waiting', 'gate'].map((name) => String(advisoryKey(name)))
    // Asked for the flag, this session waits at a gate first: between its try of the lock and that of the flag.
    await looker.query('CREATE SCHEMA gated')
    await looker.query(
      `CREATE FUNCTION gated.pg_try_advisory_lock_shared(bigint) RETURNS boolean LANGUAGE sql VOLATILE AS
        'SELECT pg_advisory_lock(${gate}); SELECT pg_catalog.pg_try_advisory_lock_shared($1)'`,
    )
    const url = new URL(database)
    url.searchParams.set('options', '-c search_path=gated,pg_catalog')
    await using engine = await openPostgresAdvisory(url.href)
    await looker.query('SELECT pg_advisory_lock($1), pg_advisory_lock($2)', [lock, gate])
    const claim = { key: 'missed', id: 'a waiter', ttlMs: 10_000, holder: 'it', weight: 1, limit: 1, wait: true }
    const entered = engine.enter([claim])
    const gated = `SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted`
    await vi.waitFor(async () => expect(await looker.query(gated)).toHaveLength(1), LIMIT)
    // As a holder releases: it unlocks, and then has the flag until its statement commits.
    await looker.query('BEGIN')
    await looker.query('SELECT pg_advisory_unlock($1), pg_try_advisory_xact_lock($2)', [lock, flag])
    await looker.query('SELECT pg_advisory_unlock($1)', [gate])
    expect(await entered).toMatchObject([{ state: 'held' }])
    await looker.query('COMMIT')
  })

  test('strangers who use the number of the same name, and xactLock, are excluded and exclude', async () => {
    await using locks = await open()
    const lease = await locks.mutex('ours').acquire()
    await looker.query('BEGIN')
    expect(await xactLock(looker.client, 'ours', { wait: 0 })).toEqual({ state: 'busy' })
    expect(await xactLock(looker.client, 'theirs')).toEqual({ state: 'locked' })
    expect(await locks.mutex('theirs').tryAcquire()).toBeUndefined()
    const asked = locks.mutex('theirs').acquire({ wait: '30s' })
    await lease.release()
    await looker.query('COMMIT')
    expect((await asked).held).toBe(true)
  })

  test('an entry that comes later asks for those before it, too, and they hear of it', async () => {
    await using locks = await open()
    await looker.query('BEGIN')
    await xactLock(looker.client, 'asked for')
    const first = locks.mutex('asked for').acquire({ wait: '8s' })
    await vi.waitFor(async () => expect((await locks.inspect('asked for')).entries).toHaveLength(1), LIMIT)
    // No message says that a stranger is gone: the next entry to come finds out.
    await looker.query('COMMIT')
    const second = locks.mutex('asked for').acquire({ wait: '30s' })
    await (await first).release()
    expect((await second).held).toBe(true)
  })

  test('two of one process do not hold together, though their session could; readers do', async () => {
    await using locks = await open()
    await using other = await open()
    const lease = await locks.mutex('twice').acquire()
    expect(await locks.mutex('twice').tryAcquire()).toBeUndefined()
    await lease.release()
    const { read, write } = locks.rw('twice')
    const readers = [await read.acquire(), await read.acquire(), await other.rw('twice').read.acquire()]
    expect(await write.tryAcquire()).toBeUndefined()
    for (const reader of readers) await reader.release()
    await (await write.acquire()).release()
    expect(await locked('twice')).toBe(0)
  })

  test('tokens go on rising after a crash in which the sequence lost what it wrote last', async (context) => {
    const { process: owned } = server
    if (owned === undefined) return context.skip('it is not our server')
    await using locks = await open()
    const lease = await locks.mutex('crash').acquire()
    await looker.query(
      `SELECT setval('holdfast_advisory1_tokens', greatest(1, last_value - 500)) FROM holdfast_advisory1_tokens`,
    )
    await looker[Symbol.asyncDispose]()
    await owned.kill()
    await owned.start()
    looker = await server.connect(database)
    const next = await vi.waitFor(async () => await locks.mutex('crash').acquire(), LIMIT)
    expect(lease.held).toBe(false)
    expect(next.token).toBeGreaterThan(lease.token as bigint)
    // In peace it counts by ones.
    await next.release()
    await using other = await open()
    expect((await other.mutex('crash').acquire()).token).toBe((next.token as bigint) + 1n)
  })

  test('tokens go on rising after a second fail-over, to a replica that has not heard of the first one', async (context) => {
    const { process: owned } = server
    if (owned === undefined) return context.skip('it is not our server')
    const crash = async (): Promise<void> => {
      await looker[Symbol.asyncDispose]()
      await owned.kill()
      await owned.start()
      looker = await server.connect(database)
    }
    const tokenOfNext = async (): Promise<bigint> => {
      await using locks = await open()
      return (await locks.mutex('fail-overs').acquire()).token as bigint
    }
    const first = await tokenOfNext()
    // Within a second of the crash before, what a fail-over adds would be ahead of the clock, which is to help here.
    const aheadOfClock = `SELECT FROM holdfast_advisory1_tokens
      WHERE last_value + 1001000 > extract(epoch FROM clock_timestamp()) * 1000000`
    await vi.waitFor(async () => expect(await looker.query(aheadOfClock)).toEqual([]), LIMIT)
    const known = await looker.value('SELECT last_value FROM holdfast_advisory1_tokens')
    await crash()
    const second = await tokenOfNext()
    expect(second).toBeGreaterThan(first)
    await looker.query(`SELECT setval('holdfast_advisory1_tokens', $1)`, [known])
    await crash()
    expect(await tokenOfNext()).toBeGreaterThan(second)
  })

  test('after two crashes in a row tokens need no clock: what the first one was made up for is on the disk', async (context) => {
    if ('url' in source) return context.skip('it is not our server')
    // What is not to be on the disk when a commit is answered is not there for long.
    await using own = await PostgresServer.start(source, { settings: { wal_writer_delay: '10s' } })
    const { process: owned } = own
    const tokenOfNext = async (): Promise<bigint> => {
      await using locks = createLocks(await openPostgresAdvisory(own.url))
      return (await locks.mutex('crashes').acquire()).token as bigint
    }
    await tokenOfNext()
    {
      await using admin = await own.connect()
      await admin.query('CHECKPOINT')
    }
    await owned?.kill()
    await owned?.start()
    const token = await tokenOfNext()
    await owned?.kill()
    await owned?.start()
    await using admin = await own.connect()
    const known = BigInt(String(await admin.value('SELECT last_value FROM holdfast_advisory1_tokens')))
    // The next session adds a million.
    expect(known + 1_000_000n).toBeGreaterThan(token)
  })

  test('locks are had while the synchronous standby is away', async (context) => {
    if ('url' in source) return context.skip('it is not our server')
    await using own = await PostgresServer.start(source, { settings: { synchronous_standby_names: 'away' } })
    await using locks = createLocks(await openPostgresAdvisory(own.url))
    expect(await locks.mutex('standby').using(({ token }) => typeof token)).toBe('bigint')
  })

  test('tokens rise for all who use the database, whatever schema they look into first', async () => {
    await looker.query('CREATE SCHEMA elsewhere')
    const url = new URL(database)
    url.searchParams.set('options', '-c search_path=elsewhere')
    await using locks = await open()
    await using other = createLocks(await openPostgresAdvisory(url.href))
    let last = 0n
    for (const each of [locks, locks, locks, other, locks, other]) {
      const lease = await each.mutex('schemas').acquire()
      expect(lease.token).toBeGreaterThan(last)
      last = lease.token as bigint
      expect(await looker.query('SELECT key FROM public.holdfast_advisory1_entries')).toEqual([{ key: 'schemas' }])
      await lease.release()
    }
  })

  test('a lease that stays busy behind its process is refused: the server frees what a session held', async () => {
    await using locks = await open()
    const lease = await locks.mutex('after').acquire()
    const release = async (): Promise<boolean> => await lease.release({ after: '1s' })
    await expect(release()).rejects.toThrow(UnsupportedError)
    expect(lease.held).toBe(true)
    expect(await lease.release({ after: 0 })).toBe(true)
  })

  test('a ttl longer than a session lives is that of the session: the lock is had at once', async () => {
    await using locks = await open()
    const lease = await locks.mutex('long', { ttl: '1h' }).acquire({ wait: '10s' })
    expect(lease.remainingMs).toBeLessThanOrEqual(SESSION_MS)
  })

  test('a lease that was waited for ends before its session can, whatever ttl was asked for', async () => {
    await using locks = await open()
    await using others = createLocks(await openPostgresAdvisory(database), { ttl: '10m' })
    const lease = await locks.mutex('handed on').acquire()
    const asked = others.mutex('handed on').acquire({ wait: '30s' })
    await vi.waitFor(async () => expect((await locks.inspect('handed on')).entries).toHaveLength(2), LIMIT)
    await lease.release()
    expect((await asked).remainingMs).toBeLessThanOrEqual(SESSION_MS)
  })

  test('an engine that is asked for a longer ttl without locks between confirms no more than the session lives', async () => {
    await using engine = await openPostgresAdvisory(database)
    const claim = { key: 'direct', id: 'a', holder: '', weight: 1, limit: 1, wait: false, ttlMs: 600_000 }
    expect(await engine.enter([claim])).toMatchObject([{ state: 'held', heldForMs: SESSION_MS }])
    expect(await engine.renew([claim])).toMatchObject([{ state: 'held', heldForMs: SESSION_MS }])
  })

  test('limits other than 1 and unlimited are refused when the lock is created, naming engines that can', async () => {
    await using locks = await open()
    expect(() => locks.semaphore('many', 2)).toThrow(UnsupportedError)
    expect(() => locks.semaphore('many', 2)).toThrow(/postgres-advisory has no semaphores above 1; use /)
    expect(locks.semaphore('one', 1).key).toBe('one')
  })

  test('is opened by its URL', async () => {
    await using locks = await connect(database.replace(/^postgres:/, 'postgres-advisory:'))
    const lease = await locks.mutex('by url').acquire()
    expect(await locked('by url')).toBe(1)
    expect(await lease.release()).toBe(true)
  })

  test('a pooler is refused, unless it is said to be in session mode', async (context) => {
    const program = present(await findPgBouncer(), context)
    await using bouncer = await PgBouncer.start(program, server)
    await using locks = createLocks(await openPostgresAdvisory(bouncer.through(database)))
    await expect(locks.mutex('pooled').tryAcquire()).rejects.toThrow('goes through a pooler')
    await using honest = await PgBouncer.start(program, server, { mode: 'session' })
    await using session = createLocks(await openPostgresAdvisory(`${honest.through(database)}?pooler=session`))
    expect((await session.mutex('pooled').acquire()).held).toBe(true)
  })
})
