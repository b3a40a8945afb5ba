/**
 * What the simulator takes for a server does what the scripts do on a real one: the same random calls, the same
 * answers.
 */

import { Redis } from 'ioredis'
import { expect, test } from 'vitest'
import { Random } from '../../simulation/random.ts'
import { SimulatedServer } from '../../simulation/redlock/server.ts'
import { wireOf } from '../../src/clients/redis/detect.ts'
import { RedisNames } from '../../src/clients/redis/names.ts'
import { systemClock } from '../../src/core/clock.ts'
import { RedlockScriptArguments } from '../../src/engines/redlock/codec.ts'
import type { RepairRequest, ReplyCallback, TakeReply, TakeRequest } from '../../src/engines/redlock/quorum-server.ts'
import { RedlockServer } from '../../src/engines/redlock/server.ts'
import { findOwnRedis, RedisServer } from '../servers/redis.ts'
import { describeServer } from '../servers/suite.ts'

const KEYS = ['a', 'b'] as const
const IDS = ['one', 'two', 'three'] as const
const STEPS = 3000

/** Numbers begin at the clock, so they are compared by how far they are from the first of their key. */
class Side {
  readonly #first = new Map<string, number>()

  number(key: string, number: number): number {
    if (number === 0) return 0
    const first = this.#first.get(key) ?? number
    this.#first.set(key, first)
    return number - first + 1
  }

  real(key: string, number: number): number {
    return number + (this.#first.get(key) ?? 1) - 1
  }

  answer(key: string, answer: TakeReply): unknown {
    if (typeof answer === 'number') return this.number(key, answer)
    if (answer.why === 'taken') return { why: 'taken', by: answer.by, ahead: answer.ahead, next: answer.next }
    return answer.why
  }
}

async function serverOn(client: Redis): Promise<RedlockServer> {
  const wire = wireOf(client, systemClock)
  const names = new RedisNames(wire, 'lock:')
  const server = new RedlockServer(wire, systemClock, names, new RedlockScriptArguments(names, 'engine'))
  await server.connected()
  return server
}

await describeServer('one server of a Redlock', findOwnRedis, (source) => {
  test(`${STEPS} random calls are answered alike by the scripts and by the simulated server`, async () => {
    await using server = await RedisServer.start(source)
    const client = new Redis(server.port)
    const redlockServer = await serverOn(client)
    const model = new SimulatedServer(
      () => systemClock.now(),
      (key) => key,
    )
    const [real, simulated] = [new Side(), new Side()]
    const chance = new Random(7)
    const call = async <Reply>(send: (onReply: ReplyCallback<Reply>) => void): Promise<Reply> =>
      await new Promise((resolve, reject) =>
        send((reply, error) => (reply === undefined ? reject(error as Error) : resolve(reply))),
      )
    for (let step = 0; step < STEPS; step += 1) {
      const [key, id, attempt] = [chance.pick(KEYS), chance.pick(IDS), chance.whole(1, 5)]
      const ttlMs = 600_000
      const roll = chance.whole(0, 9)
      if (roll < 5) {
        const request: TakeRequest = {
          key,
          id,
          ttlMs,
          holder: 'h',
          attempt,
          mode: chance.pick(['try', 'wait', 'renew']),
        }
        const [answer] = await call<readonly TakeReply[]>((onReply) => redlockServer.take([request], onReply))
        const [theirs, ours] = [real.answer(key, answer as TakeReply), simulated.answer(key, model.take(request))]
        expect(theirs, `step ${step}: take ${JSON.stringify(request)}`).toEqual(ours)
      } else if (roll < 6) {
        const to = chance.whole(1, step)
        const [number] = await call<readonly number[]>((onReply) =>
          redlockServer.raise([{ key, id, to: real.real(key, to) }], onReply),
        )
        expect(real.number(key, number as number), `step ${step}: raise`).toBe(
          simulated.number(key, model.raise({ key, id, to: simulated.real(key, to) })),
        )
      } else if (roll < 7) {
        const [token, currentNumber] = [chance.whole(1, step), chance.happens(0.5) ? chance.whole(1, step) : undefined]
        const common = {
          key,
          id,
          ttlMs,
          holder: 'h',
          attempt,
          notAfterMs: chance.happens(0.2) ? 0 : Number.MAX_SAFE_INTEGER,
        }
        const repair = (side: Side): Parameters<typeof model.repair>[0] => ({
          ...common,
          token: side.real(key, token),
          currentNumber: currentNumber === undefined ? undefined : side.real(key, currentNumber),
        })
        await call<unknown>((onReply) => redlockServer.repair([repair(real)], onReply))
        model.repair(repair(simulated))
      } else {
        const keepWaiting = { keepWaiting: { ttlMs, holder: 'h' } }
        const leave = {
          key,
          id,
          ...(chance.happens(0.5) ? { upToAttempt: attempt, ...(chance.happens(0.5) ? keepWaiting : {}) } : {}),
        }
        const [was] = await call<readonly boolean[]>((onReply) => redlockServer.leave([leave], onReply))
        expect(was, `step ${step}: leave ${JSON.stringify(leave)}`).toBe(model.leave(leave))
      }
    }
    client.disconnect()
  })

  test('a server that has forgotten what it counted to begins at its clock: when asked, when repaired, and when told to raise', async () => {
    await using server = await RedisServer.start(source)
    const client = new Redis(server.port)
    const redlockServer = await serverOn(client)
    const model = new SimulatedServer(() => Date.now(), String)
    const micros = async (): Promise<number> => {
      const [seconds, rest] = await client.time()
      return Math.min(Number(seconds) * 1_000_000 + Number(rest), Date.now() * 1000)
    }
    const common = { key: 'a', ttlMs: 600_000, holder: 'h', attempt: 1 }
    const request: TakeRequest = { ...common, id: 'one', mode: 'try' }
    const sides = {
      real: {
        take: (id: string) =>
          new Promise<unknown>((resolve) => redlockServer.take([{ ...request, id }], (all) => resolve(all?.[0]))),
        repair: (repair: RepairRequest) => new Promise<unknown>((resolve) => redlockServer.repair([repair], resolve)),
        raise: (to: number) =>
          new Promise<unknown>((resolve) =>
            redlockServer.raise([{ key: 'a', id: 'one', to }], (all) => resolve(all?.[0])),
          ),
        leave: (id: string) => new Promise<unknown>((resolve) => redlockServer.leave([{ key: 'a', id }], resolve)),
        forgetCounts: () => client.del('hf1:counters') as Promise<unknown>,
      },
      simulated: {
        take: async (id: string) => model.take({ ...request, id }),
        repair: async (repair: RepairRequest) => model.repair(repair),
        raise: async (to: number) => model.raise({ key: 'a', id: 'one', to }),
        leave: async (id: string) => model.leave({ key: 'a', id }),
        forgetCounts: async () => model.forgetCounts(),
      },
    }
    for (const [name, side] of Object.entries(sides)) {
      const repaired = { ...common, id: 'one', currentNumber: undefined, notAfterMs: Number.MAX_SAFE_INTEGER }
      const before = await micros()
      expect(await side.take('one'), name).toBeGreaterThanOrEqual(before)
      await side.forgetCounts()
      const lost = await micros()
      expect(await side.raise(before), `${name}: raised`).toBeGreaterThanOrEqual(lost)
      await side.leave('one')
      await side.forgetCounts()
      await side.repair({ ...repaired, token: 5 })
      await side.leave('one')
      expect(await side.take('two'), `${name}: repaired`).toBeGreaterThan(lost)
      await side.leave('two')
      await side.forgetCounts()
      // A clock that is behind what was granted is not enough either.
      await side.repair({ ...repaired, token: 2 * lost })
      await side.leave('one')
      expect(await side.take('two'), `${name}: ahead`).toBe(2 * lost + 1)
    }
    client.disconnect()
  })
})
