/**
 * What the locks protect: a number that workers read, think about, and write back one higher. If two of them do it at once, one step is lost.
 *
 * The fenced one is guarded as a resource should be: it remembers the highest token it has seen, from the first touch on, reads included, and refuses lower ones.
 * The plain one believes everybody.
 */
import type { History } from './history.ts'

export class Register {
  readonly #history: History
  readonly #key: string
  readonly #fenced: boolean
  #value = 0
  #seen = -1n

  constructor(history: History, key: string, fenced: boolean) {
    this.#history = history
    this.#key = key
    this.#fenced = fenced
  }

  /** The number, or undefined for a stale token. */
  read(at: number, token: bigint): number | undefined {
    const accepted = this.#admit(token)
    this.#history.touches.push({ at, key: this.#key, token, fenced: this.#fenced, kind: 'read', accepted, value: this.#value })
    return accepted ? this.#value : undefined
  }

  /** False for a stale token. */
  write(at: number, token: bigint, value: number): boolean {
    const accepted = this.#admit(token)
    this.#history.touches.push({ at, key: this.#key, token, fenced: this.#fenced, kind: 'write', accepted, value })
    if (accepted) this.#value = value
    return accepted
  }

  #admit(token: bigint): boolean {
    if (!this.#fenced) return true
    if (token < this.#seen) return false
    this.#seen = token
    return true
  }
}
