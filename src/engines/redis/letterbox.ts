/**
 * Where the scripts' letters arrive: who holds now, and who was evicted. One channel for each engine object, on a connection of its own.
 *
 * A channel has no memory, and a connection can be dead without anybody noticing. So a beat that renews waiters sends an empty letter to ourselves, and if that
 * does not arrive, the connection is made anew. Whatever may have been missed is a `gap`.
 */
import type { Clock, Timer } from '../../core/clock.ts'
import type { News } from '../../core/engine.ts'
import type { Listening, Wire } from './wires/wire.ts'

/** How long a letter may take. */
const POST_MS = 2000
const LETTER = /^(\S+) (-|\d+) (\d+) (.+)$/s

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
   * Letters, separated by NUL; each is `<id> <token, or - if it was evicted> <for how long it is held (ms)> <K>`, or `! - 0 <K>`. Anybody may publish: what makes no
   * sense is nothing.
   */
  #heard(message: string): void {
    this.#heardAt = this.#clock.now()
    this.#expecting?.cancel()
    this.#expecting = undefined
    for (const letter of message.split('\0')) {
      const [, id, token, heldForMs, K] = LETTER.exec(letter) ?? []
      if (id === undefined || token === undefined || K === undefined) continue
      const key = this.#keyOf(K)
      if (id === '!') this.#reader.changed(key)
      else if (token === '-') this.#reader.news({ key, id, standing: { state: 'gone', why: 'evicted' } })
      else this.#reader.news({ key, id, standing: { state: 'held', token: BigInt(token), heldForMs: Number(heldForMs) } })
    }
  }
}
