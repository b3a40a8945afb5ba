/** What is told of a grant, and of a change, that no replica has confirmed: they may be there all the same. */
import { expect, test } from 'vitest'
import type { RedisWire } from '../../src/clients/redis/wire.ts'
import { systemClock } from '../../src/core/clock.ts'
import type { EngineError } from '../../src/core/errors.ts'
import { RedisEngine } from '../../src/engines/redis/engine.ts'

/** Scripts are answered, `INFO` counts one replica, and `refused` is refused with `error`. */
function engineWhere(refused: 'WAIT' | 'INFO', error: string): RedisEngine {
  const wire: Partial<RedisWire> = {
    inOrder: true,
    ready: true,
    keyPrefix: '',
    send: async (command) => {
      if (command === refused) throw new Error(error)
      return command === 'INFO' ? 'connected_slaves:1\r\n' : ''
    },
  }
  const setup = { prefix: 'lock:', clock: systemClock, engineId: 'c', durability: { replicas: 1 } }
  return new RedisEngine({ wire: wire as RedisWire, ...setup })
}

test.each([
  ['WAIT', 'BUSY Redis is busy running a script.'],
  ['WAIT', 'MASTERDOWN Link with MASTER is down'],
  ['INFO', 'LOADING Redis is loading the dataset in memory'],
] as const)('what was granted may be there, though %s was refused: %s', async (command, error) => {
  const engine = engineWhere(command, error)
  const claim = { key: 'k', id: 'i', holder: 'h', weight: 1, limit: 1, ttlMs: 3000, wait: true }
  const change = { key: 'k', value: Buffer.from('x'), ttlMs: null, when: {} }
  for (const call of [() => engine.enter([claim]), () => engine.store.put([change])]) {
    const failure = (await call().catch((thrown: unknown) => thrown)) as EngineError
    expect(failure).toMatchObject({ code: 'ENGINE', outcome: 'unknown', transient: true })
    expect(failure.message).toMatch(new RegExp(`^redis: (enter|put): ${error}$`))
  }
})
