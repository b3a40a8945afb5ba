/**
 * Who of ours stands in which line, as far as this engine object has heard: it decides whether the patrol goes round,
 * and where.
 */

/** One stay in a line: until when, and the token it will hold with. */
export interface Stay {
  readonly until: number
  readonly token: number
}

export interface Waiter extends Stay {
  readonly key: string
  readonly id: string
}

export class Waiters {
  readonly #lines = new Map<string, Map<string, Waiter>>()
  readonly #byToken = new Map<number, Waiter>()

  /** How many lines that is. */
  get size(): number {
    return this.#lines.size
  }

  /** The lines somebody of ours waits in. */
  keys(): IterableIterator<string> {
    return this.#lines.keys()
  }

  byToken(token: number): Waiter | undefined {
    return this.#byToken.get(token)
  }

  /** `stay` undefined: it does not wait any more. */
  set(key: string, id: string, stay: Stay | undefined): void {
    const line = this.#lines.get(key)
    const before = line?.get(id)
    if (before !== undefined) this.#byToken.delete(before.token)
    if (stay !== undefined) {
      const waiter = { key, id, until: stay.until, token: stay.token }
      this.#byToken.set(stay.token, waiter)
      if (line === undefined) this.#lines.set(key, new Map([[id, waiter]]))
      else line.set(id, waiter)
    } else if (line?.delete(id) && line.size === 0) {
      this.#lines.delete(key)
    }
  }

  /** Forget those who have expired unheard. */
  prune(now: number): void {
    for (const { key, id, until } of this.#byToken.values()) if (until <= now) this.set(key, id, undefined)
  }

  clear(): void {
    this.#lines.clear()
    this.#byToken.clear()
  }
}
