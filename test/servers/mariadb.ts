/**
 * MariaDB for tests and benchmarks: a server of our own, or the MySQL or MariaDB that HOLDFAST_TEST_MYSQL_URL names.
 * The program may also be MySQL itself (mysql.ts): then it is prepared and started as that wants it.
 *
 * Ours has a database `holdfast` and a user `app`, who may do everything there and nothing elsewhere: engines are tried
 * with the rights that an application has. A server that was not started here is never killed, paused or restarted: its
 * `process` is undefined, and suites that do such things ask for `findOwnMariadb`.
 *
 * `mariadb-install-db` fails where the packages were only unpacked. It is a shell script around `mariadbd --bootstrap`,
 * which works, so we feed that ourselves.
 */
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { type Connection, createConnection } from 'mysql2/promise'
import { isMysql, mysqlInstallation, mysqlOptions } from './mysql.ts'
import { findServer } from './other-servers.ts'
import { freePort } from './ports.ts'
import { Missing, type Program, type Recipe } from './programs.ts'
import { ServerProcess } from './servers.ts'

const recipe: Recipe = {
  name: 'mariadb',
  program: 'mariadbd',
  places: ['/opt/homebrew/opt/mariadb/bin'],
  packages: ['mariadb-server-core'],
  install:
    '`apt-get install mariadb-server` (Debian, Ubuntu) or `brew install mariadb` (macOS), or set HOLDFAST_TEST_MYSQL_URL',
}

/** Where a server comes from: a program to start, or the URL of one that runs. */
export type MariadbSource = { readonly program: Program } | { readonly url: string }

export interface MariadbOptions {
  /**
   * As a server is by default: every commit waits for the disk. Without it, for the kernel: `kill` loses nothing
   * either, a power cut would.
   */
  readonly durable?: boolean
  /** Further arguments of mariadbd. */
  readonly args?: readonly string[]
}

export async function findMariadb(): Promise<MariadbSource | Missing> {
  const url = process.env.HOLDFAST_TEST_MYSQL_URL
  return url ? { url } : await findOwnMariadb()
}

/** For suites that kill and pause their server. */
export async function findOwnMariadb(): Promise<{ readonly program: Program } | Missing> {
  const program = await findServer(recipe)
  return program instanceof Missing ? program : { program }
}

export class MariadbServer implements AsyncDisposable {
  readonly host: string
  readonly port: number
  /** The one that the URL names. */
  readonly database: string
  /** An ordinary user's. */
  readonly url: string
  /** One that may do everything; undefined for a server that is not ours. */
  readonly rootUrl: string | undefined
  /** Undefined for a server that is not ours. */
  readonly process: ServerProcess | undefined

  static async start(source: MariadbSource, options: MariadbOptions = {}): Promise<MariadbServer> {
    if ('url' in source) return await MariadbServer.#at(source.url)
    const { program } = source
    const port = await freePort()
    const at = `127.0.0.1:${port}`
    const rootUrl = `mysql://root@${at}/mysql`
    const process = await ServerProcess.start({
      name: 'mariadb',
      program,
      prepare: { program: 'sh', args: (folder) => installation(program, folder) },
      args: (folder) => [...common(program, folder), ...argumentsOf(port, folder, options)],
      ready: () => ping(rootUrl),
    })
    return new MariadbServer(`mysql://app:secret@${at}/holdfast`, rootUrl, process)
  }

  /** A server asked for by name must be there: no answer is a failure, not a skip. */
  static async #at(url: string): Promise<MariadbServer> {
    await ping(url)
    return new MariadbServer(url, undefined, undefined)
  }

  private constructor(url: string, rootUrl: string | undefined, process: ServerProcess | undefined) {
    const { hostname, port, pathname } = new URL(url)
    this.host = hostname
    this.port = Number(port || 3306)
    this.database = pathname.slice(1)
    this.url = url
    this.rootUrl = rootUrl
    this.process = process
  }

  /** A plain connection, of the ordinary user unless told. */
  async connect(url: string = this.url): Promise<Connection> {
    return await connected(url)
  }

  /** One statement of a user who may do everything, past all clients. */
  async asRoot(sql: string): Promise<readonly unknown[]> {
    const connection = await connected(this.rootUrl ?? this.url)
    try {
      const [rows] = await connection.query(sql)
      return Array.isArray(rows) ? rows : [rows]
    } finally {
      connection.destroy()
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.process?.[Symbol.asyncDispose]()
  }
}

const CONNECT_LIMIT_MS = 10_000

/** Without a listener, a connection that breaks ends the test run. */
async function connected(uri: string): Promise<Connection> {
  const connection = await createConnection({ uri, connectTimeout: CONNECT_LIMIT_MS })
  connection.on('error', () => undefined)
  return connection
}

async function ping(url: string): Promise<void> {
  const connection = await connected(url)
  connection.destroy()
}

const USERS = `
flush privileges;
create database holdfast;
create user app@'%' identified by 'secret';
grant all on holdfast.* to app@'%';
`

/**
 * $1 and $2 are files of statements, $3 some more, the rest is the server. Each statement ends its line: a bootstrap
 * reads no other.
 */
const BOOTSTRAP = `
tables=$1; data=$2; users=$3; shift 3
mkdir data
{ printf 'create database mysql;\\nuse mysql;\\n'; cat "$tables" "$data"; printf '%s' "$users"; } | exec "$@" --bootstrap
`

/** The system tables, as `mariadb-install-db` makes them, and a user without rights elsewhere. */
function installation(program: Program, folder: string): readonly string[] {
  if (isMysql(program)) return mysqlInstallation(program, folder, common(program, folder))
  const files = ['system_tables', 'system_tables_data'].map((name) => systemFile(program, name))
  return ['-c', BOOTSTRAP, 'sh', ...files, USERS, program.path, ...common(program, folder)]
}

function systemFile(program: Program, name: string): string {
  const places = ['mysql', 'mariadb'].map((prefix) => join(shareOf(program), `${prefix}_${name}.sql`))
  const found = places.find((place) => existsSync(place))
  if (found === undefined) throw new Error(`${program.path} has no ${places.join(' or ')}`)
  return found
}

/** Where messages, character sets and the scripts of the system tables are. */
function shareOf({ root }: Program): string {
  const places = [
    '/usr/share/mysql',
    '/usr/share/mariadb',
    '/usr/local/share/mysql',
    '/opt/homebrew/opt/mariadb/share/mysql',
  ]
  const found = places.map((place) => join(root, place)).find((place) => existsSync(place))
  if (found === undefined) throw new Error(`the files that belong to mariadbd are in none of ${places.join(', ')}`)
  return found
}

/**
 * What the bootstrap and the server itself have to agree on. Small: tests start many. With half the memory, a server
 * reads pages from its disk for every transaction. When a server starts, it removes every temporary table that it finds
 * in its folder for them, also those of another server: so each has a folder of its own.
 */
function common(program: Program, folder: string): readonly string[] {
  const share = shareOf(program)
  const small = ['--innodb-buffer-pool-size=32M', '--performance-schema=OFF', '--skip-log-bin']
  const own = isMysql(program) ? mysqlOptions : ['--innodb-log-file-size=8M']
  return [
    '--no-defaults',
    `--datadir=${join(folder, 'data')}`,
    `--tmpdir=${folder}`,
    `--lc-messages-dir=${share}`,
    `--character-sets-dir=${share}/charsets`,
    ...small,
    ...own,
  ]
}

function argumentsOf(port: number, folder: string, { durable = false, args = [] }: MariadbOptions): readonly string[] {
  const listen = [
    `--port=${port}`,
    '--bind-address=127.0.0.1',
    `--socket=${join(folder, 's')}`,
    `--pid-file=${join(folder, 'pid')}`,
  ]
  return [...listen, `--innodb-flush-log-at-trx-commit=${durable ? 1 : 2}`, ...args]
}
