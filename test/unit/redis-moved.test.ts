/**
 * A slot that is being moved: an entry that holds alone is renewed and let go by its one key, whichever of the two
 * servers the client heard last.
 */
import { expect, test } from 'vitest'
import { asEngineError } from '../../src/clients/redis/errors.ts'
import { RedisNames } from '../../src/clients/redis/names.ts'
import type { Script, ScriptCaller } from '../../src/clients/redis/script-caller.ts'
import { systemClock } from '../../src/core/clock.ts'
import { StandingReader } from '../../src/engines/redis/codec.ts'
import { ScriptCalls } from '../../src/engines/redis/script-calls.ts'
import { alone } from '../../src/engines/redis/scripts.ts'

/** Calls that are refused with `error`, but for those with one key, which are answered with a token. */
function callsWhile(error: string): ScriptCalls {
  const answering = {
    call: async (
      script: Script,
      _words: readonly string[],
      _key: string,
      read: (reply: unknown) => unknown,
    ): Promise<unknown> => {
      if (script !== alone) throw asEngineError(new Error(error))
      return read('7')
    },
  }
  const names = new RedisNames({ cluster: true, keyPrefix: '' }, 'lock:')
  const standings = new StandingReader(names, {
    waiting: () => {},
    notWaiting: () => false,
    grantUnheard: () => {},
    endless: () => {},
  })
  const caller = answering as unknown as ScriptCaller
  return new ScriptCalls({ caller, clock: systemClock, names, standings, engineId: 'c' })
}

const redirections = (last: string): string => `Too many Cluster redirections. Last error: ReplyError: ${last}`

test.each([
  redirections('TRYAGAIN Multiple keys request during rehashing of slot'),
  redirections('ASK 8097 127.0.0.1:30270'),
  redirections('MOVED 8097 127.0.0.1:30270'),
])('%s', async (error) => {
  const calls = callsWhile(error)
  expect(await calls.renew([{ key: 'k', id: 'i', ttlMs: 3000 }])).toEqual([
    { state: 'held', token: 7n, heldForMs: 3000 },
  ])
  expect(await calls.leave([{ key: 'k', id: 'i' }])).toEqual([true])
})

test('any other refusal is passed on', async () => {
  const calls = callsWhile('CLUSTERDOWN The cluster is down')
  expect(await calls.renew([{ key: 'k', id: 'i', ttlMs: 3000 }])).toMatchObject([{ state: 'failed' }])
  await expect(calls.leave([{ key: 'k', id: 'i' }])).rejects.toMatchObject({ outcome: 'not-applied' })
})
