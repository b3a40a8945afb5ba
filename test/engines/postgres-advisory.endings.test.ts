/**
 * The ends of sessions, by the server, by the network or by a stall of their process, and connections that never become
 * one: what the process still holds, and how it goes on.
 */
import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as delay } from 'node:timers/promises'
import type pg from 'pg'
import { expect, test, vi } from 'vitest'
import { advisoryKey } from '../../src/clients/postgres/advisory-key.ts'
import { systemClock } from '../../src/core/clock.ts'
import {
  openPostgresAdvisory,
  postgresAdvisory,
  type SessionClient,
} from '../../src/engines/postgres-advisory/index.ts'
import { createLocks, type Locks } from '../../src/locks.ts'
import { fakeClock } from '../../src/testing.ts'
import { findPostgres, PostgresConnection, type PostgresServer } from '../servers/postgres.ts'
import { FaultProxy } from '../servers/proxy.ts'
import { describeServer } from '../servers/suite.ts'
import { withLooker } from './postgres-looker.ts'

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

await describeServer('ends of sessions', findPostgres, (source) => {
  let server: PostgresServer
  let database: string
  let looker: PostgresConnection

  withLooker(source, (there) => {
    ;({ server, database, looker } = there)
  })

  const open = async (): Promise<Locks> => createLocks(await openPostgresAdvisory(database))
  type Ask = SessionClient['query']
  /** A client that asks the server by what `askingOf` makes of its own `query`. */
  const connectAsking = async (askingOf: (ask: Ask, client: pg.Client) => Ask): Promise<SessionClient> => {
    const { client } = await PostgresConnection.open(database)
    return Object.assign(client, { query: askingOf(client.query.bind(client) as Ask, client) }) as SessionClient
  }

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

  test('a session that ends with the last answer of its beginning is not kept: the next call begins another one', async () => {
    let begun = 0
    const connectAndEnd = (): Promise<SessionClient> =>
      connectAsking((ask, client) => async (text, values) => {
        const answer = await ask(text, values)
        if (!text.startsWith('LISTEN')) return answer
        begun += 1
        if (begun > 1) return answer
        const ended = new Promise<void>((resolve) => client.on('end', () => resolve()))
        await looker.query('SELECT pg_terminate_backend($1)', [(client as SessionClient).processID])
        await ended
        return answer
      })
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
    const connectAndStandStill = (): Promise<SessionClient> =>
      connectAsking((ask, client) => (text, values) => {
        const answer = ask(text, values)
        if (!ended && text.includes('WITH tried') && isMeant()) {
          const pid = String((client as SessionClient).processID)
          execFileSync(process.execPath, ['-e', END_WHEN_IDLE, database, pid], { timeout: 20_000 })
          ended = true
        }
        return answer
      })
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
    const connectAndEnd = (): Promise<SessionClient> =>
      connectAsking((ask, client) => async (text, values) => {
        const answer = await ask(text, values)
        if (text.includes('pg_advisory_unlock(')) setImmediate(() => client.connection.stream.destroy())
        return answer
      })
    await using locks = createLocks(postgresAdvisory({ connect: connectAndEnd }))
    const lease = await locks.mutex('given back').acquire()
    const waiter = locks.mutex('given back').acquire({ wait: '30s' })
    await vi.waitFor(async () => expect((await locks.inspect('given back')).entries).toHaveLength(2), LIMIT)
    expect(await lease.release()).toBe(true)
    expect(await (await waiter).release()).toBe(true)
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

  test('a connect() that answers no promise is one that has settled; one that throws at once has failed', async () => {
    const { client } = await PostgresConnection.open(database)
    const made = [client as unknown as SessionClient]
    const connectAtOnce = (): SessionClient => {
      const next = made.pop()
      if (next === undefined) throw new Error('there is one client only')
      return next
    }
    const clock = fakeClock()
    await using engine = postgresAdvisory({ connect: connectAtOnce as () => never, clock })
    expect(await engine.inspect('at once')).toMatchObject({ entries: [] })
    await expect(engine.store.get(['at once'])).rejects.toThrow('there is one client only')
    // Nothing of it is left that would run later.
    await clock.advance('10s')
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

  test('such a lease blocks for no longer than a session lives, whatever ttl was asked for', async () => {
    const clock = fakeClock()
    const engine = await openPostgresAdvisory(database, { clock })
    await using still = createLocks(engine, { ttl: '10m', clock })
    await using other = await open()
    const lease = await still.mutex('never given back, either').acquire()
    clock.stall('30s')
    expect(lease.held).toBe(false)
    await clock.advance('5s')
    const next = await other.mutex('never given back, either').acquire({ wait: '15s' })
    expect(next.token).toBeGreaterThan(lease.token as bigint)
  })

  test('a waiter keeps its place while the server cannot be reached, for as long as it is asked for', async () => {
    await using other = await open()
    const lease = await other.mutex('asked for in vain').acquire()
    await using proxy = await FaultProxy.start(server)
    const url = new URL(database)
    url.host = `127.0.0.1:${proxy.port}`
    await using engine = await openPostgresAdvisory(url.href)
    const place = { key: 'asked for in vain', id: 'a waiter', ttlMs: 2_000 }
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
})
