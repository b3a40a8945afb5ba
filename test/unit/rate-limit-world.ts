/** Processes with rate limits, on one memory server and a clock that the test moves. */
import { delegate } from '../../conformance/delegate.ts'
import { EngineError } from '../../src/core/errors.ts'
import type { Store } from '../../src/core/store.ts'
import { MemoryServer, memory } from '../../src/engines/memory/index.ts'
import type { Locks } from '../../src/locks.ts'
import { type FakeClock, fakeClock } from '../../src/testing.ts'
import { locksOn } from './once-world.ts'

export const clock: FakeClock = fakeClock()
export const server: MemoryServer = new MemoryServer({ clock })
let keys = 0

/** A key that no other test uses. */
export function newKey(): string {
  keys += 1
  return `user:${keys}`
}

export interface RateProcess {
  readonly locks: Locks
  /** How many draws each call had. */
  readonly calls: number[]
  /** What calls reject with, until it is undefined again. */
  trouble: EngineError | undefined
}

export function newProcess(): RateProcess {
  const engine = memory({ server })
  const { store } = engine
  const counted: Store = {
    traits: store.traits,
    get: (some) => store.get(some),
    put: (changes) => store.put(changes),
    take: async (draws) => {
      world.calls.push(draws.length)
      if (world.trouble !== undefined) throw world.trouble
      return (await store.take?.(draws)) ?? []
    },
    list: (prefix) => store.list(prefix),
  }
  const locks = locksOn(delegate(engine, { store: counted }), { clock })
  const world: RateProcess = { locks, calls: [], trouble: undefined }
  return world
}

export const down = (outcome: EngineError['outcome'] = 'unknown'): EngineError =>
  new EngineError('memory', 'no answer', { outcome })

/** Whether it was settled when the promise jobs of now were done. */
export async function isPending(promise: Promise<unknown>): Promise<boolean> {
  let pending = true
  const settled = (): void => {
    pending = false
  }
  promise.then(settled, settled)
  await clock.advance(0)
  return pending
}
