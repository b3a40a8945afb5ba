/**
 * Changing records on a store that cannot decide by itself: read the record, decide here, and put it if it is still the
 * version that was read. What this process has put last is remembered, so that the usual change is one call; if another
 * process came in between, the refusal tells what it has put.
 *
 * What is asked of one key waits here for what was asked before, and goes out together. The time is that of the server,
 * as far as this process knows it: by the last answer, and by its own monotonic clock since.
 */
import { EngineError, UnsupportedError } from '../core/errors.ts'
import { pauseAwaited } from '../core/keep-alive.ts'
import type { Keeper } from '../core/keeper.ts'
import type { Found, RecordStore } from './record-store.ts'
import { ServerTime } from './server-time.ts'

export type KnownRecord<Value> = Pick<Found<Value>, 'exists' | 'value' | 'version'>

/** Answers to all that was asked. `next`: what is to be stored, and for how long; undefined: nothing has changed. */
export interface SwapDecision<Value, Answer> {
  readonly answers: readonly Answer[]
  readonly next?: { readonly value: Value; readonly ttlMs?: number }
}

export interface SwapRule<Value, Question, Answer> {
  /** Without side effects: it is asked again when another process came in between. */
  decide(
    key: string,
    known: KnownRecord<Value>,
    questions: readonly Question[],
    time: ServerTime,
  ): SwapDecision<Value, Answer>
  /** What to say where the server does not tell its time. */
  readonly timeless: string
}

interface Asked<Question, Answer> {
  readonly question: Question
  readonly resolve: (answer: Answer) => void
  readonly reject: (error: unknown) => void
}

/** How many keys are remembered, with what was put last. */
const MOST_KEYS = 10_000
const LONGEST_PAUSE_MS = 50

export class RecordSwaps<Value, Question, Answer> {
  readonly #records: RecordStore<Value>
  readonly #keeper: Keeper
  readonly #rule: SwapRule<Value, Question, Answer>
  readonly #time: ServerTime
  readonly #known = new Map<string, KnownRecord<Value>>()
  /** By key: questions that wait for those that are being answered. */
  readonly #waiting = new Map<string, Asked<Question, Answer>[]>()

  constructor(records: RecordStore<Value>, keeper: Keeper, rule: SwapRule<Value, Question, Answer>) {
    this.#records = records
    this.#keeper = keeper
    this.#rule = rule
    this.#time = new ServerTime(keeper.clock)
  }

  ask(key: string, question: Question): Promise<Answer> {
    return new Promise((resolve, reject) => {
      const asked = { question, resolve, reject }
      const queue = this.#waiting.get(key)
      if (queue !== undefined) {
        queue.push(asked)
        return
      }
      this.#waiting.set(key, [asked])
      // What this turn asks for goes out together.
      process.nextTick(() => void this.#work(key))
    })
  }

  async #work(key: string): Promise<void> {
    for (;;) {
      const asked = this.#waiting.get(key)?.splice(0) ?? []
      if (asked.length === 0) break
      await this.#answer(key, asked)
    }
    this.#waiting.delete(key)
  }

  /** What is too large together may be small enough alone: then each is answered by itself. */
  async #answer(key: string, asked: readonly Asked<Question, Answer>[]): Promise<void> {
    try {
      const answers = await this.#make(
        key,
        asked.map(({ question }) => question),
      )
      for (const [index, { resolve }] of asked.entries()) resolve(answers[index] as Answer)
    } catch (error) {
      this.#known.delete(key)
      if (error instanceof RangeError && asked.length > 1) for (const one of asked) await this.#answer(key, [one])
      else for (const { reject } of asked) reject(error)
    }
  }

  async #make(key: string, questions: readonly Question[]): Promise<readonly Answer[]> {
    const { clock, chance, callTimeoutMs, engine } = this.#keeper
    const giveUpAt = clock.now() + callTimeoutMs
    for (let [tries, known] = [1, this.#known.get(key)]; ; tries += 1) {
      const remembered = known !== undefined
      known ??= await this.#look(key)
      const { answers, next } = this.#rule.decide(key, known, questions, this.#time)
      // An answer by what is remembered may be wrong: another process may have changed something.
      if (next === undefined && !remembered) return answers
      if (next === undefined) {
        known = undefined
        continue
      }
      const sentAt = clock.now()
      const put = await this.#records.put(key, next.value, { version: known.version, ttlMs: next.ttlMs })
      this.#time.heard(put.serverTimeMs, sentAt)
      if (put.state === 'stored') {
        this.#remember(key, { exists: true, value: next.value, version: put.version })
        return answers
      }
      known = put.found
      if (clock.now() > giveUpAt)
        throw new EngineError(engine.name, `others have changed '${key}' in between, ${tries} times in a row`, {
          outcome: 'not-applied',
        })
      await pauseAwaited(clock, Math.min(2 ** tries, LONGEST_PAUSE_MS) * chance.fraction())
    }
  }

  async #look(key: string): Promise<KnownRecord<Value>> {
    const { clock, engine } = this.#keeper
    const sentAt = clock.now()
    const found = await this.#records.get(key)
    if (found.serverTimeMs === null)
      throw new UnsupportedError(engine.name, `${engine.name} does not tell its time, ${this.#rule.timeless}`)
    this.#time.heard(found.serverTimeMs, sentAt)
    return found
  }

  #remember(key: string, known: KnownRecord<Value>): void {
    this.#known.delete(key)
    this.#known.set(key, known)
    const [oldest] = this.#known.keys()
    if (this.#known.size > MOST_KEYS && oldest !== undefined) this.#known.delete(oldest)
  }
}
