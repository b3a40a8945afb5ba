/**
 * Two servers behind one address, as a client with a key sees them: one is killed while it handles a payment, and the
 * client, which hears nothing, sends it to the other one.
 */
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { builtModule } from '../built.ts'
import { findRedis, RedisServer } from '../servers/redis.ts'
import { describeServer } from '../servers/suite.ts'

const TTL_MS = 1_000

interface Charging {
  readonly id: string
  readonly number: number
}

interface PaymentServer {
  /** Send a payment. Answers its status, its body, and whether it was a replay. */
  pay(cents: number): Promise<readonly [status: number, body: unknown, replayed: boolean]>
  /** The next charge of this server. It goes on when it is told to. */
  charging(): Promise<Charging>
  goOn(): void
  kill(): Promise<void>
}

const children: ChildProcess[] = []

beforeEach(() => {
  builtModule('src/index.ts')
})

afterEach(async () => {
  await Promise.all(children.splice(0).map(kill))
})

async function kill(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const gone = once(child, 'exit')
  child.kill('SIGKILL')
  await gone
}

async function start(framework: string, url: string): Promise<PaymentServer> {
  const child = fork('test/engines/idempotency.child.mjs', [framework, url, String(TTL_MS)])
  children.push(child)
  const [{ port }] = (await once(child, 'message')) as [{ readonly port: number }]
  return {
    pay: async (cents) => {
      const response = await fetch(`http://127.0.0.1:${port}/payments`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', 'idempotency-key': 'order-7' },
        body: JSON.stringify({ cents }),
      })
      return [response.status, await response.json(), response.headers.has('idempotent-replayed')]
    },
    charging: async () => ((await once(child, 'message')) as [{ readonly charging: Charging }])[0].charging,
    goOn: () => void child.send('go on'),
    kill: () => kill(child),
  }
}

await describeServer('two servers on Redis', findRedis, (source) => {
  test.for(['express', 'fastify', 'hono'])(
    'a payment whose server is killed is made by the other one, once, and every retry gets its response (%s)',
    { timeout: 60_000 },
    async (framework) => {
      await using redis = await RedisServer.start(source)
      const [first, second] = [await start(framework, redis.url), await start(framework, redis.url)]
      const begun = first.charging()
      const unanswered = first.pay(100).catch(() => 'no answer')
      const { id } = await begun
      // The client retries while the first server still works.
      const retried = second.pay(100)
      const reused = await second.pay(200)
      expect(reused[0], 'another payment with the key').toBe(422)
      const taken = second.charging()
      await first.kill()
      expect(await unanswered).toBe('no answer')
      expect(await taken).toEqual({ id, number: 2 })
      second.goOn()
      const response = { charge: id, number: 2 }
      expect(await retried).toEqual([201, response, false])
      expect(await second.pay(100)).toEqual([201, response, true])
      const third = await start(framework, redis.url)
      expect(await third.pay(100)).toEqual([201, response, true])
    },
  )
})
