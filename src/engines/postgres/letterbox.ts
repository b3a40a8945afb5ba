/**
 * Where letters arrive: who holds now, and who was evicted. One channel for each engine object, on a connection of its
 * own.
 *
 * A channel has no memory; a connection can be dead without anybody noticing; and behind a pooler that lends a
 * connection for one transaction only, LISTEN succeeds and nothing is ever heard. So hearing is believed only when
 * something was heard: each beat that renews waiters sends an empty letter to ourselves. Until it arrives we are deaf,
 * and waiters poll; if it does not arrive, the connection is made anew. Whatever may have been missed is a `gap`.
 */

import type { Listening, Wire } from '../../clients/postgres/wire.ts'
import type { Clock, Timer } from '../../core/clock.ts'
import type { News } from '../../core/engine.ts'
import { letterOf } from './replies.ts'

/** How long a letter may take. */
const POST_MS = 2000

export class Letterbox implements AsyncDisposable {
  readonly #clock: Clock
  readonly #news: (news: News) => void
  #listening: Listening | undefined
  #heardAt = Number.NEGATIVE_INFINITY
  #expecting: Timer | undefined
  /** Nothing was heard, ever or since the connection was lost. */
  deaf = true

  constructor(clock: Clock, news: (news: News) => void) {
    this.#clock = clock
    this.#news = news
  }

  async open(listen: NonNullable<Wire['listen']>, channel: string): Promise<void> {
    this.#listening = await listen(channel, {
      heard: (payload) => this.#heard(payload),
      gap: () => this.#gap(),
    })
  }

  /** A letter to ourselves was sent after `since`. */
  expect(since: number): void {
    if (this.#listening === undefined || this.#expecting !== undefined || this.#heardAt >= since) return
    this.#expecting = this.#clock.timer(POST_MS, () => {
      this.#expecting = undefined
      if (this.#heardAt >= since) return
      this.#gap()
      this.#listening?.restart()
    })
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#expecting?.cancel()
    await this.#listening?.close()
  }

  #gap(): void {
    this.deaf = true
    this.#news({ gap: true })
  }

  #heard(payload: string): void {
    this.#heardAt = this.#clock.now()
    this.#expecting?.cancel()
    this.#expecting = undefined
    this.deaf = false
    const news = payload === '' ? undefined : letterOf(payload)
    if (news !== undefined) this.#news(news)
  }
}
