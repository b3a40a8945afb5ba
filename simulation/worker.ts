/**
 * A worker: one strand of a user's program. It asks for locks in every way there is, works under them (holder.ts),
 * gives them back, and checks that `using` told the truth about how it went.
 */
import { UNLIMITED } from '../src/core/engine.ts'
import type { Lease } from '../src/core/lease.ts'
import type { LineAcquireOptions, Lock, WeightedAcquireOptions, Work } from '../src/core/lock.ts'
import { drawShare, drawWaitMs, outcomeOf, SimulatedAttempt } from './attempt.ts'
import { type Share, SimulatedHolder } from './holder.ts'
import type { SimulatedProcess } from './process.ts'
import type { World } from './world.ts'

export function startWorkers(world: World, process: SimulatedProcess): void {
  for (let number = 0; number < world.conditions.workers; number += 1) {
    process.working += 1
    void new Worker(world, process).run()
  }
}

/** What the work of some `using` throws. */
const WORK_FAILED = new Error('the work failed')

class Worker {
  readonly #world: World
  readonly #process: SimulatedProcess

  constructor(world: World, process: SimulatedProcess) {
    this.#world = world
    this.#process = process
  }

  async run(): Promise<void> {
    while (!this.#over) {
      await this.#process.sleep(this.#thinkMs())
      if (this.#over) break
      await this.#operate().catch((error: unknown) => this.#unexpected(error))
    }
    this.#process.working -= 1
    this.#world.workerDone(this.#process)
  }

  /** In a crowd, all workers are done with something else at the same moment. */
  #thinkMs(): number {
    const { random, conditions, now } = this.#world
    const thinkMs = random.between(0, conditions.thinkMs)
    if (!conditions.crowded) return thinkMs
    const roundMs = conditions.ttlMs / 2
    return Math.max(0, Math.ceil((now + thinkMs) / roundMs) * roundMs - now)
  }

  get #over(): boolean {
    return this.#world.calm || (this.#process.ending && !this.#process.draining)
  }

  #operate(): Promise<void> {
    const { random, conditions } = this.#world
    const draw = random.between(0, conditions.contexts ? 1 : 0.5)
    if (draw < 0.3) return this.#acquires()
    if (draw < 0.4) return this.#tries()
    if (draw < 0.5) return this.#takesAll()
    if (draw < 0.7) return this.#uses()
    if (draw < 0.85) return this.#nests()
    return this.#leads()
  }

  // ---- the ways to ask ----

  async #acquires(): Promise<void> {
    const share = drawShare(this.#world)
    const attempt = this.#asks('acquire', [share])
    await this.#has(attempt, this.#lock(share).acquire(attempt.options()), [share])
  }

  async #tries(): Promise<void> {
    const share = drawShare(this.#world)
    const attempt = this.#asks('try', [share], 0)
    const { weight, maxHoldMs } = share
    const options = {
      ...(weight > 1 ? { weight } : {}),
      ...(maxHoldMs < Number.POSITIVE_INFINITY ? { maxHold: maxHoldMs } : {}),
    }
    await this.#has(attempt, this.#lock(share).tryAcquire(options), [share])
  }

  async #uses(): Promise<void> {
    const share = drawShare(this.#world)
    const attempt = this.#asks('using', [share])
    await this.#using(attempt, [share], (work) => this.#lock(share).using(attempt.options(), work))
  }

  /** A mutex inside itself: the same token, no place in line; siblings take turns. */
  async #nests(): Promise<void> {
    const share = { ...drawShare(this.#world), weight: 1, limit: 1 }
    const attempt = this.#asks('nested using', [share])
    const lock = this.#process.locks.mutex(share.key, { ttl: share.ttlMs, reentrant: true })
    const forgets = this.#world.random.happens(0.2)
    const inside = async (outer: Lease, holder: SimulatedHolder): Promise<void> => {
      this.#world.coverage.nestings += 1
      let turn = 0
      const work = async (inner: Lease): Promise<void> => {
        turn += 1
        if (turn > 1) this.#world.mishap('nesting', `two nested leases of ${share.key} had the turn at once`)
        // A holder that goes on after a loss is not inside any more, and gets a lease of its own.
        if (inner.token === outer.token) holder.looks(inner)
        await this.#process.sleep(1)
        await this.#takesTurns(lock, inner)
        turn -= 1
        if (forgets) await this.#forgets(lock, inner)
      }
      const within = async (): Promise<void> => {
        await using inner = await lock.acquire({ within: outer })
        await work(inner)
      }
      for (const result of await Promise.allSettled([lock.using(work), within()])) {
        if (result.status === 'rejected' && outcomeOf(result.reason) === undefined) this.#unexpected(result.reason)
      }
      if (!forgets) return
      holder.ends()
      await this.#forgets(lock, outer)
    }
    await this.#using(attempt, [share], (work) => lock.using(attempt.options(), work), inside)
  }

  /** Three siblings inside a nested lease: they have the turn in the order of their asking. */
  async #takesTurns(lock: Lock<LineAcquireOptions>, outer: Lease): Promise<void> {
    let last = -1
    const takesTurn = async (place: number): Promise<void> => {
      await using inner = await lock.acquire({ within: outer, wait: 50 * this.#world.conditions.ttlMs })
      if (place < last) this.#world.mishap('nesting', `turn ${place} inside of ${lock.key} came after turn ${last}`)
      last = place
      this.#world.coverage.nestings += inner.held ? 1 : 0
      await this.#process.sleep(1)
    }
    for (const result of await Promise.allSettled([0, 1, 2].map(takesTurn))) {
      if (result.status === 'fulfilled') continue
      const outcome = outcomeOf(result.reason)
      if (outcome === 'timeout') this.#world.mishap('nesting', `the turn inside of ${lock.key} was never given on`)
      else if (outcome === undefined) this.#unexpected(result.reason)
    }
  }

  /** A nested lease is never given back. It ends with the one around it; so does the wait of a sibling behind it. */
  async #forgets(lock: Lock<LineAcquireOptions>, outer: Lease): Promise<void> {
    const options = { within: outer, wait: 50 * this.#world.conditions.ttlMs }
    let told: boolean | undefined
    const forgotten = lock.acquire(options).then(({ signal }) => {
      told = signal.aborted
      signal.addEventListener('abort', () => {
        told = true
      })
    })
    const behind = lock.acquire(options)
    const results = Promise.allSettled([forgotten, behind])
    await this.#process.sleep(1)
    const released = outer.release()
    if (told === false) this.#world.mishap('nesting', `${lock.key} was released around a lease that was not told`)
    for (const result of await results) {
      const outcome = result.status === 'rejected' ? outcomeOf(result.reason) : undefined
      if (outcome === 'timeout') this.#world.mishap('nesting', `the turn inside of ${lock.key} was never given on`)
      else if (result.status === 'rejected' && outcome === undefined) this.#unexpected(result.reason)
    }
    await released
  }

  async #takesAll(): Promise<void> {
    const { random, keys, conditions } = this.#world
    const drawn = keys.filter(() => random.happens(0.7)).map((key) => ({ ...drawShare(this.#world, key), weight: 1 }))
    const [first] = drawn
    if (first === undefined) return
    const once = random.happens(0.3)
    // One limit for all of them, and none for one try.
    const shares = drawn.map((share) => ({ ...share, maxHoldMs: once ? Number.POSITIVE_INFINITY : first.maxHoldMs }))
    const lock = this.#process.locks.all(shares.map((share) => this.#lock(share)))
    if (once) return this.#has(this.#asks('try all', shares, 0), lock.tryAcquire(), shares)
    const attempt = this.#asks('all', shares)
    const { weight: _, ...options } = attempt.options()
    if (!conditions.contexts || random.happens(0.3)) return this.#has(attempt, lock.acquire(options), shares)
    return this.#using(attempt, shares, (work) => lock.using(options, work))
  }

  async #leads(): Promise<void> {
    const share = { ...drawShare(this.#world), weight: 1, limit: 1 }
    const attempt = this.#asks('lead', [share])
    const election = this.#process.locks.election(share.key, { ttl: share.ttlMs })
    const again = this.#world.random.happens(0.3)
    await this.#using(attempt, [share], (work) => {
      this.#world.coverage.terms += 1
      return election.lead({ ...attempt.options(), again }, work)
    })
  }

  // ---- what all of them do ----

  #asks(what: string, shares: readonly Share[], waitMs = drawWaitMs(this.#world)): SimulatedAttempt {
    return new SimulatedAttempt(this.#world, this.#process, what, shares, waitMs)
  }

  #lock({ key, limit, ttlMs }: Share): Lock<WeightedAcquireOptions> {
    const { locks } = this.#process
    if (limit === UNLIMITED) return locks.rw(key, { ttl: ttlMs }).read
    if (limit > 1) return locks.semaphore(key, limit, { ttl: ttlMs })
    return this.#world.random.happens(0.3) ? locks.rw(key, { ttl: ttlMs }).write : locks.mutex(key, { ttl: ttlMs })
  }

  /** Wait for the lease, work, give it back. */
  async #has(attempt: SimulatedAttempt, granting: Promise<Lease | undefined>, shares: readonly Share[]): Promise<void> {
    let lease: Lease | undefined
    try {
      lease = await granting
    } catch (error) {
      if (!attempt.endsWith(error)) throw error
      return
    }
    attempt.ends(lease === undefined ? 'busy' : 'granted')
    if (lease === undefined) return
    const holder = new SimulatedHolder(this.#world, this.#process, lease, shares)
    await holder.work()
    await holder.release()
  }

  /** Work inside a `using`, and hold it to its word. */
  async #using(
    attempt: SimulatedAttempt,
    shares: readonly Share[],
    using: (work: Work<void>) => Promise<void>,
    inside?: (lease: Lease, holder: SimulatedHolder) => Promise<void>,
  ): Promise<void> {
    let holder: SimulatedHolder | undefined
    const fails = this.#world.random.happens(0.1)
    const work = async (lease: Lease): Promise<void> => {
      attempt.ends('granted')
      const worker = new SimulatedHolder(this.#world, this.#process, lease, shares)
      holder = worker
      await worker.work(inside && (() => inside(lease, worker)))
      worker.ends()
      if (fails) throw WORK_FAILED
    }
    try {
      await using(work)
      if (holder?.lost)
        this.#world.mishap('dishonest using', `${this.#process.name}: using resolved although the lease was lost`)
      if (fails) this.#world.mishap('dishonest using', `${this.#process.name}: using resolved although the work failed`)
    } catch (error) {
      if (holder === undefined ? attempt.endsWith(error) : error === WORK_FAILED || outcomeOf(error) !== undefined)
        return
      throw error
    }
  }

  #unexpected(error: unknown): void {
    this.#world.mishap(
      'unexpected error',
      `${this.#process.name}: ${error instanceof Error ? error.stack : String(error)}`,
    )
  }
}
