/**
 * What the locks protect: a number that workers read, think about, and write back one higher. If two of them do it at
 * once, one step is lost.
 *
 * The guarded one is guarded as a resource should be, by the very rule that the guards share: src/guards/marks.ts. The
 * plain one believes every token, and only careful holders use it. The bare one believes every token, and all holders
 * use it: it shows what guards are for.
 */
import { type Access, lowestToken, type Marks, NO_MARKS, raiseMarks } from '../src/guards/marks.ts'
import type { History } from './history.ts'

export class Register {
  readonly #history: History
  readonly #key: string
  readonly #guarded: boolean
  #value = 0
  #marks: Marks = NO_MARKS

  constructor(history: History, key: string, guarded: boolean) {
    this.#history = history
    this.#key = key
    this.#guarded = guarded
  }

  /** The number, or undefined for a stale token. */
  read(at: number, token: bigint): number | undefined {
    const accepted = this.#admit(token, 'read')
    this.#history.accesses.push({
      at,
      key: this.#key,
      token,
      guarded: this.#guarded,
      kind: 'read',
      accepted,
      value: this.#value,
    })
    return accepted ? this.#value : undefined
  }

  /** False for a stale token. */
  write(at: number, token: bigint, value: number): boolean {
    const accepted = this.#admit(token, 'write')
    this.#history.accesses.push({ at, key: this.#key, token, guarded: this.#guarded, kind: 'write', accepted, value })
    if (accepted) this.#value = value
    return accepted
  }

  #admit(token: bigint, access: Access): boolean {
    if (!this.#guarded) return true
    if (token < lowestToken(this.#marks, access)) return false
    this.#marks = raiseMarks(this.#marks, token, access)
    return true
  }
}

export class BareRegister {
  #value = 0

  read(): number {
    return this.#value
  }

  /** Write back one higher than was read; answers whether another holder's step is lost by that. */
  write(read: number): boolean {
    const lost = read !== this.#value
    this.#value = read + 1
    return lost
  }
}
