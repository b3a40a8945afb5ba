/**
 * PostgreSQL for tests and benchmarks: a server of our own, or the one HOLDFAST_TEST_POSTGRES_URL names.
 *
 * A server that was not started here is never killed, paused or restarted: its `process` is undefined. Suites that do
 * such things ask for `findOwnPostgres`. Whatever a test makes in a database it makes in one of its own (`database()`),
 * so that tests on one server do not meet.
 */
import { randomBytes } from 'node:crypto'
import { realpathSync } from 'node:fs'
import { dirname, join } from 'node:path'
import pg from 'pg'
import { findServer } from './other-servers.ts'
import { freePort } from './ports.ts'
import { Missing, type Program, type Recipe } from './programs.ts'
import { type ServerPlan, ServerProcess } from './servers.ts'

const recipe: Recipe = {
  name: 'postgresql',
  program: 'postgres',
  places: ['/usr/lib/postgresql/*/bin', '/usr/pgsql-*/bin', '/opt/homebrew/opt/postgresql@*/bin'],
  packages: ['postgresql-15', 'postgresql-client-15'],
  install:
    '`apt-get install postgresql` (Debian, Ubuntu) or `brew install postgresql` (macOS), or set HOLDFAST_TEST_POSTGRES_URL',
}

/** Where a PostgreSQL comes from: a program to start, or the URL of one that runs. */
export type PostgresSource = { readonly program: Program } | { readonly url: string }

export interface PostgresOptions {
  /**
   * Write to disk before answering, as a server does by default; then `kill` and a failing machine lose nothing.
   * Without it, `kill -9` still loses nothing, since the operating system lives on.
   */
  readonly fsync?: boolean
  /** Be a replica of that server (its URL), which answers questions and refuses writes. */
  readonly standbyOf?: string
  /** Settings, as for `postgres -c`. */
  readonly settings?: Readonly<Record<string, string | number>>
}

export async function findPostgres(): Promise<PostgresSource | Missing> {
  const url = process.env.HOLDFAST_TEST_POSTGRES_URL
  return url ? { url } : await findOwnPostgres()
}

/** For suites that kill and pause their server. */
export async function findOwnPostgres(): Promise<{ readonly program: Program } | Missing> {
  const program = await findServer(recipe)
  return program instanceof Missing ? program : { program }
}

export class PostgresServer implements AsyncDisposable {
  /** Of the database `postgres`, as a superuser if the server is ours. */
  readonly url: string
  /** Undefined for a server that is not ours. */
  readonly process: ServerProcess | undefined

  static async start(source: PostgresSource, options: PostgresOptions = {}): Promise<PostgresServer> {
    if ('url' in source) return await PostgresServer.#at(source.url)
    const port = await freePort()
    const url = `postgres://postgres@127.0.0.1:${port}/postgres`
    const process = await ServerProcess.start({
      name: 'postgresql',
      program: source.program,
      prepare: preparation(dirname(realpathSync(source.program.path)), options.standbyOf),
      args: (folder) => argumentsOf(port, folder, options),
      ready: () => answers(url),
      // A "fast" shutdown: the default one waits until the last client has gone. Killed, it would leave a segment of
      // shared memory in the machine.
      stopSignal: 'SIGINT',
      endSignal: 'SIGQUIT',
    })
    return new PostgresServer(url, process)
  }

  /** A server asked for by name must be there: no answer is a failure, not a skip. */
  static async #at(url: string): Promise<PostgresServer> {
    await answers(url)
    return new PostgresServer(url, undefined)
  }

  private constructor(url: string, process: ServerProcess | undefined) {
    this.url = url
    this.process = process
  }

  get host(): string {
    return new URL(this.url).hostname
  }

  get port(): number {
    return Number(new URL(this.url).port || 5432)
  }

  /** A connection, to ask and to tell the server things past all locks. */
  async connect(url: string = this.url): Promise<PostgresConnection> {
    return await PostgresConnection.open(url)
  }

  /** A new database of a name of its own: its URL. */
  async database(): Promise<string> {
    const name = `holdfast_${randomBytes(6).toString('hex')}`
    await using connection = await this.connect()
    await connection.query(`CREATE DATABASE ${name} TEMPLATE template0`)
    const url = new URL(this.url)
    url.pathname = `/${name}`
    return url.href
  }

  /** Only needed on a server that is not ours. */
  async drop(database: string): Promise<void> {
    await using connection = await this.connect()
    await connection.query(`DROP DATABASE IF EXISTS ${new URL(database).pathname.slice(1)} WITH (FORCE)`)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.process?.[Symbol.asyncDispose]()
  }
}

/** One connection of `pg`, whose end is not told. */
export class PostgresConnection implements AsyncDisposable {
  readonly client: pg.Client

  static async open(url: string): Promise<PostgresConnection> {
    const client = new pg.Client({ connectionString: url, connectionTimeoutMillis: 10_000 })
    client.on('error', () => undefined)
    await client.connect()
    return new PostgresConnection(client)
  }

  private constructor(client: pg.Client) {
    this.client = client
  }

  /** The rows. */
  async query(text: string, values: readonly unknown[] = []): Promise<readonly Record<string, unknown>[]> {
    return (await this.client.query<Record<string, unknown>>(text, [...values])).rows
  }

  /** The first column of the first row. */
  async value(text: string, values: readonly unknown[] = []): Promise<unknown> {
    const [row] = await this.query(text, values)
    return row === undefined ? undefined : Object.values(row)[0]
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.client.end().catch(() => undefined)
  }
}

function preparation(programs: string, standbyOf: string | undefined): NonNullable<ServerPlan['prepare']> {
  if (standbyOf === undefined) {
    return {
      program: join(programs, 'initdb'),
      args: (folder) => [
        '-D',
        join(folder, 'data'),
        '-A',
        'trust',
        '-U',
        'postgres',
        '-E',
        'UTF8',
        '--no-locale',
        '--no-sync',
      ],
    }
  }
  return {
    program: join(programs, 'pg_basebackup'),
    args: (folder) => [
      '-D',
      join(folder, 'data'),
      '-d',
      standbyOf,
      '--write-recovery-conf',
      '--checkpoint=fast',
      '--no-sync',
    ],
  }
}

function argumentsOf(port: number, folder: string, options: PostgresOptions): readonly string[] {
  const settings = {
    listen_addresses: '127.0.0.1',
    // A path of at most 107 bytes, which a temporary folder's may be.
    unix_socket_directories: '',
    fsync: options.fsync === true ? 'on' : 'off',
    ...options.settings,
  }
  const given = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`])
  return ['-D', join(folder, 'data'), '-p', `${port}`, ...given]
}

async function answers(url: string): Promise<void> {
  await using connection = await PostgresConnection.open(url)
  await connection.query('SELECT 1')
}
