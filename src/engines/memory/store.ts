/** The store of a memory engine: the contract (core/store.ts) in front of the records of a `MemoryServer`. */
import {
  type Change,
  type Entered,
  type Entrance,
  type Got,
  type Leaving,
  type Put,
  type Store,
  type StoredSummary,
  type StoreTraits,
  VALUE_LIMIT_BYTES,
} from '../../core/store.ts'
import type { PoolAnswer, PoolStep } from '../../core/store-hold.ts'
import type { Draw, Drawn } from '../../core/store-take.ts'
import type { NewsReceiver } from './line.ts'
import type { MemoryServer } from './server.ts'

const traits: StoreTraits = {
  holding: true,
  valueLimitBytes: VALUE_LIMIT_BYTES,
  batchLimit: 1_000,
  takesSignal: [],
  survives: 'nothing outside its process',
}

export class MemoryStore implements Store {
  readonly traits: StoreTraits = traits
  readonly #server: MemoryServer
  readonly #receiver: NewsReceiver
  readonly #answer: <Answer>(answer: Answer) => Answer | Promise<Answer>

  /** `receiver` is that of the engine. `answer` lets the event loop turn now and then. */
  constructor(
    server: MemoryServer,
    receiver: NewsReceiver,
    answer: <Answer>(answer: Answer) => Answer | Promise<Answer>,
  ) {
    this.#server = server
    this.#receiver = receiver
    this.#answer = answer
  }

  async get(keys: readonly string[]): Promise<readonly Got[]> {
    return this.#answer(this.#server.getRecords(keys))
  }

  async put(changes: readonly Change[]): Promise<readonly Put[]> {
    return this.#answer(this.#server.putRecords(changes))
  }

  async take(draws: readonly Draw[]): Promise<readonly Drawn[]> {
    return this.#answer(this.#server.takeFromRecords(draws))
  }

  async hold(steps: readonly PoolStep[]): Promise<readonly PoolAnswer[]> {
    return this.#answer(this.#server.holdUnits(steps))
  }

  async putEntering(entrances: readonly Entrance[]): Promise<readonly Entered[]> {
    return this.#answer(this.#server.putEntering(entrances, this.#receiver))
  }

  async putLeaving(leavings: readonly Leaving[]): Promise<readonly Put[]> {
    return this.#answer(this.#server.putLeaving(leavings))
  }

  async *list(prefix: string): AsyncGenerator<StoredSummary> {
    for (const summary of this.#server.listRecords(prefix)) yield this.#answer(summary)
  }
}
