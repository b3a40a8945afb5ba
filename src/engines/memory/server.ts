/**
 * What is a server for other engines: the place where lines live, changed by one call at a time.
 *
 * It does with maps what other engines do with a script or a transaction. Every verb first removes what has expired,
 * then changes lines, and each entry that goes settles its line: the waiters in front who can hold now do so, and their
 * engines are told. Nothing here walks a line, so a hand-off costs the same with ten waiters and with ten thousand.
 */
import { type Clock, systemClock, type Timer, wallClockMs } from '../../core/clock.ts'
import type { Claim, EntryName, Line, LineEntry, LineSummary, Place, Standing } from '../../core/engine.ts'
import { LineFullError } from '../../core/errors.ts'
import { Heap } from '../../core/heap.ts'
import type { Change, Entered, Entrance, Got, Leaving, Put, StoredSummary } from '../../core/store.ts'
import type { PoolAnswer, PoolStep } from '../../core/store-hold.ts'
import type { Draw, Drawn } from '../../core/store-take.ts'
import { drawFromRecords } from '../shared/rate-records.ts'
import { type MemoryEntry, MemoryLine, type NewsReceiver, newEntry } from './line.ts'
import { MemoryPools } from './pools.ts'
import { MemoryRecords } from './records.ts'

/** How many entries a line takes. */
export const LINE_BOUND = 10_000

/** An id that no entry has. */
const NO_ENTRY = ''

/** What several memory engines share, as processes share a server. */
export class MemoryServer {
  readonly #clock: Clock
  readonly #lines = new Map<string, MemoryLine>()
  readonly #expiries = new Heap<MemoryEntry>()
  readonly #watchers = new Map<string, Set<() => void>>()
  readonly #mint: (previous: bigint) => bigint
  readonly #records: MemoryRecords
  readonly #pools = new MemoryPools()
  /** What the server's wall clock is ahead of its clock: it cannot be set, and follows the clock of a test. */
  readonly #wallAheadMs: number
  #lastToken = 0n
  /** How many wait, in all lines together. */
  #waiting = 0
  #timer: Timer | undefined
  #timerAt = Number.POSITIVE_INFINITY
  #lastCallAt = 0

  /** `mint` makes the next token from the previous one (0 at first). */
  constructor(options: { clock?: Clock; mint?: (previous: bigint) => bigint } = {}) {
    this.#clock = options.clock ?? systemClock
    this.#mint = options.mint ?? ((previous) => previous + 1n)
    this.#wallAheadMs = wallClockMs() - this.#clock.now()
    this.#records = new MemoryRecords({
      isHolding: (key, id) => this.#lines.get(key)?.entries.get(id)?.state === 'held',
      isEmpty: (key) => (this.#lines.get(key)?.size ?? 0) === 0,
      nextToken: () => this.#nextToken(),
    })
  }

  /** When the last verb was called, by its clock. */
  get lastCallAt(): number {
    return this.#lastCallAt
  }

  /** How many lines, records and pools are kept: 0 when no entry is left, and nothing is stored. */
  get size(): number {
    return this.#lines.size + this.#records.size + this.#pools.size
  }

  // ---- the verbs ----

  /** `receiver` is told the news of these entries. */
  enter(claims: readonly Claim[], receiver: NewsReceiver): Standing[] {
    const now = this.#expire()
    return claims.map((claim) => this.#enter(claim, receiver, now))
  }

  renew(places: readonly Place[]): Standing[] {
    const now = this.#expire()
    return places.map(({ key, id, ttlMs, outlives }) => {
      const entry = this.#lines.get(key)?.entries.get(id)
      if (entry === undefined) return { state: 'gone', why: 'unknown' }
      if (outlives === true) entry.outlives = true
      return this.#renew(entry, ttlMs, now, outlives)
    })
  }

  leave(places: readonly EntryName[]): boolean[] {
    this.#expire()
    return places.map(({ key, id }) => {
      const entry = this.#lines.get(key)?.entries.get(id)
      if (entry === undefined || entry.state === 'removed') return false
      this.#remove(entry)
      return true
    })
  }

  evict(key: string, token: bigint, how: 'expire' | 'now'): boolean {
    this.#expire()
    for (const entry of this.#lines.get(key)?.entries.values() ?? []) {
      if (entry.token !== token || entry.state === 'removed') continue
      entry.evicted = true
      // A waiter holds nothing that it would have to stop first. A holder leaves when it has stopped, or expires.
      if (how === 'now' || entry.state === 'waiting') this.#remove(entry, { remember: true })
      this.#tell(entry, { state: 'gone', why: 'evicted' })
      return true
    }
    return false
  }

  inspect(key: string): Line {
    const now = this.#expire()
    const entries: LineEntry[] = []
    for (const entry of this.#lines.get(key)?.entries.values() ?? []) {
      const { id, holder, state, token, weight, limit, ttlMs, at, enteredAt, heldAt, evicted } = entry
      if (state === 'removed') continue
      const remainingMs = at - now
      const ageMs = now - enteredAt
      const heldMs = state === 'held' ? now - heldAt : null
      const shown = { id, holder, state, token, weight, limit, ttlMs, remainingMs, ageMs, heldMs }
      entries.push(evicted ? { ...shown, evicted } : shown)
    }
    return { key, entries }
  }

  *list(prefix: string): Iterable<LineSummary> {
    this.#expire()
    for (const [key, line] of this.#lines) {
      if (!key.startsWith(prefix) || line.size === 0) continue
      // Each line counts as a call, so that a long listing lets the event loop turn.
      this.#lastCallAt = this.#clock.now()
      yield { key, held: line.held.count, waiting: line.waitingCount }
    }
  }

  watch(key: string, listener: () => void): () => void {
    const listeners = this.#watchers.get(key) ?? new Set()
    this.#watchers.set(key, listeners.add(listener))
    this.#arm()
    return () => {
      listeners.delete(listener)
      if (listeners.size === 0) this.#watchers.delete(key)
      this.#disarm()
    }
  }

  // ---- the verbs of its store ----

  getRecords(keys: readonly string[]): Got[] {
    const now = this.#expire()
    const serverTimeMs = now + this.#wallAheadMs
    return keys.map((key) => ({ state: 'read', stored: this.#records.get(key, now), serverTimeMs }))
  }

  putRecords(changes: readonly Change[]): Put[] {
    const now = this.#expire()
    return changes.map((change) => this.#records.put(change, now, now + this.#wallAheadMs))
  }

  takeFromRecords(draws: readonly Draw[]): readonly Drawn[] {
    const now = this.#expire()
    const serverTimeMs = now + this.#wallAheadMs
    const records = {
      read: (key: string) => this.#records.get(key, now).value,
      write: (key: string, value: Uint8Array, ttlMs: number) =>
        void this.#records.put({ key, value, ttlMs, when: {} }, now, serverTimeMs),
    }
    return drawFromRecords('memory', records, draws, Math.floor(serverTimeMs * 1000))
  }

  holdUnits(steps: readonly PoolStep[]): PoolAnswer[] {
    const now = this.#expire()
    return steps.map((step) => this.#pools.step(step, now))
  }

  /** `receiver` is told the news of these entries. */
  putEntering(entrances: readonly Entrance[], receiver: NewsReceiver): Entered[] {
    const now = this.#expire()
    return entrances.map(({ claim, change }) => {
      const repeated = this.#lines.get(claim.key)?.entries.has(claim.id) === true
      const standing = this.#enter(claim, receiver, now)
      const put = this.#putEntering(standing.state === 'held' ? claim.id : NO_ENTRY, change, repeated, now)
      if (standing.state !== 'held' || put.state === 'stored') return { standing, put }
      this.leave([claim])
      return { standing: { state: 'busy', ahead: 0 }, put }
    })
  }

  #putEntering(id: string, change: Change, repeated: boolean, now: number): Put {
    const when = { ...change.when, holding: id }
    const put = this.#records.put({ ...change, when }, now, now + this.#wallAheadMs)
    // An entrance that has arrived before: what it has stored then is still there.
    if (!repeated || put.state !== 'refused' || put.by === 'holding' || !isSameValue(put.stored.value, change.value))
      return put
    const { version, mark } = put.stored
    return { state: 'stored', version, mark, serverTimeMs: put.serverTimeMs }
  }

  putLeaving(leavings: readonly Leaving[]): Put[] {
    return leavings.map(({ change, id }) => {
      const [put] = this.putRecords([change]) as [Put]
      if (put.state === 'stored') this.leave([{ key: change.key, id }])
      return put
    })
  }

  listRecords(prefix: string): Iterable<StoredSummary> {
    return this.#records.list(prefix, this.#expire())
  }

  // ---- one entry ----

  #enter(claim: Claim, receiver: NewsReceiver, now: number): Standing {
    const { key, ttlMs } = claim
    const line = this.#lines.get(key) ?? new MemoryLine()
    const known = line.entries.get(claim.id)
    if (known !== undefined) return this.#renew(known, ttlMs, now)

    const ahead = line.size
    // An entry never overtakes: it holds at once only where no other entry waits.
    const holds = line.first === undefined && line.held.admits(claim)
    if (!holds && !claim.wait) return { state: 'busy', ahead }
    if (ahead >= LINE_BOUND) return { state: 'failed', error: new LineFullError(key, LINE_BOUND) }

    const entry = newEntry(claim, this.#nextToken(), receiver, now)
    this.#lines.set(key, line)
    line.entries.set(entry.id, entry)
    this.#expiries.put(entry, now + ttlMs)
    if (holds) {
      this.#hold(entry, line)
    } else {
      line.append(entry)
      this.#waiting += 1
    }
    this.#arm()
    return holds ? { state: 'held', token: entry.token, heldForMs: ttlMs } : { state: 'waiting', ahead }
  }

  #nextToken(): bigint {
    this.#lastToken = this.#mint(this.#lastToken)
    return this.#lastToken
  }

  #renew(entry: MemoryEntry, ttlMs: number, now: number, outlives?: boolean): Standing {
    if (entry.evicted) return { state: 'gone', why: 'evicted' }
    entry.ttlMs = ttlMs
    // A renewal from before that comes late does not cut short what is to outlive its process.
    const until = entry.outlives && outlives !== true ? Math.max(entry.at, now + ttlMs) : now + ttlMs
    this.#expiries.put(entry, until)
    // It may live for shorter than before: then those behind it are let in sooner.
    this.#arm()
    if (entry.state === 'waiting') return { state: 'waiting', ahead: null }
    return { state: 'held', token: entry.token, heldForMs: ttlMs }
  }

  #hold(entry: MemoryEntry, line: MemoryLine): void {
    entry.state = 'held'
    line.held.add(entry)
    this.#notify(entry.key)
  }

  /** Take an entry out of its line and settle the line: also a waiter that goes can let others hold. */
  #remove(entry: MemoryEntry, options: { remember?: boolean } = {}): void {
    this.#takeOut(entry, options)
    this.#settle(entry.key)
  }

  #takeOut(entry: MemoryEntry, options: { remember?: boolean } = {}): void {
    const line = this.#lines.get(entry.key) as MemoryLine
    if (entry.state === 'held') {
      line.held.remove(entry)
    } else if (entry.state === 'waiting') {
      line.unlink(entry)
      this.#waiting -= 1
    }
    entry.state = 'removed'
    if (options.remember !== true) {
      this.#expiries.remove(entry)
      // The last one goes with its line: to shrink a map costs more than the rest of a release.
      if (line.entries.size === 1) this.#lines.delete(entry.key)
      else line.entries.delete(entry.id)
    }
  }

  // ---- one line ----

  /** Grant the front of the line what it can have now. Expiries stay as they are: a grant never changes one. */
  #settle(key: string): void {
    const line = this.#lines.get(key)
    while (line?.first !== undefined && line.held.admits(line.first)) {
      const entry = line.first
      line.unlink(entry)
      this.#waiting -= 1
      this.#hold(entry, line)
      entry.heldAt = this.#clock.now()
      this.#tell(entry, { state: 'held', token: entry.token, heldForMs: entry.at - entry.heldAt })
    }
    this.#notify(key)
    this.#disarm()
  }

  #tell(entry: MemoryEntry, standing: Standing): void {
    const { listener } = entry.receiver
    // Later, as from a real server: never from inside a call of another engine.
    if (listener !== undefined) queueMicrotask(() => listener({ key: entry.key, id: entry.id, standing }))
  }

  #notify(key: string): void {
    if (this.#watchers.size === 0) return
    for (const listener of this.#watchers.get(key) ?? []) queueMicrotask(listener)
  }

  // ---- time ----

  /** Remove what has expired, from all lines, and answer what time it is: each verb reads the clock once. */
  #expire(): number {
    const now = this.#clock.now()
    this.#lastCallAt = now
    const first = this.#expiries.peek()
    if (first === undefined || first.at > now) return now
    // All of them first: nothing is granted to an entry that has expired too.
    const changed = new Set<string>()
    for (let entry = this.#expiries.peek(); entry !== undefined && entry.at <= now; entry = this.#expiries.peek()) {
      this.#takeOut(entry)
      changed.add(entry.key)
    }
    for (const key of changed) this.#settle(key)
    return now
  }

  /**
   * A timer stands at the next expiry while a waiter or a watcher would hear of it. Without them, the next verb is soon
   * enough.
   */
  #arm(): void {
    const at = this.#expiries.peek()?.at ?? Number.POSITIVE_INFINITY
    if (at >= this.#timerAt || (this.#waiting === 0 && this.#watchers.size === 0)) return
    this.#timer?.cancel()
    this.#timerAt = at
    this.#timer = this.#clock.timer(at - this.#clock.now(), () => {
      this.#timer = undefined
      this.#timerAt = Number.POSITIVE_INFINITY
      this.#expire()
      this.#arm()
    })
  }

  #disarm(): void {
    if (this.#timer === undefined || this.#waiting > 0 || this.#watchers.size > 0) return
    this.#timer.cancel()
    this.#timer = undefined
    this.#timerAt = Number.POSITIVE_INFINITY
  }
}

function isSameValue(a: Uint8Array | null, b: Uint8Array | null): boolean {
  return a === null || b === null ? a === b : Buffer.compare(a, b) === 0
}
