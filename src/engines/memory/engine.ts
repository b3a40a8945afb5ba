/**
 * The memory engine: the contract (core/engine.ts), verb by verb, in front of a `MemoryServer`.
 *
 * An engine object stands for one process that uses a server. Tests have several of them on one server, as if they were
 * several processes. One that is dropped has crashed: its entries stay in the lines until they expire.
 */
import type { Claim, Engine, EntryName, Line, LineSummary, News, Place, Standing, Traits } from '../../core/engine.ts'
import type { Store } from '../../core/store.ts'
import { EventLoopTurn } from '../shared/event-loop-turn.ts'
import type { NewsReceiver } from './line.ts'
import { LINE_BOUND, type MemoryServer } from './server.ts'
import { MemoryStore } from './store.ts'

const traits: Traits = {
  order: 'fifo',
  fencing: true,
  sharing: 'full',
  ttl: 'entry',
  minTtlMs: 10,
  lossBeforeNext: true,
  lineBound: LINE_BOUND,
  batchLimit: 1_000,
  takesSignal: [],
  tokensSurvive: 'release, expiry and deletion; not the end of the process, which ends every holder too',
  survives: 'nothing outside its process',
}

/** The engine of one process, for tests and as the reference of all others. Made by `memory()`. */
export class MemoryEngine implements Engine {
  readonly name = 'memory'
  readonly traits: Traits = traits
  readonly store: Store
  readonly #server: MemoryServer
  /** Every entry remembers it: the server tells its news here. */
  readonly #receiver: NewsReceiver = { listener: undefined }
  readonly #turn = new EventLoopTurn()

  /** @internal */
  constructor(server: MemoryServer) {
    this.#server = server
    this.store = new MemoryStore(server, this.#receiver, (answer) => this.#answer(answer))
  }

  async enter(claims: readonly Claim[]): Promise<readonly Standing[]> {
    return this.#answer(this.#server.enter(claims, this.#receiver))
  }

  async renew(places: readonly Place[]): Promise<readonly Standing[]> {
    return this.#answer(this.#server.renew(places))
  }

  async leave(places: readonly EntryName[]): Promise<readonly boolean[]> {
    return this.#answer(this.#server.leave(places))
  }

  async evict(key: string, token: bigint, how: 'expire' | 'now'): Promise<boolean> {
    return this.#answer(this.#server.evict(key, token, how))
  }

  async inspect(key: string): Promise<Line> {
    return this.#answer(this.#server.inspect(key))
  }

  async *list(prefix: string): AsyncGenerator<LineSummary> {
    for (const summary of this.#server.list(prefix)) yield this.#answer(summary)
  }

  #answer<Answer>(answer: Answer): Answer | Promise<Answer> {
    if (!this.#turn.isOver(this.#server.lastCallAt)) return answer
    return new Promise((resolve) => this.#turn.next(() => resolve(answer)))
  }

  async subscribe(listener: (news: News) => void): Promise<AsyncDisposable> {
    this.#receiver.listener = listener
    return {
      [Symbol.asyncDispose]: async () => {
        // Ending an earlier subscription does not end a later one.
        if (this.#receiver.listener === listener) this.#receiver.listener = undefined
      },
    }
  }

  async watch(key: string, listener: () => void): Promise<AsyncDisposable> {
    const stop = this.#server.watch(key, listener)
    return { [Symbol.asyncDispose]: async () => stop() }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#receiver.listener = undefined
  }
}
