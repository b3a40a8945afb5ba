/**
 * From a URL to locks. Each engine is loaded only when its scheme is asked for, so that users do not pay for engines
 * that they do not use.
 */
import { nearest } from './core/did-you-mean.ts'
import type { Engine } from './core/engine.ts'
import { LOCKS_OPTIONS, type LocksOptions } from './core/locks-options.ts'
import { checkOptions } from './core/options.ts'
import { redactUrl } from './core/redact.ts'
import { createLocks, type Locks } from './locks.ts'

/** How to open an engine by URL. `url` is as the user wrote it; options of the engine are in its query. */
type Opener = (url: string) => Promise<Engine>

const redis: Opener = async (url) => (await import('./engines/redis/index.ts')).openRedis(url)
const postgres: Opener = async (url) => (await import('./engines/postgres/index.ts')).openPostgres(url)
const mysql: Opener = async (url) => (await import('./engines/mysql/index.ts')).openMysql(url)
const mongodb: Opener = async (url) => (await import('./engines/mongodb/index.ts')).openMongodb(url)

/** One row for each scheme; the same names as in the docs and in `src/engines/`. */
const OPENERS: Readonly<Record<string, Opener>> = {
  memory: async () => (await import('./engines/memory/index.ts')).memory(),
  sqlite: async (url) => (await import('./engines/sqlite/index.ts')).openSqlite(url),
  redis,
  rediss: redis,
  'redis-sentinel': redis,
  'redis-cluster': redis,
  redlock: async (url) => (await import('./engines/redlock/index.ts')).openRedlock(url),
  postgres,
  postgresql: postgres,
  'postgres-advisory': async (url) => (await import('./engines/postgres-advisory/index.ts')).openPostgresAdvisory(url),
  etcd: async (url) => (await import('./engines/etcd/index.ts')).openEtcd(url),
  zookeeper: async (url) => (await import('./engines/zookeeper/index.ts')).openZooKeeper(url),
  mysql,
  mariadb: mysql,
  mongodb,
  'mongodb+srv': mongodb,
}

/**
 * Connect by URL: `await connect('sqlite:locks.db', { ttl: '30s' })`. Without one: the `HOLDFAST_URL` of the
 * environment, or else the embedded default, a SQLite file in your state folder, which excludes all processes of this
 * host and user. `connect(undefined)`, as of a variable that is not set, is refused; `connect(undefined, options)` is
 * the default.
 */
export async function connect(url?: string, options?: LocksOptions): Promise<Locks>
export async function connect(...given: readonly [url?: string, options?: LocksOptions]): Promise<Locks> {
  const [url, options = {}] = given
  if (given.length === 1 && url === undefined)
    throw new TypeError(`connect was given undefined as its URL${UNSET} For the default, on this host: connect()`)
  checkOptions('connect()', options, LOCKS_OPTIONS)
  const engine = await openEngine(url)
  try {
    return createLocks(engine, options)
  } catch (error) {
    await engine[Symbol.asyncDispose]()
    throw error
  }
}

/** The engine behind a URL. */
export async function openEngine(url: string = defaultUrl()): Promise<Engine> {
  if (typeof url !== 'string') throw new TypeError(noUrl(url))
  const scheme = /^([a-z][a-z0-9+-]*):/i.exec(url)?.[1]?.toLowerCase()
  const open = scheme !== undefined && Object.hasOwn(OPENERS, scheme) ? OPENERS[scheme] : undefined
  if (open !== undefined) return open(url)
  const known = Object.keys(OPENERS).map((name) => `${name}:`)
  if (url === '') throw new TypeError(`the URL is empty${UNSET}`)
  const near = withScheme(url) ?? (scheme === undefined ? undefined : nearest(`${scheme}:`, known))
  const meant = near === undefined ? '' : `; did you mean '${near}'?`
  throw new TypeError(`unknown engine URL '${redactUrl(url)}'; known schemes: ${known.join(', ')}${meant}`)
}

/** Locks of this host alone, where a server was meant, exclude no other host, and nothing would tell. */
const UNSET = ': is the variable set that it comes from?'

/** The usual ports of servers, for users who write `localhost:6379`. */
const PORTS: Readonly<Record<string, string>> = {
  6379: 'redis',
  5432: 'postgres',
  3306: 'mysql',
  2379: 'etcd',
  2181: 'zookeeper',
  27017: 'mongodb',
}

/** What was meant by a server or a file without its scheme, if that can be told. */
function withScheme(url: string): string | undefined {
  const port = /^[\w.-]+:(\d+)$/.exec(url)?.[1]
  if (port !== undefined) return PORTS[port] && `${PORTS[port]}://${url}`
  return /^\.{0,2}\/|^[\w.-]+\.(?:db|sqlite3?)$/.test(url) ? `sqlite:${redactUrl(url)}` : undefined
}

/**
 * The URL when none is given: that of the environment, or the embedded default. A variable that is set to nothing
 * counts as not set.
 */
export function defaultUrl(): string {
  return process.env.HOLDFAST_URL || 'sqlite:'
}

/** What to say to a caller who gives something else as the URL: options, or a client. */
function noUrl(given: unknown): string {
  const isPlain = typeof given === 'object' && given !== null && Object.getPrototypeOf(given) === Object.prototype
  if (isPlain && !Object.values(given).some((value) => typeof value === 'function'))
    return 'connect takes a URL first, and options second: connect(undefined, { ttl }) for those of the embedded default'
  return 'connect takes a URL; for a client of yours, make the engine: createLocks(redis({ client }))'
}
