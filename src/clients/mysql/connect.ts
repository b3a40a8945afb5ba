/**
 * From a URL to clients that we make ourselves: of mysql2, loaded when it is asked for, and told not to wait for ever.
 */

import { readFileSync } from 'node:fs'
import { connect as connectSocket, isIP, type Socket } from 'node:net'
import { loadClient } from '../shared/packages.ts'
import { cut, Mysql2PoolWire, ownConnection } from './mysql2.ts'
import type { Mysql2Connection, Mysql2Pool, PooledMysql2Connection } from './mysql2-client.ts'
import type { MysqlWire } from './wire.ts'

/** Three verbs are under way at once at most, with one or two to spare for calls that a stuck row holds up. */
const MOST_CONNECTIONS = 5
const CONNECT_LIMIT_MS = 5000
const KEEP_ALIVE_MS = 10_000

const CONNECTION = {
  connectTimeout: CONNECT_LIMIT_MS,
  enableKeepAlive: true,
  keepAliveInitialDelay: KEEP_ALIVE_MS,
} as const

/** Of a user's settings, those that lead to the server. */
const WAY = [
  ...['host', 'port', 'socketPath', 'localAddress', 'stream', 'ssl', 'compress'],
  ...['user', 'password', 'password2', 'password3', 'database', 'authPlugins', 'insecureAuth', 'enableCleartextPlugin'],
] as const

/** Our own pool. Its connections keep the process alive only while they are asked something. */
export async function poolAt(target: MysqlTarget): Promise<Mysql2PoolWire> {
  const { createPool } = await loadMysql2()
  const way = { ...CONNECTION, ...target, ...comparedAddress(target) }
  const pool = createPool({ ...way, connectionLimit: MOST_CONNECTIONS })
  const lent = new Set<PooledMysql2Connection>()
  const lending: Mysql2Pool = {
    async getConnection() {
      const connection = (await pool.getConnection()) as unknown as PooledMysql2Connection
      const [rest, end] = [connection.release.bind(connection), connection.destroy.bind(connection)]
      lent.add(connection)
      keepAlive(connection, true)
      connection.release = () => {
        lent.delete(connection)
        keepAlive(connection, false)
        rest()
      }
      connection.destroy = () => {
        lent.delete(connection)
        end()
      }
      return connection
    },
  }
  return new Mysql2PoolWire(lending, connector(way), async () => {
    // The engine waits for no answer on these any more. The pool would wait until the server says goodbye, which one
    // that is away or stands still does not.
    for (const connection of [...lent]) cut(connection)
    await pool.end().catch(() => undefined)
  })
}

/**
 * The certificate of a server is compared with the name of the host. Of a host that is an address, mysql2 tells Node
 * nothing, and `localhost` would be compared. Node then takes what the socket says of itself.
 */
function comparedAddress({ host, port, ssl }: MysqlTarget): { readonly stream?: () => Socket } {
  if (ssl?.verifyIdentity !== true || isIP(host) === 0) return {}
  const options = { host, port, noDelay: true, keepAlive: true, keepAliveInitialDelay: KEEP_ALIVE_MS }
  return { stream: () => Object.assign(connectSocket(options), { _host: host }) }
}

/** How to make one more connection to where this client leads; undefined if it does not tell. */
export function connectLike(client: object): MysqlWire['connect'] {
  const theirs = settingsOf(client)
  if (theirs?.host === undefined && theirs?.socketPath === undefined) return undefined
  // A stream that is there already leads one connection only.
  if (typeof theirs.stream === 'object' && theirs.stream !== null) return undefined
  return connector({
    ...CONNECTION,
    ...Object.fromEntries(WAY.flatMap((name) => (theirs[name] ? [[name, theirs[name]]] : []))),
  })
}

/**
 * The database that this client was made for, whatever its connections were told since; undefined if it does not tell.
 */
export function databaseOf(client: object): string | undefined {
  const { database } = settingsOf(client) ?? {}
  return typeof database === 'string' && database !== '' ? database : undefined
}

interface Settings {
  readonly connectionConfig?: object
}

/** Of each connection: with promises or without, of a pool or of one alone. */
function settingsOf(client: object): Readonly<Record<string, unknown>> | undefined {
  const { pool, config } = client as { pool?: { config?: Settings }; config?: Settings }
  return (pool?.config?.connectionConfig ?? config?.connectionConfig ?? config) as
    | Readonly<Record<string, unknown>>
    | undefined
}

function connector(way: object): NonNullable<MysqlWire['connect']> {
  return async () => {
    const { createConnection } = await loadMysql2()
    const connection = await createConnection(way)
    keepAlive(connection as unknown as Mysql2Connection, false)
    return ownConnection(connection as unknown as Parameters<typeof ownConnection>[0])
  }
}

/** Listening, or resting, is no reason for a process to live on. */
function keepAlive(connection: Mysql2Connection, wanted: boolean): void {
  const { stream } = (connection as { connection?: { stream?: { ref?(): void; unref?(): void } } }).connection ?? {}
  if (wanted) stream?.ref?.()
  else stream?.unref?.()
}

export async function loadMysql2(): Promise<Pick<typeof import('mysql2/promise'), 'createConnection' | 'createPool'>> {
  return await loadClient('mysql', 'mysql2/promise', () => import('mysql2/promise'))
}

// ---- URLs ----

/** As mysql2 wants it. */
export interface MysqlTarget {
  readonly host: string
  readonly port: number
  readonly user: string
  readonly password: string
  readonly database: string
  readonly socketPath?: string
  /** A certificate of the authority may be that of another host: so the name in it is compared, too. */
  readonly ssl?: { readonly ca?: Buffer; readonly verifyIdentity: boolean }
}

/** What a URL says of our tables. */
export interface MysqlUrlOptions {
  /** What their names begin with. */
  readonly name?: string
}

const SHAPE =
  /^(?:mysql|mariadb):\/\/(?:(?<user>[^@/?#]*)@)?(?<host>\[[^\]]+\]|[^:/?#]*)(?::(?<port>\d{1,5}))?(?:\/(?<database>[^?#]*))?(?:\?(?<query>[^#]*))?$/i
const OPTIONS = ['name', 'tls', 'ca', 'socket'] as const
const PORT = 3306

/**
 * What a URL says:
 *
 *     mysql://user:password@host:3306/database
 *
 * or `mariadb://`, with options as a query: `name` (see engines/mysql/index.ts); `tls=true`; `ca`, a file with the
 * certificate of the authority; `socket`, a path instead of host and port. Messages say what is wrong without the URL,
 * which may hold a password.
 */
export function parseUrl(url: string): { readonly target: MysqlTarget; readonly options: MysqlUrlOptions } {
  const { user = '', host = '', port, database = '', query } = SHAPE.exec(url)?.groups ?? {}
  if (!SHAPE.test(url)) throw new TypeError('a mysql URL is mysql://user:password@host:port/database?option=value')
  if (database === '') throw new TypeError('a mysql URL names the database: mysql://user:password@host:port/database')
  const { tls, ca, socket } = optionsIn(query)
  if (tls !== undefined && tls !== 'true' && tls !== 'false')
    throw new TypeError(`tls in a mysql URL must be true or false; got '${tls}'`)
  const [login = '', ...secret] = user.split(':')
  const target = {
    host: host === '' ? '127.0.0.1' : host.replaceAll(/[[\]]/g, ''),
    port: Number(port ?? PORT),
    user: decodeURIComponent(login),
    password: decodeURIComponent(secret.join(':')),
    database: decodeURIComponent(database),
    ...(socket === undefined ? {} : { socketPath: socket }),
    ...(tls === 'true' || ca !== undefined
      ? { ssl: { ...(ca === undefined ? {} : { ca: readFileSync(ca) }), verifyIdentity: socket === undefined } }
      : {}),
  }
  return { target, options: optionsOf(url) }
}

/** Also if the URL names no server. */
export function optionsOf(url: string): MysqlUrlOptions {
  const { name } = optionsIn(/\?([^#]*)/.exec(url)?.[1])
  return name === undefined ? {} : { name }
}

function optionsIn(query: string | undefined): { readonly [Name in (typeof OPTIONS)[number]]?: string } {
  const options: Record<string, string> = {}
  for (const [name, value] of new URLSearchParams(query)) {
    if (!(OPTIONS as readonly string[]).includes(name))
      throw new TypeError(`unknown option '${name}' in a mysql URL; known: ${OPTIONS.join(', ')}`)
    options[name] = value
  }
  return options
}
