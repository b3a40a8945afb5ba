/** A Redis whose wall clock a test has in hand: it stands still until it is moved. */
import { ServerClock } from './clock.ts'
import { Missing } from './programs.ts'
import { findOwnRedis, RedisServer } from './redis.ts'

export class Clockwork implements AsyncDisposable {
  readonly clock: ServerClock
  readonly server: RedisServer

  static async start(): Promise<Clockwork | Missing> {
    const source = await findOwnRedis()
    if (source instanceof Missing) return source
    const clock = await ServerClock.make(1_800_000_000_000)
    if (clock instanceof Missing) return clock
    return new Clockwork(clock, await RedisServer.start({ program: clock.drive(source.program) }))
  }

  private constructor(clock: ServerClock, server: RedisServer) {
    this.clock = clock
    this.server = server
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.server[Symbol.asyncDispose]()
    this.clock[Symbol.dispose]()
  }
}
