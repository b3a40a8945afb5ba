/**
 * Draws from rate limits, for engines that can run our code between reading a record and writing it: in memory, and
 * inside a transaction of SQLite. Elsewhere the server does the same in its own language.
 */
import { draw, type RateState, rateText, readRate, resetUs } from '../../core/rate.ts'
import { type Draw, type Drawn, notARate } from '../../core/store-take.ts'

/** Records in the one step that the draws are made in. */
export interface RateRecords {
  /** Null: nothing is stored. */
  read(key: string): Uint8Array | null
  write(key: string, value: Uint8Array, ttlMs: number): void
}

/** All of them, one after the other, at the same time of the server. */
export function drawFromRecords(
  engine: string,
  records: RateRecords,
  draws: readonly Draw[],
  nowUs: number,
): readonly Drawn[] {
  return draws.map(({ parts, bookUs }): Drawn => {
    const states: (RateState | undefined)[] = []
    for (const { key } of parts) {
      const value = records.read(key)
      const state = value === null ? undefined : readRate(Buffer.from(value).toString())
      if (value !== null && state === undefined) return { state: 'failed', error: notARate(engine, key) }
      states.push(state)
    }
    const drawn = draw(
      parts.map(({ rate, cost }, index) => ({ state: states[index], rate, cost })),
      nowUs,
      bookUs,
    )
    for (const [index, { key, rate, cost }] of parts.entries()) {
      if (!drawn.taken || cost === 0) continue
      const next = drawn.states[index] as RateState
      records.write(key, Buffer.from(rateText(next)), Math.ceil(resetUs(rate, next.debt) / 1000))
    }
    return { state: 'drawn', taken: drawn.taken, debts: drawn.debts, nowUs }
  })
}
