/**
 * Redis under a clock of ours answers as the memory engine does: its scripts keep the rule that is written there. And
 * whatever becomes of the lines on the way, no key of theirs would stay if all processes died.
 */
import { afterAll, expect, test } from 'vitest'
import { openRedis } from '../../src/engines/redis/index.ts'
import { Clockwork } from '../servers/clockwork.ts'
import { describeServer } from '../servers/suite.ts'
import { Pair, Trace } from './differential.ts'

const CLIENTS = 3
const STEPS = 4000

/** Which keys would stay if all processes died now. */
async function endless({ server }: Clockwork): Promise<readonly string[]> {
  await using client = await server.connect()
  const found: string[] = []
  for (const key of (await client.command('KEYS', '*')) as string[])
    if ((await client.command('PTTL', key)) === -1) found.push(key)
  return found
}

await describeServer('Redis under a clock of ours', Clockwork.start, (works) => {
  afterAll(() => works[Symbol.asyncDispose]())

  test.each([1, 2, 3, 4])('answers as memory does, three clients, seed %i', async (seed) => {
    const { clock, server } = works
    const engines = await Promise.all(
      Array.from({ length: CLIENTS }, () => openRedis(server.url, { prefix: `seed ${seed}:` })),
    )
    await using pair = new Pair(clock, engines)
    const trace = new Trace(seed, pair)
    for (let number = 0; number < STEPS; number += 1) {
      await trace.step(number)
      if (number % 50 === 0)
        expect(await endless(works), `step ${number}: keys that never expire`).toEqual(['hf1:counter'])
    }
  })
})
