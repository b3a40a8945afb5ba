/** Who of ours stands in which line, as far as this engine object has heard: it decides whether the patrol goes round, and where. */
export class Waiters {
  readonly #lines = new Map<string, Map<string, number>>()

  /** How many lines that is. */
  get size(): number {
    return this.#lines.size
  }

  /** The lines somebody of ours waits in. */
  keys(): IterableIterator<string> {
    return this.#lines.keys()
  }

  /** `until` undefined: it does not wait any more. */
  set(key: string, id: string, until: number | undefined): void {
    const line = this.#lines.get(key)
    if (until !== undefined) {
      if (line === undefined) this.#lines.set(key, new Map([[id, until]]))
      else line.set(id, until)
    } else if (line?.delete(id) && line.size === 0) {
      this.#lines.delete(key)
    }
  }

  /** Forget those who have expired unheard. */
  prune(now: number): void {
    for (const [key, line] of this.#lines) {
      for (const [id, until] of line) if (until <= now) this.set(key, id, undefined)
    }
  }

  clear(): void {
    this.#lines.clear()
  }
}
