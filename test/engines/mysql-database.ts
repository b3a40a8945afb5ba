/** A MariaDB server with an empty database, for the cases that MySQL shares with PostgreSQL. */
import { createPool } from 'mysql2/promise'
import type { Engine } from '../../src/core/engine.ts'
import { mysql, openMysql } from '../../src/engines/mysql/index.ts'
import { MariadbServer, type MariadbSource } from '../servers/mariadb.ts'
import type { ServerProcess } from '../servers/servers.ts'
import type { SqlDatabase, SqlPool } from './sql-database.ts'

/** What its listening connections do, as the server tells it. */
const LISTENING = `user = 'app' and state in ('User sleep', 'User lock')`

export class MysqlDatabase implements SqlDatabase {
  readonly server: MariadbServer

  static async start(source: MariadbSource): Promise<MysqlDatabase> {
    return new MysqlDatabase(await MariadbServer.start(source))
  }

  private constructor(server: MariadbServer) {
    this.server = server
  }

  get url(): string {
    return this.server.url
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

  async engine(port: number = this.port): Promise<Engine> {
    const url = new URL(this.url)
    url.port = `${port}`
    return await openMysql(url.href)
  }

  pool(size: number): SqlPool {
    const pool = createPool({ uri: this.url, connectionLimit: size })
    return {
      engine: mysql({ client: pool }),
      query: () => pool.query('select 1'),
      end: () => pool.end(),
    }
  }

  /** The threads of the server that such clients have. */
  async threads(where: string): Promise<readonly number[]> {
    const rows = await this.server.asRoot(`select id from information_schema.processlist where ${where}`)
    return (rows as { id: number }[]).map(({ id }) => id)
  }

  async listening(): Promise<readonly number[]> {
    return await this.threads(LISTENING)
  }

  async endConnections(): Promise<number> {
    const threads = await this.threads(`user = 'app'`)
    for (const id of threads) await this.server.asRoot(`kill ${id}`).catch(() => undefined)
    return threads.length
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.server[Symbol.asyncDispose]()
  }
}
