/** What session locks of PostgreSQL say of a `connect()` that answers no client. */
import { setImmediate } from 'node:timers/promises'
import { expect, test, vi } from 'vitest'
import { postgresAdvisory } from '../../src/engines/postgres-advisory/index.ts'
import { fakeClock } from '../../src/testing.ts'

test('what connect() answers, and is no client, is refused for good, with the remedy', async () => {
  for (const answer of [undefined, {}, 'postgres://localhost']) {
    await using engine = postgresAdvisory({ connect: async () => answer as never })
    for (const ask of [() => engine.inspect('k'), () => engine.store.get(['k'])])
      await expect(ask()).rejects.toMatchObject({
        name: 'EngineError',
        message: expect.stringContaining('connect() must return a connected Client of pg'),
        outcome: 'not-applied',
        transient: false,
      })
  }
})

test('connect() that answers no client, and too late, ends no process', async () => {
  const unhandled = vi.fn()
  process.on('unhandledRejection', unhandled)
  try {
    const clock = fakeClock()
    let forgetful = (): void => undefined
    const connect = (): Promise<never> =>
      new Promise((resolve) => {
        forgetful = () => resolve(undefined as never)
      })
    await using engine = postgresAdvisory({ connect, clock })
    const asked = engine.inspect('k').catch((error: unknown) => error)
    await setImmediate()
    await clock.advance('10s')
    expect(await asked).toMatchObject({ message: expect.stringContaining('has not settled within 10000 ms') })
    forgetful()
    await setImmediate()
    await setImmediate()
    expect(unhandled).not.toHaveBeenCalled()
  } finally {
    process.off('unhandledRejection', unhandled)
  }
})
