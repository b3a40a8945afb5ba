/**
 * Draws from rate limits on a store without `take`: read the record, decide here, and put it if it is still the version
 * that was read. What this process has put last is remembered, so that the usual draw is one call; if another process
 * came in between, the refusal tells what it has put.
 *
 * Draws of one key wait for each other here, and go out together. The time is that of the server, as far as this
 * process knows it: by the last answer, and by its own monotonic clock since.
 */
import { EngineError, UnsupportedError } from '../core/errors.ts'
import type { Keeper } from '../core/keeper.ts'
import { draw, type RateState, resetUs } from '../core/rate.ts'
import type { Taken } from '../core/store-requests.ts'
import { type Draw, type DrawPart, notARate } from '../core/store-take.ts'
import type { Found, RecordStore } from './record-store.ts'
import { ServerTime } from './server-time.ts'

type Records = RecordStore<RateState | undefined>
type Known = Pick<Found<RateState | undefined>, 'exists' | 'value' | 'version'>

interface WaitingDraw {
  readonly part: DrawPart
  readonly bookUs: number
  readonly resolve: (taken: Taken) => void
  readonly reject: (error: unknown) => void
}

/** How many keys are remembered, with what was put last. */
const MOST_KEYS = 10_000
const LONGEST_PAUSE_MS = 50

export class RateSwaps {
  readonly #records: Records
  readonly #keeper: Keeper
  readonly #time: ServerTime
  readonly #known = new Map<string, Known>()
  /** By key: draws that wait for those that are being made. */
  readonly #waiting = new Map<string, WaitingDraw[]>()

  constructor(records: Records, keeper: Keeper) {
    this.#records = records
    this.#keeper = keeper
    this.#time = new ServerTime(keeper.clock)
  }

  async draw({ parts, bookUs }: Draw): Promise<Taken> {
    const [part, ...others] = parts
    const { name } = this.#keeper.engine
    if (part === undefined || others.length > 0)
      throw new UnsupportedError(
        name,
        `${name} has no takeAll of several keys, which needs one step: give rateLimit() the option store, which takes locks on redis, postgres, mysql or sqlite`,
      )
    return await new Promise((resolve, reject) => {
      const waiting = { part, bookUs, resolve, reject }
      const queue = this.#waiting.get(part.key)
      if (queue !== undefined) {
        queue.push(waiting)
        return
      }
      this.#waiting.set(part.key, [waiting])
      // What this turn asks for goes out together.
      process.nextTick(() => void this.#work(part.key))
    })
  }

  async #work(key: string): Promise<void> {
    for (;;) {
      const draws = this.#waiting.get(key)?.splice(0) ?? []
      if (draws.length === 0) break
      try {
        const answers = await this.#make(key, draws)
        for (const [index, { resolve }] of draws.entries()) resolve(answers[index] as Taken)
      } catch (error) {
        this.#known.delete(key)
        for (const { reject } of draws) reject(error)
      }
    }
    this.#waiting.delete(key)
  }

  async #make(key: string, draws: readonly WaitingDraw[]): Promise<readonly Taken[]> {
    const { clock, chance, callTimeoutMs, engine } = this.#keeper
    const giveUpAt = clock.now() + callTimeoutMs
    for (let [tries, known] = [1, this.#known.get(key)]; ; tries += 1) {
      const remembered = known !== undefined
      known ??= await this.#look(key)
      const { answers, state } = this.#decide(key, known, draws)
      // A refusal by what is remembered may be wrong: another process may have given something back.
      if (state === undefined && !remembered) return answers
      if (state === undefined) {
        known = undefined
        continue
      }
      const ttlMs = Math.ceil(resetUs(state.rate, state.debt) / 1000) + 1
      const sentAt = clock.now()
      const put = await this.#records.put(key, state, { version: known.version, ttlMs })
      this.#time.heard(put.serverTimeMs, sentAt)
      if (put.state === 'stored') {
        this.#remember(key, { exists: true, value: state, version: put.version })
        return answers
      }
      known = put.found
      if (clock.now() > giveUpAt)
        throw new EngineError(engine.name, `others have changed '${key}' in between, ${tries} times in a row`, {
          outcome: 'not-applied',
        })
      const pauseMs = Math.min(2 ** tries, LONGEST_PAUSE_MS) * chance.fraction()
      await new Promise<void>((resolve) => clock.timer(pauseMs, resolve))
    }
  }

  /** `state`: what is to be stored, if anything was taken. */
  #decide(
    key: string,
    { exists, value }: Known,
    draws: readonly WaitingDraw[],
  ): { answers: readonly Taken[]; state: RateState | undefined } {
    if (exists && value === undefined) throw notARate(this.#keeper.engine.name, key)
    const nowUs = Math.floor(this.#time.now() * 1000)
    let [current, changed] = [value, false]
    const answers = draws.map(({ part, bookUs }): Taken => {
      const { taken, debts, states } = draw([{ state: current, rate: part.rate, cost: part.cost }], nowUs, bookUs)
      if (taken && part.cost > 0) [current, changed] = [states[0], true]
      return { state: 'drawn', taken, debts, nowUs }
    })
    return { answers, state: changed ? current : undefined }
  }

  async #look(key: string): Promise<Known> {
    const { clock, engine } = this.#keeper
    const sentAt = clock.now()
    const found = await this.#records.get(key)
    if (found.serverTimeMs === null)
      throw new UnsupportedError(
        engine.name,
        `${engine.name} does not tell its time, by which a rate is counted: give rateLimit() the option store, which takes locks on redis, postgres, mysql or sqlite`,
      )
    this.#time.heard(found.serverTimeMs, sentAt)
    return found
  }

  #remember(key: string, known: Known): void {
    this.#known.delete(key)
    this.#known.set(key, known)
    const [oldest] = this.#known.keys()
    if (this.#known.size > MOST_KEYS && oldest !== undefined) this.#known.delete(oldest)
  }
}
