/** `holdfast rate show`: what is left of the limits of a key, for people and as JSON. */
import { afterEach, beforeEach, expect, test } from 'vitest'
import type { Locks } from '../../src/locks.ts'
import { rateLimit } from '../../src/recipes/rate-limit/index.ts'
import { World } from './holdfast.ts'

let world: World
let locks: Locks
beforeEach(async () => {
  world = new World()
  locks = await world.locks()
})
afterEach(() => world[Symbol.asyncDispose]())

test('shows each limit of the key, what is left, and when there is more', async () => {
  await rateLimit(locks, { limit: 10, per: '10h' }).take('user:7', { cost: 4 })
  await rateLimit(locks, { name: 'mail', limit: 1, per: '24h' }).take('user:7')
  await rateLimit(locks, { limit: 10, per: '10h' }).take('user:7@work')
  const hourly = { name: '10/10h', everyMs: 3_600_000, burst: 10, remaining: 6, retryAfterMs: 0, bookedMs: 0 }
  const mail = { name: 'mail', everyMs: 86_400_000, burst: 1, remaining: 0 }
  expect(await world.json('rate', 'show', 'user:7')).toMatchObject({ key: 'user:7', limits: [hourly, mail] })
  const { stdout } = await world.run('rate', 'show', 'user:7')
  expect(stdout.split('\n')).toEqual([
    expect.stringMatching(/^LIMIT +EVERY +BURST +REMAINING +NEXT +RESET +BOOKED$/),
    expect.stringMatching(/^10\/10h +1h +10 +6 +now +4h *$/),
    expect.stringMatching(/^mail +24h +1 +0 +24h +24h *$/),
    '',
  ])
})

test('says so where nothing is taken, and which verb and key it wants', async () => {
  expect(await world.run('rate', 'show', 'user:9')).toMatchObject({
    exit: 0,
    stdout: '',
    stderr: "holdfast: nothing is taken from any limit of 'user:9'\n",
  })
  expect(await world.run('rate', 'show')).toMatchObject({ exit: 64 })
  expect(await world.run('rate', 'shwo', 'a')).toMatchObject({ exit: 64, stderr: expect.stringContaining('show') })
})
