/**
 * How a function of ours is called: within a limit of time, and made first where it is not there. Nothing is asked of
 * the database before that: whoever finds the tables, as nearly everybody does, pays nothing for the question.
 */
import { fault, isMissing } from '../../clients/postgres/errors.ts'
import type { Limits, PostgresWire } from '../../clients/postgres/wire.ts'
import { firstUse } from './migration.ts'
import { callOf, type Names } from './names.ts'
import { type Reply, replyOf } from './replies.ts'

/** A connection that is not there after this long is not waited for: it would be time to ask again. */
const CONNECT_MS = 3000
/** No answer is waited for longer, whatever the core says. */
const ANSWER_MS = 10_000

/** Of each function, the types of its parameters. */
const PARAMETERS = {
  enter: 'text[] text[] text[] integer[] integer[] bigint[] boolean[] integer[] text integer',
  take: 'text text text integer integer bigint boolean text integer',
  renew: 'text[] text[] bigint[] boolean[] text integer',
  leave: 'text[] text[] text integer',
  free: 'text text text integer',
  evict: 'text bigint boolean text integer',
  inspect: 'text text',
  list: 'text boolean integer text',
  tidy: 'text[]',
  sweep: 'text',
  stuck: 'text[]',
} as const

export type Verb = keyof typeof PARAMETERS

export class Caller {
  readonly #wire: PostgresWire
  readonly #names: Names
  readonly #texts: Readonly<Record<Verb, string>>
  #making: Promise<unknown> | undefined

  constructor(wire: PostgresWire, names: Names) {
    this.#wire = wire
    this.#names = names
    const texts = Object.entries(PARAMETERS).map(([verb, types]) => [verb, callOf(verb, types.split(' '), names)])
    this.#texts = Object.fromEntries(texts) as Record<Verb, string>
  }

  /** Rejects with an `EngineError`. `limitMs`: a caller with little time says how much. */
  call(verb: Verb, values: readonly string[], limitMs: number = ANSWER_MS): Promise<Reply> {
    // Half of it for a connection: that nothing was sent is worth knowing before whoever asked gives up, and has to
    // fear that it was.
    const limits = { connectMs: Math.min(CONNECT_MS, limitMs / 2), answerMs: Math.min(ANSWER_MS, limitMs) }
    return this.#wire
      .ask(this.#texts[verb], values, limits)
      .then(replyOf, (error: unknown) => this.#afterMaking(verb, values, limits, error))
  }

  async #afterMaking(verb: Verb, values: readonly string[], limits: Limits, error: unknown): Promise<Reply> {
    if (!isMissing(error)) throw fault(error)
    await this.#make()
    try {
      return replyOf(await this.#wire.ask(this.#texts[verb], values, limits))
    } catch (again) {
      throw fault(again)
    }
  }

  /** Once for all who find something missing at the same time. */
  #make(): Promise<unknown> {
    this.#making ??= this.#wire
      .run(firstUse(this.#names), { connectMs: CONNECT_MS, answerMs: ANSWER_MS })
      .catch((error: unknown) => {
        // Whatever became of it, nothing has been done of what was asked.
        throw fault(error, 'not-applied')
      })
      .finally(() => {
        this.#making = undefined
      })
    return this.#making
  }
}
