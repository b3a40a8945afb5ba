/**
 * PgBouncer between a client and a PostgreSQL server, in transaction mode unless told otherwise: what many applications
 * have, and what takes from a client everything that lives in a session (LISTEN, prepared statements, session locks,
 * settings).
 */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { freePort } from './ports.ts'
import { PostgresConnection } from './postgres.ts'
import { findProgram, type Missing, type Program, type Recipe } from './programs.ts'
import { ServerProcess } from './servers.ts'

const recipe: Recipe = {
  name: 'pgbouncer',
  program: 'pgbouncer',
  places: [],
  packages: ['pgbouncer'],
  install: '`apt-get install pgbouncer` (Debian, Ubuntu) or `brew install pgbouncer` (macOS)',
}

export async function findPgBouncer(): Promise<Program | Missing> {
  return await findProgram(recipe)
}

export interface PgBouncerOptions {
  readonly mode?: 'session' | 'transaction' | 'statement'
  /** How many connections to the server it keeps for one database. */
  readonly poolSize?: number
  /** Who may come through besides `postgres`. No user is asked for a password. */
  readonly users?: readonly string[]
}

export class PgBouncer implements AsyncDisposable {
  readonly port: number
  readonly process: ServerProcess

  /** In front of the server at `target`, whose databases it offers under their own names. */
  static async start(
    program: Program,
    target: { readonly host: string; readonly port: number },
    options: PgBouncerOptions = {},
  ): Promise<PgBouncer> {
    const port = await freePort()
    const process = await ServerProcess.start({
      name: 'pgbouncer',
      program,
      args: (folder) => {
        writeFileSync(join(folder, 'pgbouncer.ini'), configuration(target, port, options))
        writeFileSync(
          join(folder, 'users.txt'),
          ['postgres', ...(options.users ?? [])].map((user) => `"${user}" ""\n`).join(''),
        )
        return ['pgbouncer.ini']
      },
      ready: async () => {
        await using connection = await PostgresConnection.open(`postgres://postgres@127.0.0.1:${port}/postgres`)
        await connection.query('SELECT 1')
      },
    })
    return new PgBouncer(port, process)
  }

  private constructor(port: number, process: ServerProcess) {
    this.port = port
    this.process = process
  }

  /** The URL of a database of the server behind, by way of this pooler. */
  through(database: string): string {
    const url = new URL(database)
    url.host = `127.0.0.1:${this.port}`
    return url.href
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.process[Symbol.asyncDispose]()
  }
}

function configuration(
  target: { readonly host: string; readonly port: number },
  port: number,
  options: PgBouncerOptions,
): string {
  return `
[databases]
* = host=${target.host} port=${target.port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
auth_type = trust
auth_file = users.txt
pool_mode = ${options.mode ?? 'transaction'}
default_pool_size = ${options.poolSize ?? 20}
max_client_conn = 500
`
}
