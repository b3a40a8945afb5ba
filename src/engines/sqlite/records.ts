/**
 * Records inside one transaction: ours, with everything else that the batch asks for, or one of the user. SQLite has
 * one writer at a time, so what is checked here stays true until the commit.
 */
import { rateText, readRate } from '../../core/rate.ts'
import { unmetCondition } from '../../core/record-rule.ts'
import {
  type Change,
  type Got,
  type Put,
  type Stored,
  type StoredSummary,
  TOMBSTONE_MS,
  type When,
} from '../../core/store.ts'
import type { Draw, Drawn } from '../../core/store-take.ts'
import { drawFromRecords } from '../shared/rate-records.ts'
import { TokenCounter } from './context.ts'
import type { RecordStatements, SqliteRecordRow } from './sql/records.ts'

/** How many records that have expired a batch of changes removes besides: more than it can make. */
const SWEPT_PER_CHANGE = 2

export interface RecordsContext {
  readonly sql: RecordStatements
  /** By the host's monotonic clock. */
  readonly now: number
  /** By its wall clock. */
  readonly wallMs: number
  readonly epoch: number
  readonly file: string
}

export class SqliteRecords {
  readonly #context: RecordsContext
  readonly #sql: RecordStatements
  readonly #tokens: TokenCounter

  constructor(context: RecordsContext) {
    this.#context = context
    this.#sql = context.sql
    this.#tokens = new TokenCounter(context)
  }

  get(keys: readonly string[]): Got[] {
    const { wallMs: serverTimeMs } = this.#context
    return keys.map((key) => ({ state: 'read', stored: this.#stored(key), serverTimeMs }))
  }

  put(changes: readonly Change[]): Put[] {
    const puts = changes.map((change, index) => this.#put(change, changes.length - index))
    this.#sweep(SWEPT_PER_CHANGE * changes.length)
    return puts
  }

  /** The first condition of a change that is not met, as things are. */
  refusal({ key, when }: Change): keyof When | undefined {
    return this.#refusal(when, this.#stored(key))
  }

  /**
   * By the host's monotonic clock, which begins anew when the machine does. What was owed before a restart is owed
   * still, from now on.
   */
  take(draws: readonly Draw[]): readonly Drawn[] {
    const { now, epoch } = this.#context
    const nowUs = Math.floor(now * 1000)
    const records = {
      read: (key: string): Uint8Array | null => {
        const { value } = this.#stored(key)
        if (value === null || this.#sql.find.all(key)[0]?.epoch === epoch) return value
        const state = readRate(Buffer.from(value).toString())
        return state === undefined ? value : Buffer.from(rateText({ ...state, atUs: nowUs }))
      },
      write: (key: string, value: Uint8Array, ttlMs: number): void =>
        void this.#put({ key, value, ttlMs, when: {} }, draws.length),
    }
    const drawn = drawFromRecords('sqlite', records, draws, nowUs)
    this.#sweep(SWEPT_PER_CHANGE * draws.length)
    return drawn
  }

  /** Up to `count` rows from `from` on, not that of `except`, nor what has expired. `last`: where to go on. */
  page(from: string, except: string, count: number): { records: StoredSummary[]; last: string | undefined } {
    const rows = this.#sql.page.all(from, except, count)
    const records = rows
      .filter((row) => this.#isAlive(row))
      .map((row) => {
        const { key, bytes, version, mark } = row
        return { key, bytes, version: BigInt(version), mark: BigInt(mark), livesForMs: this.#livesForMs(row) }
      })
    return { records, last: rows.length < count ? undefined : rows.at(-1)?.key }
  }

  #put({ key, value, ttlMs, mark: asked = 0n, when }: Change, wanted: number): Put {
    const { now, wallMs, epoch } = this.#context
    const found = this.#stored(key)
    const by = this.#refusal(when, found)
    if (by !== undefined) return { state: 'refused', by, stored: found, serverTimeMs: wallMs }
    const version = this.#tokens.next(wanted)
    const mark = value === null ? 0n : asked > found.mark ? asked : found.mark
    if (value === null && this.#sql.hasEntries.all(key, now).length === 0) {
      this.#sql.remove.run(key)
    } else {
      const livesForMs = value === null ? TOMBSTONE_MS : ttlMs
      const [at, wallAt] = livesForMs === null ? [null, null] : [now + livesForMs, wallMs + livesForMs]
      this.#sql.put.run(key, value === null ? 1 : 0, value, version, Number(mark), epoch, at, wallAt)
    }
    return { state: 'stored', version: BigInt(version), mark, serverTimeMs: wallMs }
  }

  /** The first condition that is not met. */
  #refusal(when: When, found: Stored): keyof When | undefined {
    const { now } = this.#context
    return unmetCondition(when, found, (id) => this.#sql.isHolding.all(found.key, id, now).length > 0)
  }

  #stored(key: string): Stored {
    const [row] = this.#sql.find.all(key)
    if (row === undefined || !this.#isAlive(row)) return { key, value: null, version: 0n, mark: 0n, livesForMs: null }
    const version = BigInt(row.version)
    if (row.removed === 1) return { key, value: null, version, mark: 0n, livesForMs: null }
    const value = row.value ?? new Uint8Array()
    return { key, value, version, mark: BigInt(row.mark), livesForMs: this.#livesForMs(row) }
  }

  #isAlive(row: SqliteRecordRow): boolean {
    const livesForMs = this.#livesForMs(row)
    return livesForMs === null || livesForMs > 0
  }

  #livesForMs({ epoch, expires_at, expires_wall_ms }: SqliteRecordRow): number | null {
    if (expires_at === null || expires_wall_ms === null) return null
    // Written before the machine was restarted, it has only the wall clock to live by.
    return epoch === this.#context.epoch ? expires_at - this.#context.now : expires_wall_ms - this.#context.wallMs
  }

  /** Found by the wall clock, which can be set. Whether it has expired is decided as for a reader. */
  #sweep(count: number): void {
    for (const row of this.#sql.overdue.all(this.#context.wallMs, count)) {
      if (!this.#isAlive(row)) this.#sql.remove.run(row.key)
    }
  }
}
