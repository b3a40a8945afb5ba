/**
 * What is special about session locks: the server can end the session, strangers use the same locks, and a pooler would
 * give them away.
 */
import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as delay } from 'node:timers/promises'
import { beforeAll, expect, test, vi } from 'vitest'
import { advisoryKey } from '../../src/clients/postgres/advisory-key.ts'
import { systemClock } from '../../src/core/clock.ts'
import {
  openPostgresAdvisory,
  postgresAdvisory,
  type SessionClient,
} from '../../src/engines/postgres-advisory/index.ts'
import { connect, UnsupportedError } from '../../src/index.ts'
import { createLocks, type Locks } from '../../src/locks.ts'
import { fakeClock } from '../../src/testing.ts'
import { xactLock } from '../../src/transactions/postgres.ts'
import { findPgBouncer, PgBouncer } from '../servers/pgbouncer.ts'
import { findPostgres, PostgresConnection, PostgresServer } from '../servers/postgres.ts'
import { FaultProxy } from '../servers/proxy.ts'
import { describeServer, present } from '../servers/suite.ts'

/** Ends the session of a pid when it has answered what it was asked last. For `node -e`. */
const END_WHEN_IDLE = `
const { Client } = require('pg')
const [url, pid] = process.argv.slice(1)
const client = new Client({ connectionString: url })
const ask = async (text) => (await client.query(text, [pid])).rows[0]
const end = async () => {
  await client.connect()
  const IDLE = "SELECT FROM pg_stat_activity WHERE pid = $1 AND state = 'idle' AND query LIKE '%WITH tried%'"
  while ((await ask(IDLE)) === undefined);
  await ask('SELECT pg_terminate_backend($1)')
  while ((await ask('SELECT FROM pg_stat_activity WHERE pid = $1')) !== undefined);
  await client.end()
}
end()`

const LIMIT = { timeout: 30_000, interval: 10 }

await describeServer('session locks', findPostgres, (source) => {
  let server: PostgresServer
  let database: string
  let looker: PostgresConnection

  beforeAll(async () => {
    server = await PostgresServer.start(source)
    database = await server.database()
    looker = await server.connect(database)
    return async () => {
      await looker[Symbol.asyncDispose]()
      await server.drop(database)
      await server[Symbol.asyncDispose]()
    }
  })

  const open = async (): Promise<Locks> => createLocks(await openPostgresAdvisory(database))
  const locked = (key: string): Promise<unknown> =>
    looker.value(
      `SELECT count(*)::int FROM pg_locks WHERE locktype = 'advisory' AND ((classid::bigint << 32) | objid::bigint) = $1`,
      [String(advisoryKey(key))],
    )

  test('a session that the server ends loses what it held, and is told; it goes on with a new one', async () => {
    await using locks = await open()
    const lease = await locks.mutex('ended').acquire()
    const aborted = once(lease.signal, 'abort')
    await looker.query(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'holdfast'`)
    await aborted
    expect(lease.held).toBe(false)
    const next = await locks.mutex('ended').acquire()
    expect(next.token).toBeGreaterThan(lease.token as bigint)
  })

  test('a waiter whose session is ended waits on, and is served', async () => {
    await using locks = await open()
    await looker.query('SELECT pg_advisory_lock($1)', [String(advisoryKey('kept'))])
    const asked = locks.mutex('kept').acquire({ wait: '30s' })
    await vi.waitFor(async () => expect((await locks.inspect('kept')).entries).toHaveLength(1), LIMIT)
    await looker.query(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'holdfast'`)
    await looker.query('SELECT pg_advisory_unlock_all()')
    expect((await asked).held).toBe(true)
  })

  test('a connect() that does not settle is given up, and ended where it comes late: the next call connects anew', async () => {
    const { client: late } = await PostgresConnection.open(database)
    let arrive = (): void => undefined
    const arrival = new Promise<void>((resolve) => {
      arrive = resolve
    })
    // That of the locks, and that of the store.
    let hanging = 2
    const connectLate = async (): Promise<SessionClient> => {
      if (hanging === 0) return (await PostgresConnection.open(database)).client as unknown as SessionClient
      hanging -= 1
      await arrival
      return late as unknown as SessionClient
    }
    const clock = fakeClock()
    await using engine = postgresAdvisory({ connect: connectLate, clock })
    const calls = [engine.inspect('late'), engine.store.get(['late'])]
    // They wait for the same connections.
    const later = [engine.inspect('late'), engine.store.get(['late'])]
    const refused = Promise.all(calls.map((call) => expect(call).rejects.toMatchObject({ outcome: 'not-applied' })))
    await clock.advance('10s')
    await refused
    expect(await Promise.all(later)).toMatchObject([{ entries: [] }, [{ state: 'read' }]])
    const ended = new Promise<void>((resolve) => late.on('end', () => resolve()))
    arrive()
    await ended
  })

  test('a session that ends with the last answer of its beginning is not kept: the next call begins another one', async () => {
    let begun = 0
    const connectAndEnd = async (): Promise<SessionClient> => {
      const { client } = await PostgresConnection.open(database)
      const ask = client.query.bind(client) as SessionClient['query']
      const query: SessionClient['query'] = async (text, values) => {
        const answer = await ask(text, values)
        if (!text.startsWith('LISTEN')) return answer
        begun += 1
        if (begun > 1) return answer
        const ended = new Promise<void>((resolve) => client.on('end', () => resolve()))
        await looker.query('SELECT pg_terminate_backend($1)', [(client as SessionClient).processID])
        await ended
        return answer
      }
      return Object.assign(client, { query }) as unknown as SessionClient
    }
    await using locks = createLocks(postgresAdvisory({ connect: connectAndEnd }))
    const lease = await locks.mutex('ended as it began').acquire({ wait: '10s' })
    expect(lease.held).toBe(true)
    expect(begun).toBe(2)
  })

  /**
   * Locks of a process that stands still while the server answers an attempt, the first one that is meant, and ends the
   * session: the answer and the end are read together.
   */
  const endedWithItsAnswer = (isMeant: () => boolean): { locks: Locks; ended: () => boolean } => {
    let ended = false
    const connectAndStandStill = async (): Promise<SessionClient> => {
      const { client } = await PostgresConnection.open(database)
      const ask = client.query.bind(client) as SessionClient['query']
      const query: SessionClient['query'] = (text, values) => {
        const answer = ask(text, values)
        if (!ended && text.includes('WITH tried') && isMeant()) {
          execFileSync(process.execPath, ['-e', END_WHEN_IDLE, database, String((client as SessionClient).processID)])
          ended = true
        }
        return answer
      }
      return Object.assign(client, { query }) as unknown as SessionClient
    }
    return { locks: createLocks(postgresAdvisory({ connect: connectAndStandStill })), ended: () => ended }
  }

  test('a lock that is granted as its session ends is not had: it is asked for again, in the next session', async () => {
    const { locks, ended } = endedWithItsAnswer(() => true)
    await using _ = locks
    await using other = await open()
    const lease = await locks.mutex('granted too late').acquire({ wait: '10s' })
    expect(ended()).toBe(true)
    expect(await other.mutex('granted too late').tryAcquire()).toBeUndefined()
    expect(await lease.release()).toBe(true)
  })

  test('a waiter that is granted its lock as its session ends waits on, and does not hold beside another', async () => {
    let free = false
    const { locks, ended } = endedWithItsAnswer(() => free)
    await using _ = locks
    await using other = await open()
    const first = await other.mutex('waited for too long').acquire()
    const asked = locks.mutex('waited for too long').acquire({ wait: '30s' })
    await vi.waitFor(async () => expect((await other.inspect('waited for too long')).entries).toHaveLength(2), LIMIT)
    free = true
    await first.release()
    const lease = await asked
    expect(ended()).toBe(true)
    expect(await other.mutex('waited for too long').tryAcquire()).toBeUndefined()
    expect(await lease.release()).toBe(true)
  })

  test('a release that the server has carried out is told as one, also where the session ends right behind it', async () => {
    const connectAndEnd = async (): Promise<SessionClient> => {
      const { client } = await PostgresConnection.open(database)
      const ask = client.query.bind(client) as SessionClient['query']
      const query: SessionClient['query'] = async (text, values) => {
        const answer = await ask(text, values)
        if (text.includes('pg_advisory_unlock(')) setImmediate(() => client.connection.stream.destroy())
        return answer
      }
      return Object.assign(client, { query }) as unknown as SessionClient
    }
    await using locks = createLocks(postgresAdvisory({ connect: connectAndEnd }))
    const lease = await locks.mutex('given back').acquire()
    const waiter = locks.mutex('given back').acquire({ wait: '30s' })
    await vi.waitFor(async () => expect((await locks.inspect('given back')).entries).toHaveLength(2), LIMIT)
    expect(await lease.release()).toBe(true)
    expect(await (await waiter).release()).toBe(true)
  })

  test('a lease that its process lost while it stood still, and never gives back, is free when its ttl is over', async () => {
    await using still = createLocks(await openPostgresAdvisory(database), { ttl: '1s' })
    await using other = await open()
    const lease = await still.mutex('never given back').acquire()
    // Nothing runs in this process meanwhile, nor on its connections.
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1_200)
    expect(lease.held).toBe(false)
    const next = await other.mutex('never given back').acquire({ wait: '15s' })
    expect(next.token).toBeGreaterThan(lease.token as bigint)
    // The session lives: it was not its end that freed the lock.
    expect(await still.mutex('never given back').tryAcquire()).toBeUndefined()
  })

  test('a waiter keeps its place while the server cannot be reached, for as long as it is asked for', async () => {
    await using other = await open()
    const lease = await other.mutex('asked for in vain').acquire()
    await using proxy = await FaultProxy.start(server)
    const url = new URL(database)
    url.host = `127.0.0.1:${proxy.port}`
    await using engine = await openPostgresAdvisory(url.href)
    const place = { key: 'asked for in vain', id: 'a waiter', ttlMs: 1_000 }
    const claim = { ...place, holder: 'it', weight: 1, limit: 1, wait: true }
    expect(await engine.enter([claim])).toMatchObject([{ state: 'waiting' }])
    await proxy.refuse()
    const until = systemClock.now() + 2 * place.ttlMs
    while (systemClock.now() < until) {
      await expect(engine.renew([place])).rejects.toThrow(/renew/)
      await delay(50)
    }
    await proxy.heal()
    await vi.waitFor(async () => expect(await engine.renew([place])).toMatchObject([{ state: 'waiting' }]), LIMIT)
    await lease.release()
  })

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

  test('limits other than 1 and unlimited are refused when the lock is created, naming engines that can', async () => {
    await using locks = await open()
    expect(() => locks.semaphore('many', 2)).toThrow(UnsupportedError)
    expect(() => locks.semaphore('many', 2)).toThrow(/postgres-advisory has no semaphores above 1; use /)
    expect(locks.semaphore('one', 1).key).toBe('one')
  })

  test('closing does not wait for a server that stands still', async () => {
    await using proxy = await FaultProxy.start(server)
    const url = new URL(database)
    url.host = `127.0.0.1:${proxy.port}`
    const engine = await openPostgresAdvisory(url.href)
    await engine.inspect('frozen')
    proxy.blackHole()
    const unanswered = engine.inspect('frozen').catch(() => 'not answered')
    // It is sent in a later turn.
    await new Promise(setImmediate)
    const begun = Date.now()
    await engine[Symbol.asyncDispose]()
    // Far less than a session may be silent.
    expect(Date.now() - begun).toBeLessThan(15_000)
    expect(await unanswered).toBe('not answered')
  }, 60_000)

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
