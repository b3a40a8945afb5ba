/**
 * Where the scripts' letters arrive: who holds now, and who was evicted. One channel for each engine object, on a
 * connection of its own.
 *
 * A channel has no memory, and a connection can be dead without anybody noticing. So a beat that renews waiters sends
 * an empty letter to ourselves, and if that does not arrive, the connection is made anew. Whatever may have been missed
 * is a `gap`.
 */

import type { Listening, Wire } from '../../clients/redis/wire.ts'
import type { Clock, Timer } from '../../core/clock.ts'
import type { News } from '../../core/engine.ts'

/** How long a letter may take. */
const POST_MS = 2000
const TOKEN_AND_MS = /^\d+ \d+$/

export interface Reader {
  news(news: News): void
  /** A line that we watch may have changed. */
  changed(key: string): void
}

export class Letterbox implements AsyncDisposable {
  readonly #clock: Clock
  readonly #keyOf: (K: string) => string
  readonly #reader: Reader
  #listening: Listening | undefined
  #heardAt = Number.NEGATIVE_INFINITY
  #expecting: Timer | undefined

  constructor(clock: Clock, keyOf: (K: string) => string, reader: Reader) {
    this.#clock = clock
    this.#keyOf = keyOf
    this.#reader = reader
  }

  async open(wire: Wire, channel: string): Promise<void> {
    this.#listening = await wire.listen?.(channel, {
      heard: (message) => this.#heard(message),
      gap: () => this.#reader.news({ gap: true }),
    })
  }

  /** A letter to ourselves was sent after `since`. */
  expect(since: number): void {
    if (this.#listening === undefined || this.#expecting !== undefined || this.#heardAt >= since) return
    this.#expecting = this.#clock.timer(POST_MS, () => {
      this.#expecting = undefined
      if (this.#heardAt < since) this.#listening?.restart()
    })
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#expecting?.cancel()
    await this.#listening?.close()
  }

  /**
   * Letters, separated by NUL; each is `<id> <token, or - if it was evicted> <for how long it is held (ms)> <K>`, or `!
   * - 0 <K>`. Anybody may publish: what makes no sense is nothing.
   */
  #heard(message: string): void {
    this.#heardAt = this.#clock.now()
    this.#expecting?.cancel()
    this.#expecting = undefined
    if (message.includes('\0')) for (const letter of message.split('\0')) this.#read(letter)
    else this.#read(message)
  }

  /** By hand, because somebody waits for just this. */
  #read(letter: string): void {
    const afterId = letter.indexOf(' ')
    const afterToken = letter.indexOf(' ', afterId + 1)
    const afterMs = letter.indexOf(' ', afterToken + 1)
    if (afterId < 1 || afterToken < 0 || afterMs < 0) return
    const id = letter.slice(0, afterId)
    const token = letter.slice(afterId + 1, afterToken)
    const key = this.#keyOf(letter.slice(afterMs + 1))
    if (id === '!') this.#reader.changed(key)
    else if (token === '-') this.#reader.news({ key, id, standing: { state: 'gone', why: 'evicted' } })
    else if (TOKEN_AND_MS.test(letter.slice(afterId + 1, afterMs))) {
      const heldForMs = Number(letter.slice(afterToken + 1, afterMs))
      this.#reader.news({ key, id, standing: { state: 'held', token: BigInt(token), heldForMs } })
    }
  }
}
