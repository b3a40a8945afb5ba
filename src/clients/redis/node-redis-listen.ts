/**
 * A connection of node-redis that only listens: a duplicate of the client, or of one node of a Cluster.
 *
 * node-redis makes it anew when it breaks, and subscribes again before it says that it is ready: that is when we tell
 * of the gap.
 */

import type { Clock, Timer } from '../../core/clock.ts'
import type { ChannelListener, ListenConnection } from '../shared/listen.ts'

/** What every client of node-redis has. */
export interface NodeRedisCommon {
  readonly isOpen: boolean
  evalSha(...args: never[]): unknown
  on(event: string, listener: (...args: unknown[]) => void): unknown
  off(event: string, listener: (...args: unknown[]) => void): unknown
}

/** What can listen, and be made a second time for it. */
export interface NodeRedisListener extends NodeRedisCommon {
  duplicate(): NodeRedisListener
  connect(): Promise<unknown>
  /** From now on it does not keep the process alive, also when it connects again. */
  unref?(): void
  subscribe(channel: string, listener: (message: string) => void): Promise<unknown>
  /** Version 5 and later; before that, `disconnect`. */
  destroy?(): void
  disconnect?(): unknown
}

/** A connection on which no subscription stands after this long is as good as refused. */
const OPEN_LIMIT_MS = 5000
const RETRY_MS = 1000

export class NodeRedisListenConnection implements ListenConnection {
  readonly #make: () => Promise<NodeRedisListener>
  readonly #clock: Clock
  readonly #channel: string
  readonly #listener: ChannelListener
  #connection: NodeRedisListener | undefined
  #timer: Timer | undefined
  #closed = false

  static async open(
    make: () => Promise<NodeRedisListener>,
    clock: Clock,
    channel: string,
    listener: ChannelListener,
  ): Promise<NodeRedisListenConnection> {
    const listening = new NodeRedisListenConnection(make, clock, channel, listener)
    try {
      await listening.#connectInTime({ giveUpOnError: true })
    } catch (error) {
      await listening.close()
      throw error
    }
    return listening
  }

  private constructor(
    make: () => Promise<NodeRedisListener>,
    clock: Clock,
    channel: string,
    listener: ChannelListener,
  ) {
    this.#make = make
    this.#clock = clock
    this.#channel = channel
    this.#listener = listener
  }

  restart(): void {
    this.#drop()
    this.#connectInTime({ giveUpOnError: false }).then(
      () => this.#listener.gap(),
      () => this.#later(),
    )
  }

  async close(): Promise<void> {
    this.#closed = true
    this.#timer?.cancel()
    this.#drop()
  }

  /** The client goes on trying after an error, and waits for ever for the answers to its first commands. */
  #connectInTime({ giveUpOnError }: { readonly giveUpOnError: boolean }): Promise<void> {
    return new Promise((resolve, reject) => {
      const limit = this.#clock.timer(OPEN_LIMIT_MS, () =>
        reject(new Error(`no connection to listen on within ${OPEN_LIMIT_MS} ms`)),
      )
      this.#connect(giveUpOnError ? reject : () => undefined)
        .then(resolve, reject)
        .finally(() => limit.cancel())
    })
  }

  async #connect(failed: (error: Error) => void): Promise<void> {
    const connection = await this.#make()
    if (this.#closed) return
    this.#connection = connection
    let subscribed = false
    // Without a listener, an error would end the process.
    connection.on('error', (error) => failed(error as Error))
    connection.on('ready', () => {
      if (subscribed) this.#listener.gap()
    })
    connection.unref?.()
    await connection.connect()
    await connection.subscribe(this.#channel, (message) => this.#listener.message(message))
    subscribed = true
  }

  #later(): void {
    if (this.#closed) return
    this.#timer = this.#clock.timer(RETRY_MS, () => this.restart())
  }

  #drop(): void {
    const connection = this.#connection
    this.#connection = undefined
    if (connection === undefined || !connection.isOpen) return
    if (connection.destroy !== undefined) connection.destroy()
    else void connection.disconnect?.()
  }
}
