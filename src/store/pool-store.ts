/**
 * The pool of a recipe: steps that are asked again until they are answered. Every step may be (core/store-hold.ts): its
 * id counts once. A try that was given up can still arrive, and then does nothing, with one exception: a `reserve` that
 * arrives after its hold was given back makes a new one, which lapses.
 */
import { UnsupportedError } from '../core/errors.ts'
import type { Keeper } from '../core/keeper.ts'
import { checkKey } from '../core/keys.ts'
import type { PoolStep } from '../core/store-hold.ts'
import type { PoolReply, StoreRequests } from '../core/store-requests.ts'
import type { Locks } from '../locks.ts'
import { repeatCall } from './repeat-call.ts'

/** What a step is asked with; what is not given is 0, nothing, or false. */
export type AskedStep = Pick<PoolStep, 'verb' | 'id'> & Partial<Omit<PoolStep, 'key'>>

export class PoolStore {
  readonly #keeper: Keeper
  readonly #requests: StoreRequests
  readonly key: string

  /** `recipe`: its name, for error messages. Throws `UnsupportedError` where the engine keeps no pools. */
  constructor(recipe: string, locks: Locks, key: string) {
    checkKey(key)
    const { store } = locks.keeper
    if (store?.store.hold === undefined) {
      const { name } = locks.engine
      const message = `${name} keeps no stock for ${recipe}(): give it the option store, which takes locks on an engine that does (postgres, mysql, sqlite, redis)`
      throw new UnsupportedError(name, message)
    }
    this.#keeper = locks.keeper
    this.#requests = store
    this.key = key
  }

  step({ verb, id, lines = [], ms = 0, wantMs = 0, flag = false }: AskedStep): Promise<PoolReply> {
    const step: PoolStep = { key: this.key, verb, id, lines, ms: Math.ceil(ms), wantMs: Math.ceil(wantMs), flag }
    return repeatCall(
      this.#keeper,
      () => this.#requests.hold(step),
      () => true,
    )
  }
}
