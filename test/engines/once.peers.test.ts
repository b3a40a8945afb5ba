/**
 * A takeover that comes late, beside another library: a server finds a request that a dead one has left behind, is
 * paused before it claims it, and goes on when another server has taken it over and is done.
 *
 * AWS Powertools on Redis claims by an unconditional SET, behind a lock that ends by itself: the work is done twice,
 * and the second result takes the place of the first (their report 5714 has it, with a model). Here, the claim is
 * refused in the step that would have written it.
 */
import { makeIdempotent } from '@aws-lambda-powertools/idempotency'
import { CachePersistenceLayer } from '@aws-lambda-powertools/idempotency/cache'
import { Redis } from 'ioredis'
import { createClient } from 'redis'
import { expect, test, vi } from 'vitest'
import { delegate } from '../../conformance/delegate.ts'
import type { Engine } from '../../src/core/engine.ts'
import { LeaseLostError } from '../../src/core/errors.ts'
import type { Store } from '../../src/core/store.ts'
import { redis } from '../../src/engines/redis/index.ts'
import { createLocks } from '../../src/locks.ts'
import { once } from '../../src/recipes/once/index.ts'
import { findRedis, RedisServer } from '../servers/redis.ts'
import { describeServer } from '../servers/suite.ts'

const TTL_MS = 500
const LIMIT = { timeout: 30_000, interval: 10 }

/** What a process that was paused has asked for, and when it goes on. */
class Pause {
  asked = false
  goOn!: () => void
  readonly #over = new Promise<void>((resolve) => {
    this.goOn = resolve
  })

  async here(): Promise<void> {
    this.asked = true
    await this.#over
  }
}

/** The client that Powertools is given, as far as it uses it. */
interface CacheClient {
  get(name: string): Promise<string | null>
  set(name: string, value: string, options?: { EX?: number; NX?: boolean }): Promise<string | null>
  del(names: string[]): Promise<number>
}

await describeServer('a server that is paused before it takes a request over, on Redis', findRedis, (source) => {
  test('does the work a second time with Powertools', async () => {
    await using server = await RedisServer.start(source)
    const client = await createClient({ url: server.url }).connect()
    try {
      const plain = client as unknown as CacheClient
      const pause = new Pause()
      const paused: CacheClient = {
        get: (name) => plain.get(name),
        del: (names) => plain.del(names),
        set: async (name, value, options) => {
          if (name.endsWith(':lock')) await pause.here()
          return plain.set(name, value, options)
        },
      }
      const done: string[] = []
      const serverOf = (name: string, cache: CacheClient, result: Promise<void>) => {
        const persistenceStore = new CachePersistenceLayer({ client: cache as never })
        const work = async (_event: object, _context: object): Promise<string> => {
          await result
          done.push(name)
          return name
        }
        const handler = makeIdempotent(work, { persistenceStore, keyPrefix: 'pay' })
        // A Lambda of which no time is left: what it leaves behind may be taken over.
        return (): Promise<string> => handler({ id: 'order' }, { getRemainingTimeInMillis: () => -1 })
      }
      const now = Promise.resolve()
      void serverOf('dead', plain, new Promise(() => {}))()
      await vi.waitFor(async () => expect(await client.dbSize()).toBe(1), LIMIT)
      const late = serverOf('late', paused, now)()
      await vi.waitFor(() => expect(pause.asked).toBe(true), LIMIT)
      expect(await serverOf('prompt', plain, now)()).toBe('prompt')
      // It ends after ten seconds by itself; this test does not wait for that.
      for (const lock of await client.keys('*:lock')) await client.del(lock)
      pause.goOn()
      expect(await late).toBe('late')
      expect(done).toEqual(['prompt', 'late'])
    } finally {
      await client.close()
    }
  })

  test('is refused with once, and is given the result', async () => {
    await using server = await RedisServer.start(source)
    const clients: Redis[] = []
    const done: string[] = []
    const engineOf = () => {
      const client = new Redis(server.url)
      clients.push(client)
      return redis({ client })
    }
    const ofDead = engineOf()
    const ofLate = engineOf()
    const pause = new Pause()
    const never = (): Promise<never> => new Promise(() => {})
    // A process that does not run does not renew. The late one waits in the line until it is paused.
    const dying: Partial<Engine> = { renew: never }
    const pausingLine: Partial<Engine> = { renew: (places) => (pause.asked ? never() : ofLate.renew(places)) }
    const { store } = ofLate as { store: Store }
    let puts = 0
    const pausing: Store = {
      traits: store.traits,
      get: (keys) => store.get(keys),
      list: (prefix) => store.list(prefix),
      put: async (changes) => {
        puts += 1
        // The first one goes with the claim, and tells that the dead one holds.
        if (puts === 2) await pause.here()
        return store.put(changes)
      },
    }
    await using dead = createLocks(delegate(ofDead, dying), { ttl: TTL_MS })
    await using late = createLocks(delegate(ofLate, { ...pausingLine, store: pausing }), { ttl: TTL_MS })
    await using prompt = createLocks(engineOf(), { ttl: TTL_MS })
    const work = (name: string) => () => {
      done.push(name)
      return name
    }
    try {
      let begun = false
      const running = once(dead).run('order', () => {
        begun = true
        return new Promise<string>(() => {})
      })
      running.catch(() => {})
      await vi.waitFor(() => expect(begun).toBe(true), LIMIT)
      const second = once(late).run('order', work('late'))
      const refused = expect(second).rejects.toThrow(LeaseLostError)
      await vi.waitFor(() => expect(pause.asked).toBe(true), LIMIT)
      expect((await once(prompt).run('order', work('prompt'))).value).toBe('prompt')
      pause.goOn()
      await refused
      const retry = await once(late).run('order', work('late'))
      expect(retry).toMatchObject({ value: 'prompt', replayed: true })
      expect(done).toEqual(['prompt'])
    } finally {
      await Promise.all([dead.close(), late.close(), prompt.close()])
      for (const client of clients) client.disconnect()
    }
  })
})
