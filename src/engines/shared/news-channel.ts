/**
 * Where messages for this process arrive: which waiter holds now, and which entry was evicted. One channel for each
 * engine object, on a connection of its own.
 *
 * A channel has no memory; a connection can be dead without anything that tells; and behind a pooler that lends a
 * connection for one transaction only, listening succeeds and nothing ever arrives. So the channel is believed only
 * once something was heard: each beat that renews waiters sends an empty message to this process itself. Until it
 * arrives the channel is deaf, and waiters poll; if it does not arrive, the connection is made anew. Likewise if an
 * answer shows that a message must have been sent. Whatever may have been missed is a `gap`.
 */
import type { ChannelListener, Listen, ListenConnection } from '../../clients/shared/listen.ts'
import { RetryPause } from '../../clients/shared/retry-pause.ts'
import type { Clock, Timer } from '../../core/clock.ts'

/** How long a message may take. */
const ARRIVAL_MS = 2000

export class NewsChannel implements AsyncDisposable {
  readonly #clock: Clock
  readonly #listener: ChannelListener
  /** Before a connection that could not be had is tried for again. */
  readonly #retryPause = new RetryPause({ firstMs: 50, longestMs: 2000 })
  #connection: ListenConnection | undefined
  #heardAt = Number.NEGATIVE_INFINITY
  #expecting: Timer | undefined
  /** Set while there is no connection, and one is tried for later. */
  #retry: Timer | undefined
  #openAgain: (() => void) | undefined
  #closed = false
  /** Nothing was heard, ever or since the connection was lost. */
  deaf = true

  constructor(clock: Clock, listener: ChannelListener) {
    this.#clock = clock
    this.#listener = listener
  }

  async open(listen: Listen, channel: string): Promise<void> {
    const connection = await listen(channel, {
      message: (text) => this.#message(text),
      gap: () => this.#gap(),
    })
    if (this.#closed) await connection.close()
    else this.#connection = connection
  }

  /**
   * The same where a server may have no connection to spare: it is tried for again and again, and until it is had the
   * channel is deaf. Rejects only if time does not mend the error.
   */
  async openOrLater(listen: Listen, channel: string, isLasting: (error: unknown) => boolean): Promise<void> {
    this.#openAgain = () => {
      this.#retry = this.#clock.timer(this.#retryPause.next(), () => {
        this.open(listen, channel).then(
          () => this.#gap(),
          () => {
            if (!this.#closed) this.#openAgain?.()
          },
        )
      })
    }
    try {
      await this.open(listen, channel)
    } catch (error) {
      if (isLasting(error)) throw error
      if (!this.#closed) this.#openAgain()
    }
  }

  /** A call needs a connection more than the channel does: give it up for a while. False if there is none to give. */
  async makeRoom(): Promise<boolean> {
    const connection = this.#connection
    if (connection === undefined || this.#openAgain === undefined) return false
    this.#connection = undefined
    this.#gap()
    this.#retryPause.skipToLongest()
    this.#openAgain()
    await connection.close()
    return true
  }

  /** Whether anything has arrived at `since` or after it. */
  heardSince(since: number): boolean {
    return this.#heardAt >= since
  }

  /** A message to this process was sent that had not arrived at `since`. */
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
    this.#closed = true
    this.#expecting?.cancel()
    this.#retry?.cancel()
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
