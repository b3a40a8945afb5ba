/**
 * The pool of a recipe: steps that are asked again until they are answered. Every step may be (core/store-hold.ts): its
 * id counts once. A try that was given up can still arrive, and then does nothing, with two exceptions. A `reserve`
 * that arrives after its hold was given back makes a new one, which lapses. A late `confirm` (`flag`) that arrives when
 * its hold is gone sells, if there is enough then: also after a `cancel`, or a `confirm` that was answered `lapsed`.
 *
 * Where the store has `hold`, a step is one call of it; elsewhere all of the pool is one record (pool-swaps.ts).
 */
import { UnsupportedError } from '../core/errors.ts'
import type { Keeper } from '../core/keeper.ts'
import { checkKey } from '../core/keys.ts'
import type { PoolStep } from '../core/store-hold.ts'
import type { PoolReply } from '../core/store-requests.ts'
import type { Locks } from '../locks.ts'
import { PoolSwaps } from './pool-swaps.ts'
import { repeatCall } from './repeat-call.ts'

/** What a step is asked with; what is not given is 0, nothing, or false. */
export type AskedStep = Pick<PoolStep, 'verb' | 'id'> & Partial<Omit<PoolStep, 'key'>>

export class PoolStore {
  readonly #keeper: Keeper
  readonly #ask: (step: PoolStep) => Promise<PoolReply>
  readonly key: string

  /** `recipe`: its name, for error messages. Throws `UnsupportedError` where the engine has no store. */
  constructor(recipe: string, locks: Locks, key: string) {
    checkKey(key)
    const { store } = locks.keeper
    if (store === undefined) {
      const { name } = locks.engine
      const message =
        `${name} keeps no stock for ${recipe}(): give it the option store, ` +
        'which takes locks on an engine that does (redis, postgres, mysql, sqlite)'
      throw new UnsupportedError(name, message)
    }
    this.#keeper = locks.keeper
    this.key = key
    if (store.store.hold === undefined) {
      const swaps = new PoolSwaps(recipe, locks)
      this.#ask = (step) => swaps.step(step)
    } else {
      this.#ask = (step) => store.hold(step)
    }
  }

  step({ verb, id, lines = [], ms = 0, wantMs = 0, flag = false }: AskedStep): Promise<PoolReply> {
    const step: PoolStep = { key: this.key, verb, id, lines, ms: Math.ceil(ms), wantMs: Math.ceil(wantMs), flag }
    return repeatCall(
      this.#keeper,
      () => this.#ask(step),
      () => true,
    )
  }
}
