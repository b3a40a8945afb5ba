/**
 * Where messages for this process arrive: which waiter holds now, and which entry was evicted. One channel for each
 * engine object, on a connection of its own.
 *
 * A channel has no memory; a connection can be dead without anything that tells; and behind a pooler that lends a
 * connection for one transaction only, listening succeeds and nothing ever arrives. So the channel is believed only
 * once something was heard: each beat that renews waiters sends an empty message to this process itself. Until it
 * arrives the channel is deaf, and waiters poll; if it does not arrive, the connection is made anew. Whatever may have
 * been missed is a `gap`.
 */
import type { ChannelListener, Listen, ListenConnection } from '../../clients/shared/listen.ts'
import type { Clock, Timer } from '../../core/clock.ts'

/** How long a message may take. */
const ARRIVAL_MS = 2000

export class NewsChannel implements AsyncDisposable {
  readonly #clock: Clock
  readonly #listener: ChannelListener
  #connection: ListenConnection | undefined
  #heardAt = Number.NEGATIVE_INFINITY
  #expecting: Timer | undefined
  /** Nothing was heard, ever or since the connection was lost. */
  deaf = true

  constructor(clock: Clock, listener: ChannelListener) {
    this.#clock = clock
    this.#listener = listener
  }

  async open(listen: Listen, channel: string): Promise<void> {
    this.#connection = await listen(channel, {
      message: (text) => this.#message(text),
      gap: () => this.#gap(),
    })
  }

  /** A message to this process itself was sent after `since`. */
  expect(since: number): void {
    if (this.#connection === undefined || this.#expecting !== undefined || this.#heardAt >= since) return
    this.#expecting = this.#clock.timer(ARRIVAL_MS, () => {
      this.#expecting = undefined
      if (this.#heardAt >= since) return
      this.#gap()
      this.#connection?.restart()
    })
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#expecting?.cancel()
    await this.#connection?.close()
  }

  #gap(): void {
    this.deaf = true
    this.#listener.gap()
  }

  #message(text: string): void {
    this.#heardAt = this.#clock.now()
    this.#expecting?.cancel()
    this.#expecting = undefined
    this.deaf = false
    if (text !== '') this.#listener.message(text)
  }
}
