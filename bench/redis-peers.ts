/**
 * What people use on Redis today: the hand-written protocol, and the libraries. Each has what it needs to be fast: an
 * ioredis client, auto-pipelined where many call at once (it only delays a single caller), scripts that are loaded,
 * lock objects that are made once for each caller, no renewal. A peer that does not run on this Node is left out, and
 * said so.
 */
import { randomUUID } from 'node:crypto'
import { createRequire } from 'node:module'
import { Redlock as SesameRedlock } from '@sesamecare-oss/redlock'
import { LockFactory } from '@verrou/core'
import { redisStore } from '@verrou/core/drivers/redis'
import { Redis } from 'ioredis'
import { Mutex as SemaphoreMutex } from 'redis-semaphore'
import type { Peer } from './ours.ts'

const TTL_MS = 30_000

/** As in the manual of Redis: delete it if it is still mine. */
const RELEASE = 'if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end'
/** The same with a fencing token, minted with the lock, from a counter for each key. */
const ACQUIRE_FENCED =
  'if redis.call("set", KEYS[1], ARGV[1], "NX", "PX", ARGV[2]) then return redis.call("incr", KEYS[2]) else return 0 end'

interface HandWritten {
  release(key: string, value: string): Promise<number>
  acquireFenced(key: string, counter: string, value: string, ttlMs: number): Promise<number>
}

function handWritten(port: number, enableAutoPipelining: boolean): Redis & HandWritten {
  const client = new Redis({ port, enableAutoPipelining })
  client.defineCommand('release', { numberOfKeys: 1, lua: RELEASE })
  client.defineCommand('acquireFenced', { numberOfKeys: 2, lua: ACQUIRE_FENCED })
  return client as Redis & HandWritten
}

const mustHold = (held: unknown): void => {
  if (!held) throw new Error('a lock that no other caller asks for was not had')
}

function handWrittenPeers(client: Redis & HandWritten, how: string): readonly Peer[] {
  return [
    {
      name: `hand-written, no token${how}`,
      async pair(caller) {
        const [key, value] = [`hand:${caller}`, randomUUID()]
        mustHold(await client.set(key, value, 'PX', TTL_MS, 'NX'))
        mustHold(await client.release(key, value))
      },
    },
    {
      name: `hand-written, fenced${how}`,
      async pair(caller) {
        const [key, value] = [`fenced:${caller}`, randomUUID()]
        mustHold(await client.acquireFenced(key, `${key}:token`, value, TTL_MS))
        mustHold(await client.release(key, value))
      },
    },
  ]
}

type Redlock = new (clients: Redis[]) => { lock(key: string, ttlMs: number): Promise<{ unlock(): PromiseLike<void> }> }

/** All of them, the hand-written without a token first, for as many callers. `close` ends their connections. */
export async function peers(port: number, callers: number): Promise<{ peers: readonly Peer[]; close(): void }> {
  const client = handWritten(port, callers > 1)
  const how = callers > 1 ? ' (auto-pipelined)' : ''
  const each = <Made>(make: (caller: number) => Made): readonly Made[] =>
    Array.from({ length: callers }, (_, caller) => make(caller))
  const redlock = new (createRequire(import.meta.url)('redlock') as Redlock)([client])
  const sesame = new SesameRedlock([client])
  const verrou = new LockFactory(redisStore({ connection: client as never }).factory())
  const verrouLocks = each((caller) => verrou.createLock(`verrou:${caller}`, TTL_MS))
  const semaphores = each(
    (caller) => new SemaphoreMutex(client, `semaphore:${caller}`, { lockTimeout: TTL_MS, refreshInterval: 0 }),
  )
  const libraries: Peer[] = [
    {
      name: 'redlock',
      pair: async (caller) => (await redlock.lock(`redlock:${caller}`, TTL_MS)).unlock(),
    },
    {
      name: '@sesamecare-oss/redlock',
      pair: async (caller) => (await sesame.acquire([`sesame:${caller}`], TTL_MS)).release(),
    },
    ...(await redlockUniversal(client, each)),
    {
      name: 'redis-semaphore',
      async pair(caller) {
        await semaphores[caller]?.acquire()
        await semaphores[caller]?.release()
      },
    },
    {
      name: '@verrou/core',
      async pair(caller) {
        mustHold(await verrouLocks[caller]?.acquire())
        await verrouLocks[caller]?.release()
      },
    },
  ]
  return { peers: [...handWrittenPeers(client, how), ...libraries], close: () => client.disconnect() }
}

interface Universal {
  createLock(config: { adapter: object; key: string; ttl: number }): {
    acquire(): Promise<object>
    release(handle: object): Promise<boolean>
  }
  IoredisAdapter: new (client: Redis) => object
}

async function redlockUniversal(
  client: Redis,
  each: <Made>(make: (caller: number) => Made) => readonly Made[],
): Promise<readonly Peer[]> {
  try {
    const { createLock, IoredisAdapter } = (await import('redlock-universal' as string)) as Universal
    const adapter = new IoredisAdapter(client)
    const locks = each((caller) => createLock({ adapter, key: `universal:${caller}`, ttl: TTL_MS }))
    return [
      {
        name: 'redlock-universal',
        async pair(caller) {
          const lock = locks[caller]
          mustHold(await lock?.release(await lock.acquire()))
        },
      },
    ]
  } catch (error) {
    // It says that it needs Node 22, and npm would warn of that at every installation of ours.
    console.log(
      `redlock-universal is not compared: npm install --no-save redlock-universal (${(error as Error).message.split('\n')[0]})`,
    )
    return []
  }
}
