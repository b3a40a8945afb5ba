/**
 * Marks of guards behind a URL: in a SQLite file, PostgreSQL, MySQL, MongoDB or Redis. A place where no guard has ever
 * been has none; it is not made.
 */
import { existsSync } from 'node:fs'
import { defaultUrl } from '../connect.ts'
import { systemClock } from '../core/clock.ts'
import { EngineError } from '../core/errors.ts'
import { MARKS_TABLE, type Mark } from '../guards/marks.ts'
import { type Input, UsageError } from './args.ts'
import { Unreachable } from './failure.ts'

/** The marks behind one URL. */
export interface MarksAtUrl {
  list(prefix: string): Promise<readonly Mark[]>
  reset(resource: string, seen: bigint): Promise<boolean>
  /** Remove the marks whose time is over; how many. */
  forget(): Promise<number>
  close(): Promise<void>
}

type MarksOpener = (url: string, table: string | undefined) => Promise<MarksAtUrl>

const OPENERS: Readonly<Record<string, MarksOpener>> = {
  sqlite: async (url, table) => {
    const { openSqlite } = await import('../engines/sqlite/index.ts')
    const { loadDriver } = await import('../clients/sqlite/driver.ts')
    const { demandPlainFile } = await import('../clients/sqlite/folder.ts')
    const { guard } = await import('../guards/sqlite.ts')
    const { file } = await openSqlite(url)
    const guarded = guard(table === undefined ? {} : { table })
    if (!existsSync(file))
      return { list: async () => [], reset: async () => false, forget: async () => 0, close: async () => undefined }
    demandPlainFile(file)
    const database = (await loadDriver()).open(file)
    database.exec('pragma busy_timeout = 5000')
    return {
      list: async (prefix) => guarded.list(database, prefix),
      reset: async (resource, seen) => guarded.reset(database, resource, seen),
      forget: async () => guarded.forget(database),
      close: async () => void database.close(),
    }
  },
  postgres: async (url, table) => {
    const { loadPg } = await import('../clients/postgres/connect.ts')
    const { guard } = await import('../guards/postgres.ts')
    const { Client } = await loadPg()
    const client = new Client({ connectionString: url, connectionTimeoutMillis: CONNECT_LIMIT_MS })
    // An error event without a listener would end the process, with a stack trace.
    client.on('error', () => undefined)
    await client.connect()
    const guarded = guard(table === undefined ? {} : { table })
    return {
      list: (prefix) => guarded.list(client, prefix),
      reset: (resource, seen) => guarded.reset(client, resource, seen),
      forget: () => guarded.forget(client),
      close: () => client.end(),
    }
  },
  mysql: async (url, table) => {
    const { loadMysql2, parseUrl } = await import('../clients/mysql/connect.ts')
    const { guard } = await import('../guards/mysql.ts')
    const { target } = parseUrl(url)
    // A table without a database is in that of the URL.
    const named = table ?? MARKS_TABLE
    const guarded = guard({ table: named.includes('.') ? named : [target.database, named] })
    const { createConnection } = await loadMysql2()
    const client = await createConnection({ ...target, connectTimeout: CONNECT_LIMIT_MS })
    return {
      list: (prefix) => guarded.list(client, prefix),
      reset: (resource, seen) => guarded.reset(client, resource, seen),
      forget: () => guarded.forget(client),
      close: () => client.end(),
    }
  },
  mongodb: async (url, table) => {
    const { mongodbClientAt, splitMongodbUrl } = await import('../clients/mongodb/connect.ts')
    const { guard } = await import('../guards/mongodb.ts')
    const client = await mongodbClientAt(splitMongodbUrl(url).url)
    const guarded = guard({ client, ...(table === undefined ? {} : { collection: table }) })
    return {
      list: (prefix) => guarded.list(prefix),
      reset: (resource, seen) => guarded.reset(resource, seen),
      forget: () => guarded.forget(),
      close: () => client.close(),
    }
  },
  redis: async (url, table) => {
    if (table !== undefined) throw new UsageError('--table: Redis has no tables')
    const { openWire } = await import('../clients/redis/connect.ts')
    const { parseUrl } = await import('../clients/redis/url.ts')
    const { guardOn } = await import('../guards/redis/wire-guard.ts')
    const guarded = guardOn(await openWire(parseUrl(url), systemClock))
    return {
      list: (prefix) => guarded.list(prefix),
      reset: (resource, seen) => guarded.reset(resource, seen),
      // The server does so by itself.
      forget: async () => 0,
      close: async () => await guarded[Symbol.asyncDispose](),
    }
  },
}

const CONNECT_LIMIT_MS = 5_000
/** Other names of the same. */
const ALIKE: Readonly<Record<string, string>> = {
  postgresql: 'postgres',
  mariadb: 'mysql',
  rediss: 'redis',
  'redis-sentinel': 'redis',
  'redis-cluster': 'redis',
  'mongodb+srv': 'mongodb',
}

/** Open, ask, and close. What the client of a database throws is told with the URL. */
export async function askMarks<Result>(input: Input, ask: (marks: MarksAtUrl) => Promise<Result>): Promise<Result> {
  const url = input.value('url') ?? defaultUrl()
  const scheme = /^([a-z][a-z0-9+-]*):/i.exec(url)?.[1]?.toLowerCase() ?? ''
  const open = OPENERS[ALIKE[scheme] ?? scheme]
  if (open === undefined)
    throw new UsageError(`'${scheme}:' keeps no marks that can be asked for; known: ${Object.keys(OPENERS).join(', ')}`)
  const alive = systemClock.stayAlive()
  try {
    const marks = await open(url, input.value('table'))
    try {
      return await ask(marks)
    } finally {
      await marks.close()
    }
  } catch (error) {
    if (error instanceof UsageError) throw error
    if (error instanceof TypeError || error instanceof RangeError) throw new UsageError(error.message, { cause: error })
    throw new Unreachable(url, error instanceof EngineError ? error : clientError(scheme, error))
  } finally {
    alive.cancel()
  }
}

function clientError(scheme: string, cause: unknown): EngineError {
  const { message, code } = cause as NodeJS.ErrnoException
  // Of several addresses that were tried, Node says only the code.
  return new EngineError(scheme, message || code || String(cause), { outcome: 'not-applied', cause })
}

/** Whether the error means that no guard has ever been there. */
export function hasNoMarks(error: unknown): boolean {
  const cause = error instanceof Unreachable ? (error.cause as EngineError).cause : error
  const { code, errno, message = '' } = (cause ?? {}) as { code?: unknown; errno?: unknown; message?: string }
  // undefined_table of PostgreSQL, ER_NO_SUCH_TABLE of MySQL; SQLite has only words for it.
  return code === '42P01' || errno === 1146 || message.startsWith('no such table')
}
