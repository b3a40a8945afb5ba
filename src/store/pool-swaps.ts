/**
 * Pools on a store without `hold`: all of a pool in one record, changed by `get` and `put`, as record-swaps.ts has it.
 * The rule is the same as everywhere (core/pool-rule.ts). What is different is how much there is room for: a record has
 * 64 KiB, which is some hundred holds and remembered sales, and processes get in each other's way.
 *
 * A hold lives a little longer than asked for, and is said to live as long as asked: by as much as this process may be
 * behind the server's time. So no other process sees it lapse before.
 */
import { EngineError, UnsupportedError } from '../core/errors.ts'
import type { Keeper } from '../core/keeper.ts'
import { MemoryPool } from '../core/memory-pool.ts'
import { type PoolHold, type PoolItem, poolAnswer } from '../core/pool-rule.ts'
import type { PoolStep } from '../core/store-hold.ts'
import type { PoolReply } from '../core/store-requests.ts'
import type { Locks } from '../locks.ts'
import { RecordStore } from './record-store.ts'
import { type KnownRecord, RecordSwaps, type SwapDecision, type SwapRule } from './record-swaps.ts'
import type { Serializer } from './serializer.ts'
import type { ServerTime } from './server-time.ts'

/** What the text of a record begins with, and how its fields are laid out. */
const FORMAT = 'pool1 '

const poolSerializer: Serializer = {
  encode: (text) => String(text),
  decode: (bytes) => Buffer.from(bytes).toString(),
}

const ELSEWHERE = 'give stock() the option store, which takes locks on redis, postgres, mysql or sqlite'

export class PoolSwaps implements SwapRule<string, PoolStep, PoolReply> {
  readonly timeless: string = `by which holds lapse: ${ELSEWHERE}`
  readonly #keeper: Keeper
  readonly #swaps: RecordSwaps<string, PoolStep, PoolReply>

  constructor(recipe: string, locks: Locks) {
    this.#keeper = locks.keeper
    const records = new RecordStore<string>(recipe, locks, { serialize: poolSerializer })
    this.#swaps = new RecordSwaps(records, this.#keeper, this)
  }

  async step(step: PoolStep): Promise<PoolReply> {
    try {
      return await this.#swaps.ask(step.key, step)
    } catch (error) {
      throw error instanceof RangeError ? this.#full(step.key, error) : error
    }
  }

  decide(
    key: string,
    { exists, value }: KnownRecord<string>,
    steps: readonly PoolStep[],
    time: ServerTime,
  ): SwapDecision<string, PoolReply> {
    const pool = exists ? this.#read(key, value ?? '') : new MemoryPool()
    const [now, behindMs] = [Math.floor(time.now()), Math.ceil(time.behindMs)]
    const answers = steps.map((step): PoolReply => {
      const ms = step.ms > 0 ? step.ms + behindMs : 0
      const answer = poolAnswer(pool, { ...step, ms }, now) as PoolReply
      return answer.state === 'held' ? { ...answer, livesForMs: Math.max(0, answer.livesForMs - behindMs) } : answer
    })
    const text = pool.isEmpty ? undefined : textOf(pool)
    return text === undefined || text === value ? { answers } : { answers, next: { value: text } }
  }

  #read(key: string, text: string): MemoryPool {
    if (text.startsWith(FORMAT)) return poolOf(text)
    const { name } = this.#keeper.engine
    throw new EngineError(name, `what is stored under '${key}' is no stock, or that of a newer version`, {
      outcome: 'not-applied',
      transient: false,
    })
  }

  #full(key: string, cause: RangeError): UnsupportedError {
    const { name } = this.#keeper.engine
    return new UnsupportedError(
      name,
      `${name} keeps a stock in one record, and '${key}' has no room for more holds: ` +
        `confirm or cancel some, give stock() a shorter keep, or ${ELSEWHERE} (${cause.message})`,
    )
  }
}

function textOf(pool: MemoryPool): string {
  const items = [...pool.items()].map(({ item, stock, sold, held, wantedBy, wantedUntil }) =>
    wantedBy === '' ? [item, stock, sold, held] : [item, stock, sold, held, wantedBy, wantedUntil],
  )
  const holds = pool
    .holds()
    .map(({ id, state, at, lines }) => [
      id,
      STATES.indexOf(state),
      at,
      ...lines.flatMap(({ item, quantity }) => [item, quantity]),
    ])
  return FORMAT + JSON.stringify({ items, holds })
}

const STATES = ['held', 'sold', 'changed'] as const

type ItemRow = readonly [item: string, stock: number, sold: number, held: number, by?: string, until?: number]
type HoldRow = readonly [id: string, state: number, at: number, ...lines: (string | number)[]]

function poolOf(text: string): MemoryPool {
  const pool = new MemoryPool()
  const { items, holds } = JSON.parse(text.slice(FORMAT.length)) as { items: ItemRow[]; holds: HoldRow[] }
  for (const [item, stock, sold, held, wantedBy = '', wantedUntil = 0] of items)
    pool.saveItem({ item, stock, sold, held, wantedBy, wantedUntil } satisfies PoolItem)
  for (const [id, state, at, ...words] of holds) {
    const lines = words.flatMap((word, index) =>
      index % 2 === 0 ? [{ item: String(word), quantity: Number(words[index + 1]) }] : [],
    )
    pool.saveHold({ id, state: STATES[state] as PoolHold['state'], lines, at }, undefined)
  }
  return pool
}
