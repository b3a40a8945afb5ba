/**
 * The memory engine: lines inside one process. The reference implementation; read it before writing another engine.
 *
 * It does with maps what other engines do with a script or a transaction: every verb first removes what has expired,
 * then changes lines, and every departure settles the line. Nothing here walks a line, so a hand-off costs the same
 * with ten waiters and with ten thousand.
 *
 * One `MemoryServer` is the place where lines live; each `memory({ server })` is a client of it. Tests use that to have
 * several "processes" in one, and to let one of them crash: a client that is dropped leaves its entries behind, and
 * they expire.
 */
import { type Clock, systemClock, type Timer } from '../../core/clock.ts'
import type { Claim, Engine, Line, LineEntry, LineSummary, Place, Standing, Traits } from '../../core/engine.ts'
import { LineFullError } from '../../core/errors.ts'
import { Heap } from '../../core/heap.ts'
import { type Client, type Entry, MemoryLine } from './line.ts'

const traits: Traits = {
  order: 'fifo',
  fencing: true,
  sharing: 'full',
  ttl: 'entry',
  minTtlMs: 10,
  lossBeforeNext: true,
  lineBound: 10_000,
  batchLimit: 1_000,
  takesSignal: false,
  tokensSurvive: 'release, expiry and deletion; not the end of the process, which ends every holder too',
  survives: 'nothing outside its process',
}

export class MemoryServer {
  readonly #clock: Clock
  readonly #lines = new Map<string, MemoryLine>()
  readonly #expiries = new Heap<Entry>()
  readonly #watchers = new Map<string, Set<() => void>>()
  readonly #mint: (previous: bigint) => bigint
  #lastToken = 0n
  #waiting = 0
  #timer: Timer | undefined
  #timerAt = Number.POSITIVE_INFINITY

  /** `mint` makes the next token from the previous one (0 at first). */
  constructor(options: { clock?: Clock; mint?: (previous: bigint) => bigint } = {}) {
    this.#clock = options.clock ?? systemClock
    this.#mint = options.mint ?? ((previous) => previous + 1n)
  }

  /** How many lines are kept: 0 when nobody is anywhere. */
  get size(): number {
    return this.#lines.size
  }

  enter(claims: readonly Claim[], client: Client): Standing[] {
    const now = this.#expire()
    return claims.map((claim) => this.#enter(claim, client, now))
  }

  renew(places: readonly Place[]): Standing[] {
    const now = this.#expire()
    return places.map(({ key, id, ttlMs, outlives }) => {
      const entry = this.#lines.get(key)?.entries.get(id)
      if (entry === undefined) return { state: 'gone', why: 'unknown' }
      if (outlives === true) entry.outlives = true
      return this.#renewEntry(entry, ttlMs, now, outlives)
    })
  }

  leave(places: readonly Pick<Place, 'key' | 'id'>[]): boolean[] {
    this.#expire()
    return places.map(({ key, id }) => {
      const entry = this.#lines.get(key)?.entries.get(id)
      if (entry === undefined || entry.state === 'removed') return false
      this.#remove(entry)
      return true
    })
  }

  #enter(claim: Claim, client: Client, now: number): Standing {
    const line = this.#lines.get(claim.key) ?? new MemoryLine()
    const known = line.entries.get(claim.id)
    if (known !== undefined) return this.#renewEntry(known, claim.ttlMs, now)

    const size = line.held.count + line.waitingCount
    const holds = line.first === undefined && line.held.admits(claim)
    if (!holds && !claim.wait) return { state: 'busy', ahead: size }
    if (size >= traits.lineBound) return { state: 'failed', error: new LineFullError(claim.key, traits.lineBound) }

    this.#lastToken = this.#mint(this.#lastToken)
    const entry: Entry = {
      key: claim.key,
      id: claim.id,
      holder: claim.holder,
      weight: claim.weight,
      limit: claim.limit,
      token: this.#lastToken,
      client,
      enteredAt: now,
      ttlMs: claim.ttlMs,
      heldAt: now,
      state: 'waiting',
      evicted: false,
      outlives: false,
      previous: undefined,
      next: undefined,
      at: 0,
      slot: -1,
    }
    this.#lines.set(claim.key, line)
    line.entries.set(entry.id, entry)
    this.#expiries.put(entry, now + claim.ttlMs)
    if (holds) {
      this.#hold(entry, line)
      this.#arm()
      return { state: 'held', token: entry.token, heldForMs: claim.ttlMs }
    }
    line.append(entry)
    this.#waiting += 1
    this.#arm()
    return { state: 'waiting', ahead: size }
  }

  evict(key: string, token: bigint, how: 'expire' | 'now'): boolean {
    this.#expire()
    for (const entry of this.#lines.get(key)?.entries.values() ?? []) {
      if (entry.token !== token || entry.state === 'removed') continue
      entry.evicted = true
      // A waiter holds nothing that it would have to stop first.
      if (how === 'now' || entry.state === 'waiting') {
        this.#remove(entry, { remember: true })
        this.#tell(entry, { state: 'gone', why: 'evicted' })
      }
      return true
    }
    return false
  }

  inspect(key: string): Line {
    const now = this.#expire()
    const line = this.#lines.get(key)
    const entries: LineEntry[] = []
    for (const entry of line?.entries.values() ?? []) {
      if (entry.state === 'removed') continue
      const { id, holder, state, token, weight, limit, ttlMs, at, enteredAt, heldAt } = entry
      const heldMs = state === 'held' ? now - heldAt : null
      entries.push({
        id,
        holder,
        state,
        token,
        weight,
        limit,
        ttlMs,
        remainingMs: at - now,
        ageMs: now - enteredAt,
        heldMs,
      })
    }
    return { key, entries }
  }

  *list(prefix: string): Iterable<LineSummary> {
    this.#expire()
    for (const [key, line] of this.#lines) {
      const {
        held: { count: held },
        waitingCount: waiting,
      } = line
      if (key.startsWith(prefix) && held + waiting > 0) yield { key, held, waiting }
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

  #renewEntry(entry: Entry, ttlMs: number, now: number, outlives?: boolean): Standing {
    if (entry.evicted) return { state: 'gone', why: 'evicted' }
    entry.ttlMs = ttlMs
    // A renewal from before that comes late does not cut short what is to outlive its process.
    const until = entry.outlives && outlives !== true ? Math.max(entry.at, now + ttlMs) : now + ttlMs
    this.#expiries.put(entry, until)
    if (entry.state === 'waiting') {
      this.#arm()
      return { state: 'waiting', ahead: null }
    }
    return { state: 'held', token: entry.token, heldForMs: ttlMs }
  }

  #hold(entry: Entry, line: MemoryLine): void {
    entry.state = 'held'
    line.held.add(entry)
    this.#notify(entry.key)
  }

  /** Take an entry out of its line and settle the line: also a waiter that goes can let others hold. */
  #remove(entry: Entry, options: { remember?: boolean } = {}): void {
    this.#takeOut(entry, options)
    this.#settle(entry.key)
  }

  #takeOut(entry: Entry, options: { remember?: boolean } = {}): void {
    const line = this.#lines.get(entry.key) as MemoryLine
    if (entry.state === 'held') {
      line.held.remove(entry)
    } else if (entry.state === 'waiting') {
      line.unlink(entry)
      this.#waiting -= 1
    }
    entry.state = 'removed'
    if (options.remember !== true) {
      line.entries.delete(entry.id)
      this.#expiries.remove(entry)
    }
    if (line.entries.size === 0) this.#lines.delete(entry.key)
  }

  /** Grant the front of the line what it can have now. Expiries stay as they are: a grant never changes one. */
  #settle(key: string): void {
    const line = this.#lines.get(key)
    for (
      let entry = line?.first;
      line !== undefined && entry !== undefined && line.held.admits(entry);
      entry = line.first
    ) {
      line.unlink(entry)
      this.#waiting -= 1
      this.#hold(entry, line)
      entry.heldAt = this.#clock.now()
      this.#tell(entry, { state: 'held', token: entry.token, heldForMs: entry.at - entry.heldAt })
    }
    this.#notify(key)
    this.#disarm()
  }

  /** Remove whatever has expired, everywhere, and say what time it is: once for each call, however much it brings. */
  #expire(): number {
    const now = this.#clock.now()
    const first = this.#expiries.peek()
    if (first === undefined || first.at > now) return now
    // All of them first: nothing is granted to an entry that has expired too.
    const touched = new Set<string>()
    for (let entry = this.#expiries.peek(); entry !== undefined && entry.at <= now; entry = this.#expiries.peek()) {
      this.#takeOut(entry)
      touched.add(entry.key)
    }
    for (const key of touched) this.#settle(key)
    return now
  }

  #tell(entry: Entry, standing: Standing): void {
    const { listener } = entry.client
    // Later, as from a real server: never from inside somebody else's call.
    if (listener !== undefined) queueMicrotask(() => listener({ key: entry.key, id: entry.id, standing }))
  }

  #notify(key: string): void {
    if (this.#watchers.size === 0) return
    for (const listener of this.#watchers.get(key) ?? []) queueMicrotask(listener)
  }

  /**
   * A timer stands at the next expiry while somebody would hear of it. Without waiters or watchers, the next verb is
   * soon enough.
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

export interface MemoryOptions {
  /** Where the lines live; a new place of its own unless given. */
  readonly server?: MemoryServer
  /** The clock of that new place. */
  readonly clock?: Clock
}

/** An engine for one process: tests, and work that only has to exclude other work of the same process. */
export function memory(options: MemoryOptions = {}): Engine {
  const server = options.server ?? new MemoryServer(options)
  const client: Client = { listener: undefined }
  return {
    name: 'memory',
    traits,
    enter: async (claims) => server.enter(claims, client),
    renew: async (places) => server.renew(places),
    leave: async (places) => server.leave(places),
    evict: async (key, token, how) => server.evict(key, token, how),
    inspect: async (key) => server.inspect(key),
    async *list(prefix) {
      yield* server.list(prefix)
    },
    async subscribe(listener) {
      client.listener = listener
      return {
        async [Symbol.asyncDispose]() {
          if (client.listener === listener) client.listener = undefined
        },
      }
    },
    async watch(key, listener) {
      const stop = server.watch(key, listener)
      return { [Symbol.asyncDispose]: async () => stop() }
    },
    async [Symbol.asyncDispose]() {
      client.listener = undefined
    },
  }
}
