/** A Redis Cluster of three masters conforms, and a slot that is moved under load costs nobody a lock. */
import { afterAll, describe, expect, it, test, vi } from 'vitest'
import { conformance } from '../../conformance/index.ts'
import { openRedis } from '../../src/engines/redis/index.ts'
import { slotOf } from '../../src/engines/redis/names.ts'
import { createLocks, type Locks } from '../../src/index.ts'
import { ClusterDeployment } from '../servers/cluster.ts'
import { findOwnRedis } from '../servers/redis.ts'
import { describeServer } from '../servers/suite.ts'
import { deploymentWorld } from './redis-world.ts'

const LIMIT = { timeout: 30_000, interval: 5 }

await describeServer('a Redis Cluster', findOwnRedis, ({ program }) => {
  const starting = ClusterDeployment.start(program)
  const opened: Locks[] = []

  async function open(ttl: '3s' | '30s'): Promise<Locks> {
    const locks = createLocks(await openRedis((await starting).url), { ttl })
    opened.push(locks)
    return locks
  }

  afterAll(async () => {
    await Promise.all(opened.map((locks) => locks.close()))
    await (await starting)[Symbol.asyncDispose]()
  })

  conformance({ describe, it, afterAll }, 'redis cluster', () => deploymentWorld(starting))

  test('one batch for lines on all servers is answered in order', async () => {
    const locks = await open('30s')
    const keys = Array.from({ length: 300 }, (_, index) => `spread:${index}`)
    const leases = await Promise.all(keys.map((key) => locks.mutex(key).acquire()))
    expect(leases.map(({ key }) => key)).toEqual(keys)
    expect(await Promise.all(leases.map((lease) => lease.release()))).toEqual(keys.map(() => true))
  })

  test('a slot is moved under load: nobody loses a lock, nobody meets another, tokens rise', async () => {
    const cluster = await starting
    const [one, other] = [await open('30s'), await open('30s')]
    const key = 'moved'
    const slot = slotOf(`lock:${key}`)
    // Held all the time, alone in its line: its keys do not all exist, which is what makes a move hard.
    const held = await one.mutex(`{lock:${key}}:held`, { ttl: '3s' }).acquire()
    expect(slotOf(`lock:{lock:${key}}:held`)).toBe(slot)
    let [inside, done, moving] = [0, 0, true]
    const tokens: bigint[] = []
    const work = [one, other].flatMap((locks) =>
      Array.from({ length: 4 }, async () => {
        while (moving) {
          const lease = await locks.mutex(key).acquire()
          inside += 1
          expect(inside, 'how many are inside').toBe(1)
          tokens.push(lease.token ?? 0n)
          await new Promise(setImmediate)
          inside -= 1
          await lease.release()
          done += 1
        }
      }),
    )
    const settled = Promise.all(work)
    for (let move = 0; move < 4; move += 1) {
      const before = done
      const { finish } = await cluster.beginMove(slot, ((await cluster.ownerOf(slot)) + 1) % 3)
      await vi.waitFor(() => expect(held.remainingMs).toBeLessThan(2500), LIMIT)
      await vi.waitFor(() => expect(held.remainingMs).toBeGreaterThan(2500), LIMIT)
      await finish()
      await vi.waitFor(() => expect(done).toBeGreaterThan(before + 20), LIMIT)
    }
    moving = false
    await settled
    expect(held.signal.aborted).toBe(false)
    expect(await held.release()).toBe(true)
    expect(tokens.every((token, index) => index === 0 || token > (tokens[index - 1] as bigint))).toBe(true)
  })
})
