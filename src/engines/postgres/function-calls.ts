/**
 * How a function of ours is called: within a limit of time. Where the functions are not there, they are made first. The
 * database is not asked whether they are there: nearly always they are, and the question would cost a round trip.
 */
import type { PostgresCallLimits, PostgresWire } from '../../clients/postgres/wire.ts'
import { type Reply, replyOf } from './codec.ts'
import { asEngineError, isMissing } from './errors.ts'
import { firstUse } from './migration.ts'
import { callOf, type PostgresNames } from './names.ts'

/** A connection that is not there after this long is not waited for: it would be time to ask again. */
const CONNECT_MS = 3000
/** A first connection takes some tens of milliseconds: a call with a short limit gives it those. */
const LEAST_CONNECT_MS = 50
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

export type PostgresFunction = keyof typeof PARAMETERS

export class PostgresCaller {
  readonly #wire: PostgresWire
  readonly #names: PostgresNames
  readonly #statements: Readonly<Record<PostgresFunction, string>>
  #making: Promise<unknown> | undefined

  constructor(wire: PostgresWire, names: PostgresNames) {
    this.#wire = wire
    this.#names = names
    const statements = Object.entries(PARAMETERS).map(([name, types]) => [name, callOf(name, types.split(' '), names)])
    this.#statements = Object.fromEntries(statements) as Record<PostgresFunction, string>
  }

  /** Rejects with an `EngineError`. `limitMs`: a caller with little time says how much. */
  call(name: PostgresFunction, values: readonly string[], limitMs: number = ANSWER_MS): Promise<Reply> {
    // Half of it for a connection: the caller learns that nothing was sent while it still waits. Once it has given up,
    // it would have to fear that the server had applied the call.
    const connectMs = Math.min(CONNECT_MS, Math.max(limitMs / 2, Math.min(limitMs, LEAST_CONNECT_MS)))
    const limits = { connectMs, answerMs: Math.min(ANSWER_MS, limitMs) }
    return this.#wire.ask(this.#statements[name], values, limits).then(
      (answer) => replyOf(name, answer),
      (error: unknown) => this.#afterMaking(name, values, limits, error),
    )
  }

  async #afterMaking(
    name: PostgresFunction,
    values: readonly string[],
    limits: PostgresCallLimits,
    error: unknown,
  ): Promise<Reply> {
    if (!isMissing(error)) throw asEngineError(error)
    await this.#make()
    try {
      return replyOf(name, await this.#wire.ask(this.#statements[name], values, limits))
    } catch (again) {
      throw asEngineError(again)
    }
  }

  /** Once for all calls that find something missing at the same time. */
  #make(): Promise<unknown> {
    this.#making ??= this.#wire
      .run(firstUse(this.#names), { connectMs: CONNECT_MS, answerMs: ANSWER_MS })
      .catch((error: unknown) => {
        // Whatever became of the tables, the call itself has not been made.
        throw asEngineError(error, 'not-applied')
      })
      .finally(() => {
        this.#making = undefined
      })
    return this.#making
  }
}
