/**
 * What tests of PostgreSQL and of MySQL have in common: for each test a server with an empty database, a proxy on the
 * way to it, and clients that are closed at the end. The cases that hold for both are in sql-server.ts and
 * sql-network.ts; postgres-database.ts and mysql-database.ts say how either server is dealt with.
 */
import { afterEach, beforeEach, expect, vi } from 'vitest'
import type { Engine } from '../../src/core/engine.ts'
import { createLocks, type Locks, type LocksOptions } from '../../src/index.ts'
import { FaultProxy } from '../servers/proxy.ts'
import type { ServerProcess } from '../servers/servers.ts'

export const LIMIT = { timeout: 30_000, interval: 5 }

/** A server with a database that is empty at first. */
export interface SqlDatabase extends AsyncDisposable {
  readonly host: string
  readonly port: number
  /** Undefined for a server that is not ours, which must not be killed or paused. */
  readonly process: ServerProcess | undefined
  /** An engine by URL, with that port instead of the server's own. */
  engine(port?: number): Promise<Engine>
  /** A pool of the user's, of at most that many connections, and an engine on it. */
  pool(size: number): SqlPool
  /** End the connections of all clients: how many there were. */
  endConnections(): Promise<number>
}

export interface SqlPool {
  readonly engine: Engine
  /** One statement of the user's own. */
  query(): Promise<unknown>
  end(): Promise<void>
}

/** For the tests of one suite: what the test that is running has. */
export interface DatabaseTests<Database extends SqlDatabase> {
  database(): Database
  /** The process of a server that is ours. */
  server(): ServerProcess
  proxy(): FaultProxy
  /** Locks by URL, with a ttl of 3 s unless told. */
  open(options?: LocksOptions, port?: number): Promise<Locks>
  /** The same, by way of the proxy. */
  openFar(options?: LocksOptions): Promise<Locks>
  /** Close these at the end of the test, too. */
  keep(locks: Locks): Locks
  untilInLine(locks: Locks, key: string, count: number): Promise<void>
  /** Another server instead of the one that the test began with. */
  replace(start: () => Promise<Database>): Promise<void>
}

export function withDatabase<Database extends SqlDatabase>(start: () => Promise<Database>): DatabaseTests<Database> {
  let database: Database
  let proxy: FaultProxy
  const opened: Locks[] = []

  const begin = async (startOne: () => Promise<Database>): Promise<void> => {
    database = await startOne()
    proxy = await FaultProxy.start(database)
  }
  const end = async (): Promise<void> => {
    database.process?.resume()
    await proxy.heal()
    await Promise.all(opened.splice(0).map((locks) => locks.close()))
    await proxy[Symbol.asyncDispose]()
    await database[Symbol.asyncDispose]()
  }
  const keep = (locks: Locks): Locks => {
    opened.push(locks)
    return locks
  }
  const open = async (options: LocksOptions = {}, port = database.port): Promise<Locks> =>
    keep(createLocks(await database.engine(port), { ttl: '3s', ...options }))

  beforeEach(() => begin(start))
  afterEach(end)

  return {
    database: () => database,
    server: () => database.process as ServerProcess,
    proxy: () => proxy,
    open,
    openFar: (options) => open(options, proxy.port),
    keep,
    untilInLine: async (locks, key, count) =>
      await vi.waitFor(async () => expect((await locks.inspect(key)).entries).toHaveLength(count), LIMIT),
    replace: async (startOther) => {
      await end()
      await begin(startOther)
    },
  }
}

/** Clients that count under one lock until they are stopped, so that an update which is lost shows. */
export function countTogether(clients: readonly Locks[], callers: number): Counting {
  let [counter, done, stop] = [0, 0, false]
  const work = clients.flatMap((locks) =>
    Array.from({ length: callers }, async () => {
      while (!stop) {
        await locks.mutex('counter').using(async () => {
          const before = counter
          await new Promise((resolve) => setImmediate(resolve))
          counter = before + 1
        })
        done += 1
      }
    }),
  )
  const settled = Promise.all(work)
  return {
    done: () => done,
    until: (count) => vi.waitFor(() => expect(done).toBeGreaterThan(count), LIMIT),
    stop: async () => {
      stop = true
      await settled
      expect(counter).toBe(done)
    },
  }
}

export interface Counting {
  done(): number
  until(count: number): Promise<void>
  /** Rejects if an update was lost. */
  stop(): Promise<void>
}
