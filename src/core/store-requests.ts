/**
 * What the store of an engine is asked: what the callers of one turn want goes out in one call for each verb, like the
 * verbs of an engine (batch.ts), and has the same deadline.
 *
 * A call that is not answered in time rejects with an `EngineError` of unknown outcome. The change may have been made,
 * or may still be. Nothing is repeated here: which changes can be is known in store/record-store.ts.
 */
import { Batch, type BatchSpec, type Sent } from './batch.ts'
import type { Clock } from './clock.ts'
import { ClosedError, type EngineError } from './errors.ts'
import type { EngineCall } from './failed-call.ts'
import type { KeepAlive } from './keep-alive.ts'
import { onAbort } from './on-abort.ts'
import { SlotTable } from './slot-table.ts'
import type { Change, Got, Leaving, Put, Store, StoreFailure, StoreTraits } from './store.ts'
import type { PoolAnswer, PoolStep } from './store-hold.ts'
import { DRAW_BATCH_LIMIT, type Draw, type Drawn } from './store-take.ts'

export type Read = Exclude<Got, StoreFailure>
export type Written = Exclude<Put, StoreFailure>
export type Taken = Exclude<Drawn, StoreFailure>
export type PoolReply = Exclude<PoolAnswer, StoreFailure>

export interface StoreRequestsOptions {
  readonly store: Store
  /** The name of the engine, for error messages. */
  readonly engine: string
  readonly clock: Clock
  readonly keepAlive: KeepAlive
  /** No call is waited for longer. */
  readonly callTimeoutMs: number
  readonly nextSequence: () => number
  /** From how many on two halves are better than one call: for draws, steps of pools, and entries that leave. */
  readonly splitFrom: number
  /** Aborts when the locks are closed: callers are refused then, but for last words. */
  readonly closing: AbortSignal
  /** Aborts when last words have been heard as well: callers that wait are refused, too. */
  readonly closed: AbortSignal
}

type StoreVerb = StoreTraits['takesSignal'][number]

/** What errors call a verb: entering and leaving with a record are a put. */
const CALLS = {
  get: 'get',
  put: 'put',
  take: 'take',
  hold: 'hold',
  putEntering: 'put',
  putLeaving: 'put',
} as const satisfies Record<StoreVerb, EngineCall>

/** One thing that a caller waits for. */
interface StoreRequest<Item, Answer> {
  readonly key: string
  readonly item: Item
  readonly resolve: (answer: Answer) => void
  readonly reject: (error: EngineError) => void
}

export class StoreRequests {
  readonly store: Store
  readonly #options: StoreRequestsOptions
  readonly #gets: Batch<StoreRequest<string, Read>, Got>
  readonly #puts: Batch<StoreRequest<Change, Written>, Put>
  readonly #draws: Batch<StoreRequest<Draw, Taken>, Drawn>
  readonly #holds: Batch<StoreRequest<PoolStep, PoolReply>, PoolAnswer> | undefined
  /** Undefined where the store cannot do it. */
  readonly #leavings: Batch<StoreRequest<Leaving, Written>, Put> | undefined
  /** By key: reads that have not been sent. Who asks for the same until then has the same answer. */
  readonly #unsentReads = new SlotTable<Promise<Read>>()

  constructor(options: StoreRequestsOptions) {
    const { store, clock, keepAlive, nextSequence, closed, splitFrom } = options
    this.store = store
    this.#options = options
    const gets = this.#spec<string, Read>('get', (keys, signal) => store.get(keys, signal))
    const puts = this.#spec<Change, Written>('put', (changes, signal) => store.put(changes, signal))
    const sending = (request: StoreRequest<string, Read>, sent: Sent): boolean => {
      this.#unsentReads.delete(request.key)
      return gets.sending(request, sent)
    }
    this.#gets = new Batch({ ...gets, sending }, clock, keepAlive, nextSequence)
    this.#puts = new Batch(puts, clock, keepAlive, nextSequence)
    const draws = this.#spec<Draw, Taken>('take', (items, signal) => store.take?.(items, signal) ?? unserved())
    const { splitDrawsFrom = splitFrom } = store.traits
    const drawing = { ...draws, batchLimit: DRAW_BATCH_LIMIT, splitFrom: splitDrawsFrom }
    this.#draws = new Batch(drawing, clock, keepAlive, nextSequence)
    const hold = store.hold?.bind(store)
    if (hold !== undefined) {
      const holds = this.#spec<PoolStep, PoolReply>('hold', hold)
      this.#holds = new Batch({ ...holds, splitFrom }, clock, keepAlive, nextSequence)
    }
    if (store.putLeaving !== undefined) {
      const leavings = this.#spec<Leaving, Written>('putLeaving', (items, signal) =>
        (store.putLeaving as NonNullable<Store['putLeaving']>)(items, signal),
      )
      this.#leavings = new Batch({ ...leavings, splitFrom }, clock, keepAlive, nextSequence)
    }
    onAbort(closed, () => this.#close())
  }

  /** What is stored under `key`, read after this call: a read of another caller is shared only while it is unsent. */
  get(key: string): Promise<Read> {
    const unsent = this.#unsentReads.get(key)
    if (unsent !== undefined) return unsent
    const read = this.#ask(this.#gets, key, key)
    if (!this.#options.closing.aborted) this.#unsentReads.add(key, read)
    return read
  }

  /** `lastWords`: also while the locks are being closed. */
  put(change: Change, lastWords = false): Promise<Written> {
    return this.#ask(this.#puts, change.key, change, lastWords)
  }

  /** Only where the store has `take`. */
  take(draw: Draw): Promise<Taken> {
    return this.#ask(this.#draws, draw.parts[0]?.key ?? '', draw)
  }

  /** For stores that have `hold`. */
  hold(step: PoolStep): Promise<PoolReply> {
    const key = this.store.traits.holdsOverlap === true ? step.id : step.key
    return this.#ask(this.#holds as Batch<StoreRequest<PoolStep, PoolReply>, PoolAnswer>, key, step)
  }

  /** Whether an entry can leave its line in the step of a change. */
  get putsLeaving(): boolean {
    return this.#leavings !== undefined
  }

  putLeaving(leaving: Leaving): Promise<Written> {
    return this.#ask(this.#leavings as Batch<StoreRequest<Leaving, Written>, Put>, leaving.change.key, leaving)
  }

  #ask<Item, Answer>(
    batch: { add(request: StoreRequest<Item, Answer>): void },
    key: string,
    item: Item,
    lastWords = false,
  ): Promise<Answer> {
    const { closing, closed } = this.#options
    if ((lastWords ? closed : closing).aborted) return Promise.reject(this.#closed('not-applied'))
    return new Promise((resolve, reject) => {
      batch.add({ key, item, resolve, reject })
    })
  }

  #spec<Item, Answer>(
    verb: StoreVerb,
    call: (items: readonly Item[], signal?: AbortSignal) => Promise<readonly (Answer | StoreFailure)[]>,
  ): BatchSpec<StoreRequest<Item, Answer>, Answer | StoreFailure> {
    const { store, engine, callTimeoutMs } = this.#options
    const { batchLimit } = store.traits
    const takesSignal = store.traits.takesSignal.includes(verb)
    return {
      engine,
      verb: CALLS[verb],
      batchLimit,
      splitFrom: Number.POSITIVE_INFINITY,
      call: (requests, signal) =>
        call(
          requests.map(({ item }) => item),
          signal,
        ),
      takesSignal: () => takesSignal,
      timeoutMs: () => callTimeoutMs,
      sending: () => true,
      answered: (request, answer) => {
        if (isFailure(answer)) request.reject(answer.error)
        else request.resolve(answer)
      },
      failed: (request, error) => request.reject(error),
      abandoned: (request, sent) => request.reject(this.#closed(sent === undefined ? 'not-applied' : 'unknown')),
    }
  }

  #close(): void {
    this.#unsentReads.clear()
    this.#gets.stop()
    this.#puts.stop()
    this.#draws.stop()
    this.#holds?.stop()
    this.#leavings?.stop()
  }

  #closed(outcome: EngineError['outcome']): EngineError {
    return new ClosedError(this.#options.engine, 'the locks were closed', outcome)
  }
}

function unserved(): Promise<never> {
  return Promise.reject(new TypeError('this store has no take'))
}

function isFailure(answer: unknown): answer is StoreFailure {
  return (answer as StoreFailure).state === 'failed'
}
