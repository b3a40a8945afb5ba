/**
 * A simulated holder: the part of a program that has a lease and works under it. It looks at the lease before each
 * step, in any of the ways there are to look.
 *
 * The work is on the registers: read, take time, write back one higher. Taking time is where the faults hit: it sleeps,
 * it stalls its own event loop, it outlives its ttl. What it believes at each moment goes into the history.
 */
import { LeaseLostError, type LossReason } from '../src/core/errors.ts'
import type { Lease } from '../src/core/lease.ts'
import type { AllLease } from '../src/primitives/all.ts'
import type { Holding } from './history.ts'
import type { SimulatedProcess } from './process.ts'
import type { World } from './world.ts'

/** What is taken of one key. */
export interface Share {
  readonly key: string
  readonly weight: number
  readonly limit: number
  readonly ttlMs: number
  /** How long it may be held; Infinity: without limit. */
  readonly maxHoldMs: number
}

/** What the registers of one key said; undefined: refused, or not asked. */
interface Read {
  readonly key: string
  readonly token: bigint
  readonly plainValue: number | undefined
  readonly guardedValue: number | undefined
  readonly bareValue: number | undefined
}

/** How many use the lease's signal. It is made when first asked for, and dear. */
const LISTENING = 0.35
/** How many never look, and write whatever comes. They only use the guarded register: it is there for them. */
const CARELESS = 0.2

/** For how long a key is kept busy after its release, at most. */
export const LONGEST_KEPT_TTLS = 3

export class SimulatedHolder {
  readonly #world: World
  readonly #process: SimulatedProcess
  readonly #lease: Lease | AllLease
  readonly #holdings: readonly Holding[]
  /** Its way of looking. */
  readonly #looks: (lease: Lease) => boolean
  #released = false

  constructor(world: World, process: SimulatedProcess, lease: Lease | AllLease, shares: readonly Share[]) {
    this.#world = world
    this.#process = process
    this.#lease = lease
    const { now } = world
    const listening = world.random.happens(LISTENING)
    this.#looks = world.random.pick(listening ? LOOKS_BY_SIGNAL : LOOKS)
    this.#holdings = shares.map(({ key, weight, limit, ttlMs, maxHoldMs }) => ({
      process: process.number,
      key,
      token: ('tokens' in lease ? lease.tokens.get(key) : lease.token) as bigint,
      weight,
      limit,
      ttlMs,
      maxHoldMs,
      grantedAt: now,
      alone: shares.length === 1,
      listening,
      believedAt: now,
      doubtedAt: undefined,
      lostAt: undefined,
      lostWhy: undefined,
      endedAt: undefined,
      keeping: false,
      keptMs: undefined,
    }))
    world.history.holdings.push(...this.#holdings)
    world.coverage.grants += 1
    if (world.logging) world.log(process.name, `has ${this.#named()}`)
    if (listening) this.#listen()
  }

  /** Whether it knows that it has lost the lease. */
  get lost(): boolean {
    return this.#holdings.some(({ lostAt, doubtedAt }) => lostAt !== undefined || doubtedAt !== undefined)
  }

  /** A few steps of work, for as long as the lease is held. `inside` is done at the end. */
  async work(inside?: () => Promise<void>): Promise<void> {
    const careful = !this.#world.random.happens(CARELESS)
    for (let steps = this.#world.random.whole(1, 3); steps > 0; steps -= 1) {
      if (careful && !this.looks()) return
      const read = this.#readAll(careful)
      await this.#takeTime()
      if (careful && !this.looks()) return
      this.#writeAll(read)
    }
    await this.#overstays()
    await inside?.()
  }

  /** Some that may hold for a limited time only do not stop when they are told to. */
  async #overstays(): Promise<void> {
    const { random, conditions, calm } = this.#world
    const limited = this.#holdings.some(({ maxHoldMs }) => maxHoldMs < Number.POSITIVE_INFINITY)
    if (limited && !calm && random.happens(0.3)) await this.#process.sleep(random.between(0, 3 * conditions.ttlMs))
  }

  /** Whether it holds, by any of the ways to ask. `lease` may be one that is nested in its own. */
  looks(lease: Lease = this.#lease): boolean {
    const held = this.#looks(lease)
    if (held) for (const holding of this.#holdings) holding.believedAt = this.#world.now
    else this.#doubts()
    return held
  }

  /** From now on it does not hold, whatever happens to the release. */
  ends(): void {
    for (const holding of this.#holdings) holding.endedAt ??= this.#world.now
    if (this.#world.logging) this.#world.log(this.#process.name, `gives back ${this.#named()}`)
  }

  /** `keeps`: how likely it lets the key stay busy for a while. */
  async release(keeps = 0.05): Promise<void> {
    if (this.#released) return
    this.#released = true
    const { random, conditions } = this.#world
    this.ends()
    const lease = this.#lease
    const keptMs = random.happens(keeps) ? random.whole(10, conditions.ttlMs * LONGEST_KEPT_TTLS) : undefined
    for (const holding of this.#holdings) holding.keeping = keptMs !== undefined
    const released = lease.release(keptMs === undefined ? {} : { after: keptMs })
    if (lease.held) this.#world.mishap('lease after its end', `${this.#named()} is held right after release()`)
    if (random.happens(0.2)) await lease[Symbol.asyncDispose]()
    if (keptMs === undefined) {
      await released
      return
    }
    const kept = await released
    for (const holding of this.#holdings) if (kept) holding.keptMs = keptMs
  }

  #listen(): void {
    const { signal } = this.#lease
    signal.addEventListener('abort', () => {
      const { why } = signal.reason as LeaseLostError
      this.#notesLoss(why)
      for (const holding of this.#holdings) holding.lostAt ??= this.#world.now
      if (this.#world.logging) this.#world.log(this.#process.name, `is told that ${this.#named()} is lost (${why})`)
      if (why !== 'closed') return
      this.#asksTheClosed()
      // Some are done as soon as they are told; of several keys, the others are held until then.
      if (this.#world.random.happens(0.4)) void this.release(0.3)
    })
  }

  /** It hears of the closing from inside of it, and wants the lock back: closed locks give none. */
  #asksTheClosed(): void {
    const [first] = this.#holdings
    if (first === undefined) return
    const asked = this.#process.locks.mutex(first.key).tryAcquire()
    void asked.then(
      () => this.#world.mishap('lease after its end', `${this.#named()}: asked for again while closing, not refused`),
      () => {},
    )
  }

  #doubts(): void {
    try {
      this.#lease.assertHeld()
    } catch (error) {
      if (error instanceof LeaseLostError) this.#notesLoss(error.why)
    }
    for (const holding of this.#holdings) holding.doubtedAt ??= this.#world.now
    if (this.#world.logging) this.#world.log(this.#process.name, `sees that ${this.#named()} is lost`)
  }

  #notesLoss(why: LossReason): void {
    const [first] = this.#holdings
    if (first === undefined || first.lostWhy !== undefined) return
    for (const holding of this.#holdings) holding.lostWhy = why
    const { coverage } = this.#world
    if (why === 'deadline') coverage.deadlineLosses += 1
    else if (why === 'expired') coverage.expiryLosses += 1
    else if (why === 'evicted') coverage.evictionLosses += 1
    else if (why === 'maxHold') coverage.maxHoldLosses += 1
    else if (why === 'closed') coverage.closeLosses += 1
  }

  async #takeTime(): Promise<void> {
    const { random, conditions, calm } = this.#world
    const durationMs = random.happens(0.12)
      ? random.between(0, 1.6 * conditions.ttlMs)
      : random.between(0, conditions.ttlMs / 10)
    if (calm || !random.happens(conditions.stall)) return this.#process.sleep(durationMs)
    const stalledMs = random.between(0, 1.6 * conditions.ttlMs)
    this.#world.fault('stall', this.#process.number, stalledMs)
    return this.#process.stall(stalledMs)
  }

  /** The registers are for holders that hold alone: what a reader may do beside other readers needs no guard. */
  #readAll(careful: boolean): readonly Read[] {
    const { guarded, plain, bare, now } = this.#world
    const alone = this.#holdings.filter(({ limit }) => limit === 1)
    return alone.map(({ key, token }) => {
      const plainValue = careful ? plain.get(key)?.read(now, token) : undefined
      return {
        key,
        token,
        plainValue,
        guardedValue: guarded.get(key)?.read(now, token),
        bareValue: bare.get(key)?.read(),
      }
    })
  }

  #writeAll(read: readonly Read[]): void {
    const { guarded, plain, bare, now, coverage } = this.#world
    for (const { key, token, plainValue, guardedValue, bareValue } of read) {
      if (plainValue !== undefined) plain.get(key)?.write(now, token, plainValue + 1)
      if (guardedValue === undefined || !guarded.get(key)?.write(now, token, guardedValue + 1))
        coverage.staleAccesses += 1
      if (bareValue !== undefined && bare.get(key)?.write(bareValue)) coverage.lostWithoutGuard += 1
    }
  }

  #named(): string {
    return this.#holdings.map(({ key, token }) => `${key} (token ${token})`).join(' + ')
  }
}

const LOOKS: readonly ((lease: Lease) => boolean)[] = [
  (lease) => lease.held,
  (lease) => lease.remainingMs > 0,
  (lease) => succeeds(() => lease.assertHeld()),
]

const LOOKS_BY_SIGNAL: readonly ((lease: Lease) => boolean)[] = [
  (lease) => !lease.signal.aborted,
  (lease) => succeeds(() => lease.signal.throwIfAborted()),
]

function succeeds(attempt: () => void): boolean {
  try {
    attempt()
    return true
  } catch {
    return false
  }
}
