/** The subscription to an engine's news. */
import { expect, test } from 'vitest'
import type { Engine, News } from '../../src/core/engine.ts'
import { NewsSubscription } from '../../src/core/subscription.ts'
import { memory } from '../../src/testing.ts'
import { settled } from './world.ts'

test('an attempt that comes too late is ended, and does not end the one that followed it', async () => {
  const attempts: { listener: (news: News) => void; answer: (subscription: AsyncDisposable) => void }[] = []
  const ended: unknown[] = []
  const subscribe: NonNullable<Engine['subscribe']> = (listener) =>
    new Promise((answer) => attempts.push({ listener, answer }))
  const engine = Object.assign(Object.create(memory()) as Engine, { name: 'slow', subscribe })
  const subscription = new NewsSubscription(engine, () => {})
  const answer = (attempt: (typeof attempts)[number] | undefined): void =>
    attempt?.answer({ [Symbol.asyncDispose]: async () => void ended.push(attempt.listener) })

  const impatient = new AbortController()
  const first = subscription.ready(impatient.signal, true)
  impatient.abort()
  const second = subscription.ready(undefined, true)
  answer(attempts[1])
  await second
  answer(attempts[0])
  await expect(first).rejects.toMatchObject({ outcome: 'not-applied' })
  await settled()
  // Engines tell subscriptions apart by their listeners.
  expect(ended).toEqual([attempts[0]?.listener])
  expect(attempts[0]?.listener).not.toBe(attempts[1]?.listener)
  expect(subscription.stands).toBe(true)
})
