/** Draws from rate limits on a store without `take`: by `get` and `put`, as record-swaps.ts has it. */
import { UnsupportedError } from '../core/errors.ts'
import type { Keeper } from '../core/keeper.ts'
import { draw, type RateState, resetUs } from '../core/rate.ts'
import type { Taken } from '../core/store-requests.ts'
import { type Draw, type DrawPart, notARate } from '../core/store-take.ts'
import type { RecordStore } from './record-store.ts'
import { type KnownRecord, RecordSwaps, type SwapDecision, type SwapRule } from './record-swaps.ts'
import type { ServerTime } from './server-time.ts'

type StoredRate = RateState | undefined

interface RateQuestion {
  readonly part: DrawPart
  readonly bookUs: number
}

const ELSEWHERE = 'give rateLimit() the option store, which takes locks on redis, postgres, mysql or sqlite'

export class RateSwaps implements SwapRule<StoredRate, RateQuestion, Taken> {
  readonly timeless: string = `by which a rate is counted: ${ELSEWHERE}`
  readonly #engine: string
  readonly #swaps: RecordSwaps<StoredRate, RateQuestion, Taken>

  constructor(records: RecordStore<StoredRate>, keeper: Keeper) {
    this.#engine = keeper.engine.name
    this.#swaps = new RecordSwaps(records, keeper, this)
  }

  async draw({ parts, bookUs }: Draw): Promise<Taken> {
    const [part, ...others] = parts
    if (part === undefined || others.length > 0)
      throw new UnsupportedError(
        this.#engine,
        `${this.#engine} has no takeAll of several keys, which needs one step: ${ELSEWHERE}`,
      )
    return await this.#swaps.ask(part.key, { part, bookUs })
  }

  decide(
    key: string,
    { exists, value }: KnownRecord<StoredRate>,
    questions: readonly RateQuestion[],
    time: ServerTime,
  ): SwapDecision<StoredRate, Taken> {
    if (exists && value === undefined) throw notARate(this.#engine, key)
    const nowUs = Math.floor(time.now() * 1000)
    let [current, changed] = [value, false]
    const answers = questions.map(({ part, bookUs }): Taken => {
      const { taken, debts, states } = draw([{ state: current, rate: part.rate, cost: part.cost }], nowUs, bookUs)
      if (taken && part.cost > 0) [current, changed] = [states[0], true]
      return { state: 'drawn', taken, debts, nowUs }
    })
    if (!changed || current === undefined) return { answers }
    return { answers, next: { value: current, ttlMs: Math.ceil(resetUs(current.rate, current.debt) / 1000) + 1 } }
  }
}
