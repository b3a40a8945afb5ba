/** Shops on one memory server, under a clock that the test moves. */
import { delegate } from '../../conformance/delegate.ts'
import type { Engine } from '../../src/core/engine.ts'
import type { Store } from '../../src/core/store.ts'
import type { PoolAnswer, PoolStep } from '../../src/core/store-hold.ts'
import { createLocks, type Locks } from '../../src/locks.ts'
import { type Hold, type Stock, type StockOptions, stock } from '../../src/recipes/stock/index.ts'
import { type FakeClock, fakeClock, MemoryServer, memory } from '../../src/testing.ts'

export class StockWorld {
  readonly clock: FakeClock = fakeClock()
  readonly server: MemoryServer = new MemoryServer({ clock: this.clock })
  readonly #opened: Locks[] = []

  async close(): Promise<void> {
    await Promise.all(this.#opened.splice(0).map((locks) => locks.close()))
  }

  /** The locks of one more process. */
  locks(engine: Engine = memory({ server: this.server })): Locks {
    const locks = createLocks(engine, { clock: this.clock })
    this.#opened.push(locks)
    return locks
  }

  /** The stock of a concert, as one more process has it. */
  seats(options: StockOptions = {}, locks: Locks = this.locks()): Stock {
    return stock(locks, 'concert:9', { hold: '10m', ...options })
  }

  /** An engine whose pools are asked through `hold`. */
  through(
    hold: (store: Required<Pick<Store, 'hold'>>, steps: readonly PoolStep[]) => Promise<readonly PoolAnswer[]>,
  ): Engine {
    const engine = memory({ server: this.server })
    const store = engine.store as Store & Required<Pick<Store, 'hold'>>
    const passing: Store = {
      traits: store.traits,
      get: (keys) => store.get(keys),
      put: (changes) => store.put(changes),
      list: (prefix) => store.list(prefix),
      hold: (steps) => hold(store, steps),
    }
    return delegate(engine, { store: passing })
  }
}

/** The hold that was asked for. */
export async function held(reserving: Promise<Hold | undefined>): Promise<Hold> {
  const hold = await reserving
  if (hold === undefined) throw new Error('not enough is left')
  return hold
}

export async function leftOf(one: Stock, item = 'A'): Promise<number | undefined> {
  return (await one.show()).items.find((each) => each.item === item)?.left
}
