/**
 * How long to pause before what has failed is tried again: twice as long from one failure to the next, up to the
 * longest. For connections that are made anew by themselves. There is no chance in it: where many processes lose theirs
 * at the same time, the caller adds some.
 */
export class RetryPause {
  readonly longestMs: number
  readonly #firstMs: number
  #nextMs: number

  constructor({ firstMs, longestMs }: { readonly firstMs: number; readonly longestMs: number }) {
    this.longestMs = longestMs
    this.#firstMs = firstMs
    this.#nextMs = firstMs
  }

  next(): number {
    const ms = this.#nextMs
    this.#nextMs = Math.min(2 * ms, this.longestMs)
    return ms
  }

  /** It has succeeded: the next failure is a first one. */
  reset(): void {
    this.#nextMs = this.#firstMs
  }

  /** There is no hurry. */
  skipToLongest(): void {
    this.#nextMs = this.longestMs
  }
}
