/** Servers whose wall clock a test has in hand: it stands still until it is moved. */
import { ServerClock } from './clock.ts'
import { findOwnMariadb, MariadbServer } from './mariadb.ts'
import { findOwnPostgres, PostgresServer } from './postgres.ts'
import { Missing, type Program } from './programs.ts'
import { findOwnRedis, RedisServer } from './redis.ts'

const BEGINS_AT_MS = 1_800_000_000_000

export class Clockwork<Server extends AsyncDisposable = RedisServer> implements AsyncDisposable {
  readonly clock: ServerClock
  readonly server: Server

  static start(): Promise<Clockwork | Missing> {
    return Clockwork.#driving(findOwnRedis, (source) => RedisServer.start(source))
  }

  static postgres(): Promise<Clockwork<PostgresServer> | Missing> {
    return Clockwork.#driving(findOwnPostgres, (source) => PostgresServer.start(source))
  }

  static mariadb(): Promise<Clockwork<MariadbServer> | Missing> {
    return Clockwork.#driving(findOwnMariadb, (source) => MariadbServer.start(source))
  }

  static async #driving<Server extends AsyncDisposable>(
    find: () => Promise<{ readonly program: Program } | Missing>,
    start: (source: { readonly program: Program }) => Promise<Server>,
  ): Promise<Clockwork<Server> | Missing> {
    const source = await find()
    if (source instanceof Missing) return source
    const clock = await ServerClock.make(BEGINS_AT_MS)
    if (clock instanceof Missing) return clock
    return new Clockwork(clock, await start({ program: clock.drive(source.program) }))
  }

  private constructor(clock: ServerClock, server: Server) {
    this.clock = clock
    this.server = server
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.server[Symbol.asyncDispose]()
    this.clock[Symbol.dispose]()
  }
}
