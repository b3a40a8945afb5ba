/**
 * What is done once, however often it is asked for, also where the work itself asks for it again: a listener that the
 * work calls may release the very lease whose release has called it.
 */
export class FirstCall<Value> {
  #begun = false
  #answer: Promise<Value> | undefined
  #settle: ((answer: Promise<Value>) => void) | undefined

  /** Whether the work was asked for. */
  get begun(): boolean {
    return this.#begun
  }

  /** The first call does `work`. Every call answers what came of it. */
  do(work: () => Promise<Value>): Promise<Value> {
    if (!this.#begun) {
      this.#begun = true
      const answer = promised(work)
      this.#settle?.(answer)
      this.#answer = answer
    }
    // The work has not returned its promise yet: it is the work that asks.
    this.#answer ??= new Promise((settle) => {
      this.#settle = settle
    })
    return this.#answer
  }
}

function promised<Value>(work: () => Promise<Value>): Promise<Value> {
  try {
    return work()
  } catch (error) {
    return Promise.reject(error)
  }
}
