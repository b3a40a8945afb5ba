/** Clocks that jump: what Redlock assumes does not hold then, and two hold at once. Tokens tell them apart. */
import { expect, test } from 'vitest'
import { openRedlock } from '../../src/engines/redlock/index.ts'
import { createLocks, type Locks } from '../../src/index.ts'
import { ServerClock } from '../servers/clock.ts'
import { Missing, type Program } from '../servers/programs.ts'
import { findOwnRedis, RedisServer } from '../servers/redis.ts'
import { describeServer } from '../servers/suite.ts'
import { connected, urlOf } from './redlock-world.ts'

const HOUR_MS = 3_600_000

/** Three servers on a clock that stands still until it is moved, and two on that of the machine. */
class Clocks implements AsyncDisposable {
  readonly clock: ServerClock
  readonly #servers: readonly RedisServer[]

  static async start(program: Program, clock: ServerClock): Promise<Clocks> {
    const driven = clock.drive(program)
    return new Clocks(
      clock,
      await Promise.all([driven, driven, driven, program, program].map((one) => RedisServer.start({ program: one }))),
    )
  }

  private constructor(clock: ServerClock, servers: readonly RedisServer[]) {
    this.clock = clock
    this.#servers = servers
  }

  async locks(): Promise<Locks> {
    const engine = await openRedlock(`${urlOf(this.#servers.map(({ port }) => port))}?timeout=300`)
    return createLocks(await connected(engine), { ttl: '30s' })
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#servers.map((server) => server[Symbol.asyncDispose]()))
    this.clock[Symbol.dispose]()
  }
}

async function findBoth(): Promise<{ readonly program: Program } | Missing> {
  const clock = await ServerClock.make(0)
  if (clock instanceof Missing) return clock
  clock[Symbol.dispose]()
  return await findOwnRedis()
}

await describeServer('Redlock and clocks', findBoth, ({ program }) => {
  async function start(): Promise<Clocks> {
    const clock = await ServerClock.make(1_800_000_000_000)
    if (clock instanceof Missing) throw new Error(clock.reason)
    return await Clocks.start(program, clock)
  }

  test('the clocks of three servers jump ahead: a second one holds beside the first, with the higher token', async () => {
    await using clocks = await start()
    const [one, other] = [await clocks.locks(), await clocks.locks()]
    const first = await one.mutex('jump').acquire()
    expect(await other.mutex('jump').tryAcquire()).toBeUndefined()
    clocks.clock.advance(HOUR_MS)
    const second = await other.mutex('jump').acquire({ wait: '20s' })
    expect({ first: first.held, second: second.held }).toEqual({ first: true, second: true })
    expect(second.token).toBeGreaterThan(first.token as bigint)
    await Promise.all([one.close(), other.close()])
  })

  test('the clocks of three servers go back and forth: tokens only rise', async () => {
    await using clocks = await start()
    const all = [await clocks.locks(), await clocks.locks()]
    let last = 0n
    for (let round = 0; round < 40; round += 1) {
      clocks.clock.advance((round % 3 === 0 ? -2 : 1) * HOUR_MS)
      const lease = await (all[round % 2] as Locks).mutex('back').acquire({ wait: '20s' })
      expect(lease.token).toBeGreaterThan(last)
      last = lease.token as bigint
      await lease.release()
    }
    await Promise.all(all.map((locks) => locks.close()))
  })
})
