/** A channel on which a server sends messages to this process, on a connection that stays: types only. */

/** Who is told what arrives on a channel. */
export interface ChannelListener {
  message(text: string): void
  /** The connection was lost, or it is there again: something may have been missed. */
  gap(): void
}

/** The connection that listens. */
export interface ListenConnection {
  /** Nothing arrives any more: make a new connection. */
  restart(): void
  close(): Promise<void>
}

/** Listen to `channel`, on one connection that stays. */
export type Listen = (channel: string, listener: ChannelListener) => Promise<ListenConnection>
