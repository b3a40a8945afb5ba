/**
 * One server, simulated: what src/engines/redlock/lua does, in a few lines and without a network. A test runs random
 * calls on this and on a real Redis, and compares.
 *
 * `nowMs` is its own clock, which may run a little fast or slow, and in some worlds jumps.
 */
import type {
  LeaveRequest,
  RaiseRequest,
  RepairRequest,
  TakeReply,
  TakeRequest,
} from '../../src/engines/redlock/quorum-server.ts'

interface StoredKey {
  id: string
  number: number
  attempt: number
  ttlMs: number
  expiresAt: number
}

export class SimulatedServer {
  readonly keys: Map<string, StoredKey> = new Map()
  /** The waiters, by key, in the order in which they came; and when each expires. */
  readonly #lines = new Map<string, Map<string, number>>()
  readonly #counts = new Map<string, number>()
  readonly #now: () => number
  readonly #countOf: (key: string) => string

  /** `countOf` says which count a key has: several may share one. */
  constructor(now: () => number, countOf: (key: string) => string) {
    this.#now = now
    this.#countOf = countOf
  }

  take(request: TakeRequest): TakeReply {
    const { key, id, ttlMs, attempt, mode } = request
    const stored = this.#key(key)
    if (stored?.id === id) {
      stored.expiresAt = this.#now() + ttlMs
      stored.ttlMs = ttlMs
      stored.attempt = Math.max(stored.attempt, attempt)
      return stored.number
    }
    const line = this.#line(key)
    if (mode === 'renew' && !line.has(id)) return { why: 'missing', nowMs: this.#now() }
    if (stored === undefined) {
      const number = this.#count(key)
      this.keys.set(key, { id, number, attempt, ttlMs, expiresAt: this.#now() + ttlMs })
      if (mode === 'renew') line.delete(id)
      return number
    }
    if (mode !== 'try') line.set(id, this.#now() + ttlMs)
    const ids = [...line.keys()]
    const [first] = ids
    const ahead = 1 + (mode === 'try' ? ids.length : ids.indexOf(id))
    const next = first === undefined || first === id
    const recheckMs = Math.max(0, (next ? stored.expiresAt : (line.get(first) as number)) - this.#now())
    return { why: 'taken', by: stored.id, stranger: false, ahead, next, recheckMs }
  }

  raise({ key, id, to }: RaiseRequest): number {
    const stored = this.#key(key)
    if (stored?.id !== id) return 0
    const count = this.#countedTo(key)
    if (count > to) return count
    this.#counts.set(this.#countOf(key), to)
    stored.number = to
    return to
  }

  repair({ key, id, ttlMs, attempt, token, currentNumber, notAfterMs }: RepairRequest): void {
    const stored = this.#key(key)
    const done =
      currentNumber === undefined
        ? stored === undefined && this.#now() <= notAfterMs
        : stored?.id === id && stored.number === currentNumber
    if (!done) return
    this.#counts.set(this.#countOf(key), Math.max(this.#countedTo(key), token))
    if (stored !== undefined) {
      stored.number = token
      return
    }
    this.keys.set(key, { id, number: token, attempt, ttlMs, expiresAt: this.#now() + ttlMs })
    this.#line(key).delete(id)
  }

  leave({ key, id, upToAttempt, keepWaiting }: LeaveRequest): boolean {
    const stored = this.#key(key)
    const line = this.#line(key)
    const held = stored?.id === id && (upToAttempt === undefined || stored.attempt <= upToAttempt)
    if (held) this.keys.delete(key)
    // It was the first, and is again.
    const back = keepWaiting !== undefined && !line.has(id) && (held || stored?.id !== id)
    if (back) this.#lines.set(key, new Map([[id, this.#now() + keepWaiting.ttlMs], ...line]))
    const waited = upToAttempt === undefined && line.delete(id)
    return held || waited
  }

  holder(key: string): string | undefined {
    return this.#key(key)?.id
  }

  /** Everything but the counts is lost. */
  forget(): void {
    this.keys.clear()
    this.#lines.clear()
  }

  forgetCounts(): void {
    this.#counts.clear()
  }

  #count(key: string): number {
    const known = this.#counts.get(this.#countOf(key))
    const next = known === undefined ? this.#countedTo(key) : known + 1
    this.#counts.set(this.#countOf(key), next)
    return next
  }

  /** A count that is missing begins at the clock, in microseconds; and only then is the clock asked. */
  #countedTo(key: string): number {
    const known = this.#counts.get(this.#countOf(key))
    if (known !== undefined) return known
    const seed = Math.floor(this.#now() * 1000)
    this.#counts.set(this.#countOf(key), seed)
    return seed
  }

  #key(key: string): StoredKey | undefined {
    const found = this.keys.get(key)
    if (found !== undefined && found.expiresAt <= this.#now()) this.keys.delete(key)
    return this.keys.get(key)
  }

  #line(key: string): Map<string, number> {
    const line = this.#lines.get(key) ?? new Map<string, number>()
    this.#lines.set(key, line)
    for (const [id, expiresAt] of line) if (expiresAt <= this.#now()) line.delete(id)
    return line
  }
}
