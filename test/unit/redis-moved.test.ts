/**
 * A slot that is being moved: an entry that holds alone is renewed and let go by its one key, whichever of the two
 * servers the client heard last.
 */
import { expect, test } from 'vitest'
import type { RedisWire } from '../../src/clients/redis/wire.ts'
import { systemClock } from '../../src/core/clock.ts'
import { RedisEngine } from '../../src/engines/redis/engine.ts'
import { alone } from '../../src/engines/redis/scripts.ts'

/** Calls that are refused with `error`, but for those with one key, which are answered with a token. */
function engineWhile(error: string): RedisEngine {
  const wire: Partial<RedisWire> = {
    cluster: true,
    keyPrefix: '',
    ready: true,
    send: async (_command, [sha]) => {
      if (sha !== alone.sha) throw new Error(error)
      return '7'
    },
  }
  const setup = { prefix: 'lock:', clock: systemClock, engineId: 'c', durability: undefined }
  return new RedisEngine({ wire: wire as RedisWire, ...setup })
}

const redirections = (last: string): string => `Too many Cluster redirections. Last error: ReplyError: ${last}`

test.each([
  redirections('TRYAGAIN Multiple keys request during rehashing of slot'),
  redirections('ASK 8097 127.0.0.1:30270'),
  redirections('MOVED 8097 127.0.0.1:30270'),
])('%s', async (error) => {
  const engine = engineWhile(error)
  expect(await engine.renew([{ key: 'k', id: 'i', ttlMs: 3000 }])).toEqual([
    { state: 'held', token: 7n, heldForMs: 3000 },
  ])
  expect(await engine.leave([{ key: 'k', id: 'i' }])).toEqual([true])
})

test('any other refusal is passed on', async () => {
  const engine = engineWhile('CLUSTERDOWN The cluster is down')
  expect(await engine.renew([{ key: 'k', id: 'i', ttlMs: 3000 }])).toMatchObject([{ state: 'failed' }])
  await expect(engine.leave([{ key: 'k', id: 'i' }])).rejects.toMatchObject({ outcome: 'not-applied' })
})
