/**
 * The waiting list of a stock: who waits stands in the line of each item that it wants, of all processes, first come,
 * first served. The lines are mutexes; one that has all of its own is the *first in line* for its items.
 *
 * The first in line asks for its items. If there are not enough, then the pool remembers for a while that it wants
 * them: a caller that is not in line gets none of them meanwhile, and a step that gives some back is told to ring. When
 * the bell rings, or the next hold lapses, the first in line asks again. So a cart for four is not overtaken for ever
 * by carts for one, and waiters of different items do not wait for each other. One that wants two items keeps both
 * lines waiting.
 *
 * To ring is to enter the line of the bell and leave it again: those who watch that line hear of it.
 */
import { AcquireTimeoutError } from '../../core/errors.ts'
import type { Lease } from '../../core/lease.ts'
import type { Lock } from '../../core/lock.ts'
import { onAbort } from '../../core/on-abort.ts'
import type { PoolLine } from '../../core/store-hold.ts'
import type { PoolReply } from '../../core/store-requests.ts'
import { hintsOf, WakeSignal } from '../../core/watch.ts'
import type { Locks } from '../../locks.ts'
import type { AskedStep, PoolStore } from '../../store/pool-store.ts'

/** For how long the items of the first in line are kept for it. It asks again sooner, unless it has died. */
const WANT_MS = 20_000
const LONGEST_PAUSE_MS = 8_000
/** Where the engine does not tell of changes of a line, so that no bell is heard. */
const LONGEST_DEAF_PAUSE_MS = 1_000
/** If the process that rings dies, the bell can be rung again after this. */
const BELL_TTL_MS = 5_000

/** What the pool has answered, and when it was asked. */
export interface Waited {
  readonly reply: PoolReply
  readonly sentAt: number
}

export class WaitingList {
  readonly #locks: Locks
  readonly #pool: PoolStore

  constructor(locks: Locks, pool: PoolStore) {
    this.#locks = locks
    this.#pool = pool
  }

  /** Stand in line until `giveUpAt`, and reserve. Undefined: the wait is over. Rejects with the reason of `signal`. */
  async reserve(step: AskedStep, giveUpAt: number, signal: AbortSignal | undefined): Promise<Waited | undefined> {
    const { clock } = this.#locks.keeper
    const lines = step.lines ?? []
    const first = this.#locks.all(lines.map(({ item }) => this.#locks.mutex(`${this.#pool.key}:wait:${item}`)))
    // A first in line that has lost its place, by a stop of the process, stands in line again.
    for (;;) {
      const lease = await this.#acquire(first, giveUpAt - clock.now(), signal)
      if (lease === undefined) return undefined
      const waited = await this.#asFirst(step, lease, giveUpAt, signal)
      if (waited !== 'lost') return waited
    }
  }

  /** Tell the first in line that there may be enough now. The caller does not wait for it to be heard. */
  ring(): void {
    const { traits } = this.#locks.engine
    const key = this.#bellKey
    const options = { ttl: Math.max(BELL_TTL_MS, traits.minTtlMs) }
    // Readers never find it busy: the ring of one that has died does not keep others from ringing.
    const lock = traits.sharing === 'none' ? this.#locks.mutex(key, options) : this.#locks.rw(key, options).read
    const rung = async (): Promise<void> => {
      await (await lock.tryAcquire())?.release()
    }
    // A ring that fails costs time: the first in line asks again by itself.
    rung().catch(() => undefined)
  }

  get #bellKey(): string {
    return `${this.#pool.key}:bell`
  }

  async #acquire(lock: Lock, waitMs: number, signal: AbortSignal | undefined): Promise<Lease | undefined> {
    if (waitMs <= 0) return undefined
    try {
      return await lock.acquire({ wait: waitMs, ...(signal === undefined ? {} : { signal }) })
    } catch (error) {
      if (error instanceof AcquireTimeoutError) return undefined
      throw error
    }
  }

  async #asFirst(
    step: AskedStep,
    lease: Lease,
    giveUpAt: number,
    signal: AbortSignal | undefined,
  ): Promise<Waited | undefined | 'lost'> {
    const { clock } = this.#locks.keeper
    const wakeSignal = new WakeSignal(clock)
    const forget = [signal, lease.signal].map((ending) => onAbort(ending, () => wakeSignal.wake()))
    const hints = hintsOf(this.#locks.keeper, this.#bellKey, () => wakeSignal.wake())
    let isWanted = false
    try {
      const longestPauseMs = (await hints.ready) ? LONGEST_PAUSE_MS : LONGEST_DEAF_PAUSE_MS
      for (;;) {
        if (!lease.held) return 'lost'
        const sentAt = clock.now()
        const reply = await this.#pool.step({ ...step, wantMs: WANT_MS })
        isWanted = reply.state === 'short'
        if (reply.state !== 'short') return { reply, sentAt }
        signal?.throwIfAborted()
        const leftMs = giveUpAt - clock.now()
        if (leftMs <= 0) return undefined
        // A millisecond more: servers count whole ones.
        const nextMs = reply.nextMs === null ? longestPauseMs : reply.nextMs + 1
        await wakeSignal.sleep(Math.min(nextMs, longestPauseMs, leftMs), () => false)
        signal?.throwIfAborted()
      }
    } finally {
      for (const stop of forget) stop()
      if (isWanted) await this.#unwant(step.id, step.lines ?? [])
      await Promise.all([lease.release(), hints.end()])
    }
  }

  /** Before the lines are left: the next ones want the items for themselves. */
  async #unwant(id: string, lines: readonly PoolLine[]): Promise<void> {
    // What is not heard of is forgotten by the pool after a while.
    await this.#pool.step({ verb: 'unwant', id, lines }).catch(() => undefined)
  }
}
