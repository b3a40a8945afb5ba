/** What has happened in a world, and what was wrong with it. */
export interface Violation {
  readonly check: 'a token twice' | 'a token went back' | 'two holders' | 'something is left' | 'not to be had'
  readonly text: string
}

export class GrantRecord {
  readonly violations: Violation[] = []
  grants = 0
  readonly #highest = new Map<string, number>()
  readonly #tokens = new Map<string, number>()
  readonly #given = new Map<string, string>()
  readonly #believing = new Map<string, string>()
  readonly #exclusive: boolean

  /** `exclusive`: nothing has happened that would excuse two holders. */
  constructor(exclusive: boolean) {
    this.#exclusive = exclusive
  }

  /** The highest token of that key so far. */
  highest(key: string): number {
    return this.#highest.get(key) ?? 0
  }

  tokenOf(id: string): number | undefined {
    return this.#tokens.get(id)
  }

  granted(key: string, id: string, token: number, floor: number): void {
    this.grants += 1
    const before = this.#given.get(`${key} ${token}`)
    if (before !== undefined && before !== id)
      this.#violated('a token twice', `${token} of ${key} was given to ${before} and to ${id}`)
    if (token <= floor)
      this.#violated('a token went back', `${id} has ${token} of ${key}, and ${floor} was granted before it asked`)
    this.#given.set(`${key} ${token}`, id)
    this.#tokens.set(id, token)
    this.#highest.set(key, Math.max(this.highest(key), token))
  }

  believes(id: string, key: string): void {
    this.#believing.set(id, key)
    if (!this.#exclusive) return
    for (const [other, theirs] of this.#believing) {
      if (other !== id && theirs === key) this.#violated('two holders', `${other} and ${id} hold ${key}`)
    }
  }

  believesNoMore(id: string): void {
    this.#believing.delete(id)
  }

  left(what: string): void {
    this.#violated('something is left', what)
  }

  notToBeHad(key: string): void {
    this.#violated('not to be had', `${key} is free, and it cannot be had`)
  }

  #violated(check: Violation['check'], text: string): void {
    this.violations.push({ check, text })
  }
}
