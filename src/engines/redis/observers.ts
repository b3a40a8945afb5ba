/**
 * Observers of lines, who have no entry in them: listeners that are called when a line may have changed.
 *
 * The server remembers for a while which engine objects watch a line, and sends them a message when it changes
 * (lua/watch.lua). So this process registers again and again. Where a message may have been missed (after a gap of the
 * channel, or when the server had forgotten the registration), listeners are called once too often rather than once too
 * rarely. Where no messages can arrive, all listeners are called now and then.
 */
import type { Clock, Timer } from '../../core/clock.ts'

/** For how long the server remembers a registration. It is repeated three times as often. */
const WATCH_MS = 30_000
/** How often listeners are called where no messages can arrive. */
const POLL_MS = 500

/** Register for these keys, for so long; 0: no longer. Resolves with whether each was registered before. */
export type RegisterObserver = (keys: readonly string[], ttlMs: number) => Promise<readonly boolean[]>

export class RedisObservers {
  readonly #clock: Clock
  readonly #register: RegisterObserver
  readonly #deaf: boolean
  readonly #listeners = new Map<string, Set<() => void>>()
  #timer: Timer | undefined

  constructor(clock: Clock, register: RegisterObserver, options: { readonly deaf: boolean }) {
    this.#clock = clock
    this.#register = register
    this.#deaf = options.deaf
  }

  async add(key: string, listener: () => void): Promise<AsyncDisposable> {
    // A function of its own for each call: a user who watches twice with one listener watches twice.
    const notify = (): void => listener()
    const listeners = this.#listeners.get(key) ?? new Set()
    this.#listeners.set(key, listeners.add(notify))
    try {
      if (!this.#deaf) await this.#register([key], WATCH_MS)
    } catch (error) {
      this.#forget(key, notify)
      throw error
    }
    this.#arm()
    return {
      [Symbol.asyncDispose]: async () => {
        if (!this.#forget(key, notify) || this.#deaf) return
        // If it fails, the server forgets the registration in a while.
        await this.#register([key], 0).catch(() => undefined)
      },
    }
  }

  /** The line of that key may have changed. */
  notify(key: string): void {
    for (const notify of [...(this.#listeners.get(key) ?? [])]) notify()
  }

  notifyAll(): void {
    for (const key of [...this.#listeners.keys()]) this.notify(key)
  }

  stop(): void {
    this.#timer?.cancel()
    this.#timer = undefined
    this.#listeners.clear()
  }

  /** Answers whether that was the last listener for the key. */
  #forget(key: string, notify: () => void): boolean {
    const listeners = this.#listeners.get(key)
    if (!listeners?.delete(notify) || listeners.size > 0) return false
    return this.#listeners.delete(key)
  }

  #arm(): void {
    if (this.#timer !== undefined || this.#listeners.size === 0) return
    this.#timer = this.#clock.timer(this.#deaf ? POLL_MS : WATCH_MS / 3, () => {
      this.#timer = undefined
      if (this.#deaf) this.notifyAll()
      else void this.#again()
      this.#arm()
    })
  }

  async #again(): Promise<void> {
    const keys = [...this.#listeners.keys()]
    // What fails is tried again the next time.
    const known = await this.#register(keys, WATCH_MS).catch(() => [])
    for (const [index, key] of keys.entries()) if (known[index] === false) this.notify(key)
  }
}
