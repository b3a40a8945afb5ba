/** Leaving for certain, and its end: whatever is still on its way when the locks are closed, no release hangs. */
import { expect, test } from 'vitest'
import { systemChance } from '../../src/core/clock.ts'
import { publish } from '../../src/core/diagnostics.ts'
import { Entry } from '../../src/core/entry.ts'
import { EntryRequests } from '../../src/core/entry-requests.ts'
import { KeepAlive } from '../../src/core/keep-alive.ts'
import { NewsSubscription } from '../../src/core/subscription.ts'
import { Sweeper } from '../../src/core/sweeper.ts'
import { fakeClock } from '../../src/testing.ts'
import { ScriptedEngine } from './scripted-engine.ts'
import { settled, watched } from './world.ts'

test('an entry that leaves twice at once has both answered when sweeping stops', async () => {
  const clock = fakeClock()
  let sequence = 0
  const engine = new ScriptedEngine()
  const shared = {
    engine,
    clock,
    publish,
    keepAlive: new KeepAlive(clock),
    callTimeoutMs: 5000,
    nextSequence: () => ++sequence,
  }
  const subscription = new NewsSubscription(engine, () => {})
  const requests = new EntryRequests(
    { ...shared, subscription },
    { answered: () => {}, failed: () => {}, full: () => {} },
  )
  const sweeper = new Sweeper({ ...shared, chance: systemChance, requests })
  const ask = { key: 'a', holder: 'h', weight: 1, limit: 1, ttlMs: 30_000 }
  const entry = new Entry(ask, systemChance.id(), true, { engine: 'scripted', key: 'a', weight: 1, limit: 1 })
  entry.inLine = true
  // The second one is for an enter that has arrived late; the first one is not answered yet.
  const first = watched(sweeper.leave(entry, true))
  await settled()
  const second = watched(sweeper.leave(entry, false))
  await settled()
  sweeper.stop()
  await settled()
  expect([first.value, second.value]).toEqual([false, false])
})
