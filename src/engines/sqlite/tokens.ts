/**
 * Tokens of one transaction, from the file's one counter. A batch takes one step of it for all the tokens it may need;
 * gaps are harmless.
 *
 * The counter never goes back, whatever is deleted and whatever the clock does, because it is read and raised under the
 * file's write lock (see `mint` in statements.ts).
 */
import { refusal } from '../../clients/sqlite/errors.ts'
import type { Scene } from './scene.ts'

export class Tokens {
  readonly #scene: Scene
  #next = 0
  #last = -1

  constructor(scene: Scene) {
    this.#scene = scene
  }

  /** The next one. `wanted`: how many this batch may still ask for, this one included. */
  next(wanted: number): number {
    if (this.#next > this.#last) this.#take(wanted)
    const token = this.#next
    this.#next += 1
    return token
  }

  /** The first of `count` tokens in a row. They stay where they are until `use` says so. */
  row(count: number): number {
    if (this.#last - this.#next + 1 < count) this.#take(count)
    return this.#next
  }

  /** So many of the row were used. */
  use(count: number): void {
    this.#next += count
  }

  #take(count: number): void {
    const { sql, epoch, file } = this.#scene
    const [row] = sql.mint.all(count, epoch)
    if (row === undefined) {
      throw refusal(
        `'${file}' has been taken over by another machine, or by this one after a restart: it serves the processes of one host`,
      )
    }
    this.#last = row.token
    this.#next = row.token - count + 1
  }
}
