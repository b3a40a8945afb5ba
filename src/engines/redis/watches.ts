/**
 * Observers: who wants to hear that a line may have changed, without standing in it.
 *
 * The server keeps for each line who watches it, for a while, and tells them through their letterbox (lua/watch.lua);
 * so we say again and again that we do. What is missed meanwhile is made good by a ring too many: after a gap, and
 * whenever the server had forgotten us. Without a letterbox, everybody is rung now and then.
 */
import type { Clock, Timer } from '../../core/clock.ts'

/** For how long the server remembers us. We say it again three times as often. */
const WATCH_MS = 30_000
/** How often observers are rung where nobody tells us anything. */
const POLL_MS = 500

/** Tell the server that we watch these keys for so long, 0: no longer. Resolves with whether it knew, for each. */
type Register = (keys: readonly string[], ttlMs: number) => Promise<readonly boolean[]>

export class Watches {
  readonly #clock: Clock
  readonly #register: Register
  readonly #deaf: boolean
  readonly #listeners = new Map<string, Set<() => void>>()
  #timer: Timer | undefined

  constructor(clock: Clock, register: Register, options: { readonly deaf: boolean }) {
    this.#clock = clock
    this.#register = register
    this.#deaf = options.deaf
  }

  async add(key: string, listener: () => void): Promise<AsyncDisposable> {
    // A function of our own: whoever watches twice with one listener watches twice.
    const ring = (): void => listener()
    const listeners = this.#listeners.get(key) ?? new Set()
    this.#listeners.set(key, listeners.add(ring))
    try {
      if (!this.#deaf) await this.#register([key], WATCH_MS)
    } catch (error) {
      this.#forget(key, ring)
      throw error
    }
    this.#arm()
    return {
      [Symbol.asyncDispose]: async () => {
        if (!this.#forget(key, ring) || this.#deaf) return
        // If it fails, we are forgotten in a while.
        await this.#register([key], 0).catch(() => undefined)
      },
    }
  }

  /** The line of that key may have changed. */
  ring(key: string): void {
    for (const ring of [...(this.#listeners.get(key) ?? [])]) ring()
  }

  ringAll(): void {
    for (const key of [...this.#listeners.keys()]) this.ring(key)
  }

  stop(): void {
    this.#timer?.cancel()
    this.#timer = undefined
    this.#listeners.clear()
  }

  /** Answers whether nobody watches that key any more. */
  #forget(key: string, ring: () => void): boolean {
    const listeners = this.#listeners.get(key)
    if (!listeners?.delete(ring) || listeners.size > 0) return false
    return this.#listeners.delete(key)
  }

  #arm(): void {
    if (this.#timer !== undefined || this.#listeners.size === 0) return
    this.#timer = this.#clock.timer(this.#deaf ? POLL_MS : WATCH_MS / 3, () => {
      this.#timer = undefined
      if (this.#deaf) this.ringAll()
      else void this.#again()
      this.#arm()
    })
  }

  async #again(): Promise<void> {
    const keys = [...this.#listeners.keys()]
    // What fails is tried again at the next time.
    const known = await this.#register(keys, WATCH_MS).catch(() => [])
    for (const [index, key] of keys.entries()) if (known[index] === false) this.ring(key)
  }
}
