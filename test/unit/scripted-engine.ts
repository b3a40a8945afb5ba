/**
 * An engine that does nothing by itself. Every call is recorded, and the test answers it: now, late, never, or with a
 * failure; news come when the test says so.
 *
 * With it, a test writes down one schedule, step by step, and the core has no way around it.
 */
import type {
  Claim,
  Engine,
  EntryName,
  GoneReason,
  Line,
  LineEntry,
  LineSummary,
  News,
  Place,
  Standing,
  Traits,
} from '../../src/core/engine.ts'
import { EngineError } from '../../src/core/errors.ts'

export type VerbName = 'enter' | 'renew' | 'leave'

/** One call, waiting for its answer. */
export interface Call<Answer = unknown> {
  readonly verb: VerbName
  readonly items: readonly (Claim | Place | EntryName)[]
  readonly keys: readonly string[]
  readonly ids: readonly string[]
  readonly signal: AbortSignal | undefined
  answer(...answers: readonly Answer[]): Promise<void>
  fail(error: unknown): Promise<void>
}

export const scriptedTraits: Traits = {
  order: 'fifo',
  fencing: true,
  sharing: 'full',
  ttl: 'entry',
  minTtlMs: 10,
  lossBeforeNext: true,
  lineBound: 10_000,
  batchLimit: 100,
  takesSignal: ['enter', 'renew'],
  tokensSurvive: 'whatever the test says',
  survives: 'whatever the test says',
}

/** Promise jobs and ticks run before an immediate does. */
export function settled(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve))
}

export class ScriptedEngine implements Engine {
  readonly name = 'scripted'
  readonly traits: Traits
  /** `enter a`, `leave a`, ... in the order of the calls. */
  readonly log: string[] = []
  /** How a subscription is answered: at once, unless the test says otherwise. */
  subscribing: () => Promise<void> = () => Promise.resolve()
  disposing: () => Promise<void> = () => Promise.resolve()
  inspecting: (key: string) => Promise<Line> = (key) => Promise.resolve({ key, entries: [] })
  subscriptions = 0
  disposed = 0
  readonly #untaken: Call[] = []
  #listener: ((news: News) => void) | undefined

  constructor(traits: Partial<Traits> = {}) {
    this.traits = { ...scriptedTraits, ...traits }
  }

  /** The oldest call of this verb that the test has not seen yet. There has to be one, now. */
  async next(verb: 'enter' | 'renew'): Promise<Call<Standing>>
  async next(verb: 'leave'): Promise<Call<boolean>>
  async next(verb: VerbName): Promise<Call> {
    await settled()
    const index = this.#untaken.findIndex((call) => call.verb === verb)
    const [call] = index < 0 ? [] : this.#untaken.splice(index, 1)
    if (call === undefined) throw new Error(`no unseen ${verb}; the calls so far: ${this.log.join(', ') || 'none'}`)
    return call
  }

  /** The calls that the test has not seen. */
  async unseen(): Promise<readonly string[]> {
    await settled()
    return this.#untaken.map(({ verb, keys }) => `${verb} ${keys.join(' ')}`)
  }

  /** Tell the core, and let it act. */
  async tell(news: News): Promise<void> {
    if (this.#listener === undefined) throw new Error('no listener has subscribed')
    this.#listener(news)
    await settled()
  }

  enter(claims: readonly Claim[], signal?: AbortSignal): Promise<readonly Standing[]> {
    return this.#record<Standing>('enter', claims, signal)
  }

  renew(places: readonly Place[], signal?: AbortSignal): Promise<readonly Standing[]> {
    return this.#record<Standing>('renew', places, signal)
  }

  leave(places: readonly EntryName[]): Promise<readonly boolean[]> {
    return this.#record<boolean>('leave', places, undefined)
  }

  async subscribe(listener: (news: News) => void): Promise<AsyncDisposable> {
    this.subscriptions += 1
    this.log.push('subscribe')
    await this.subscribing()
    this.#listener = listener
    return {
      [Symbol.asyncDispose]: async () => {
        this.#listener = undefined
        this.log.push('unsubscribe')
      },
    }
  }

  inspect(key: string): Promise<Line> {
    return this.inspecting(key)
  }

  async evict(): Promise<boolean> {
    return false
  }

  list: (prefix: string) => AsyncIterable<LineSummary> = async function* () {}

  async [Symbol.asyncDispose](): Promise<void> {
    this.disposed += 1
    this.log.push('dispose')
    await this.disposing()
  }

  #record<Answer>(verb: VerbName, items: Call['items'], signal: AbortSignal | undefined): Promise<readonly Answer[]> {
    this.log.push(`${verb} ${items.map(({ key }) => key).join(' ')}`)
    return new Promise((resolve, reject) => {
      const call: Call<Answer> = {
        verb,
        items: [...items],
        keys: items.map(({ key }) => key),
        ids: items.map(({ id }) => id),
        signal,
        answer: (...answers) => {
          resolve(answers)
          return settled()
        },
        fail: (error) => {
          reject(error)
          return settled()
        },
      }
      this.#untaken.push(call as Call)
    })
  }
}

/** Answers, shortly. */
export const held = (token: bigint | null, heldForMs = 30_000): Standing => ({ state: 'held', token, heldForMs })
export const waiting = (ahead: number | null = null): Standing => ({ state: 'waiting', ahead })
export const busy = (ahead: number | null = null): Standing => ({ state: 'busy', ahead })
export const gone = (why: GoneReason = 'expired'): Standing => ({ state: 'gone', why })
export const failed = (error: EngineError): Standing => ({ state: 'failed', error })

/** Failures, shortly. */
export const unreachable = (): EngineError =>
  new EngineError('scripted', 'cannot be reached', { outcome: 'not-applied' })
export const unknownOutcome = (): EngineError =>
  new EngineError('scripted', 'the connection broke', { outcome: 'unknown' })
export const wrongPassword = (): EngineError =>
  new EngineError('scripted', 'wrong password', { outcome: 'not-applied', transient: false })

/** Another entry in the line, as `inspect` shows it. */
export function lineEntry(entry: Partial<LineEntry>): LineEntry {
  return {
    id: 'other',
    holder: 'another',
    state: 'held',
    token: 1n,
    weight: 1,
    limit: 1,
    ttlMs: 30_000,
    remainingMs: 30_000,
    ageMs: 0,
    heldMs: 0,
    ...entry,
  }
}
