/**
 * When to remove what has expired, for stores whose server does not do that by itself: now and then, some rows at once,
 * by the processes that put records. What has expired counts as nothing from that moment on, so none of it is urgent.
 */
import type { Clock } from '../../core/clock.ts'

const EVERY_MS = 60_000
/** There may be more than a portion: the next sweep comes sooner. */
const SOON_MS = 1000

export class RecordSweep {
  readonly #clock: Clock
  readonly #portion: number
  readonly #remove: () => Promise<number>
  #dueAt: number
  /** Records were put since the last sweep. */
  #hasPut = false
  #working: Promise<void> | undefined

  /** `remove` what has expired, at most a `portion` of it, and answer how many records that were. */
  constructor(clock: Clock, portion: number, remove: () => Promise<number>) {
    this.#clock = clock
    this.#portion = portion
    this.#remove = remove
    this.#dueAt = clock.now() + EVERY_MS
  }

  /** Records were put: see whether it is time. */
  afterPut(): void {
    this.#hasPut = true
    if (this.#working === undefined && this.#clock.now() >= this.#dueAt) void this.#work()
  }

  /** The engine is closed. A process that does not live for long sweeps now. */
  async finish(): Promise<void> {
    await this.#working
    if (this.#hasPut) await this.#work()
  }

  #work(): Promise<void> {
    this.#hasPut = false
    // What fails is left to the next sweep of any process.
    this.#working = this.#remove()
      .catch(() => 0)
      .then((removed) => {
        this.#dueAt = this.#clock.now() + (removed < this.#portion ? EVERY_MS : SOON_MS)
        this.#working = undefined
      })
    return this.#working
  }
}
