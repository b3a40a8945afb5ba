/** A PostgreSQL server and a database of its own there, for the cases that PostgreSQL shares with MySQL. */
import pg from 'pg'
import type { Engine } from '../../src/core/engine.ts'
import { openPostgres, postgres } from '../../src/engines/postgres/index.ts'
import { type PostgresOptions, PostgresServer, type PostgresSource } from '../servers/postgres.ts'
import type { ServerProcess } from '../servers/servers.ts'
import type { SqlDatabase, SqlPool } from './sql-database.ts'

export class PostgresDatabase implements SqlDatabase {
  readonly server: PostgresServer
  readonly url: string

  static async start(source: PostgresSource, options: PostgresOptions = {}): Promise<PostgresDatabase> {
    const server = await PostgresServer.start(source, options)
    return new PostgresDatabase(server, await server.database())
  }

  private constructor(server: PostgresServer, url: string) {
    this.server = server
    this.url = url
  }

  get host(): string {
    return this.server.host
  }

  get port(): number {
    return this.server.port
  }

  get process(): ServerProcess | undefined {
    return this.server.process
  }

  /** As in `ALTER DATABASE`. */
  get name(): string {
    return new URL(this.url).pathname.slice(1)
  }

  /** The URL with another port, such as that of a proxy. */
  at(port: number): string {
    const url = new URL(this.url)
    url.port = `${port}`
    return url.href
  }

  async engine(port: number = this.port): Promise<Engine> {
    return await openPostgres(this.at(port))
  }

  pool(size: number): SqlPool {
    const pool = new pg.Pool({ connectionString: this.url, max: size })
    return {
      engine: postgres({ client: pool }),
      query: () => pool.query('SELECT 1'),
      end: () => pool.end(),
    }
  }

  /** Do something to the server, past all clients. */
  async tell(statement: string, values: readonly unknown[] = []): Promise<readonly Record<string, unknown>[]> {
    await using connection = await this.server.connect(this.url)
    return await connection.query(statement, values)
  }

  async endConnections(): Promise<number> {
    const rows = await this.tell(
      `SELECT count(pg_terminate_backend(pid)) AS ended FROM pg_stat_activity
       WHERE datname = current_database() AND pid <> pg_backend_pid()`,
    )
    return Number(rows[0]?.ended)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.process === undefined) await this.server.drop(this.url)
    await this.server[Symbol.asyncDispose]()
  }
}
