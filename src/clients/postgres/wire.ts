/**
 * What the engine asks of a client, whichever it is. The adapters beside this file make it of pg and of postgres.js.
 *
 * A wire sends a statement once, on whichever connection is free, and gives the connection back. It never sends late:
 * what still waits for a connection when its time is up is dropped.
 */
import type { ChannelListener, ListenConnection } from '../shared/listen.ts'

/** How long one statement may take. */
export interface PostgresCallLimits {
  /** Until there is a connection for it. */
  readonly connectMs: number
  /** From then on until it is answered. */
  readonly answerMs: number
}

export interface PostgresWire {
  /** As in error messages: `pg`, `postgres.js`. */
  readonly name: string
  /**
   * The one value that a statement answers. Rejects with the client's own error; with `NotSent` if nothing was sent.
   */
  ask(text: string, values: readonly string[], limits: PostgresCallLimits): Promise<unknown>
  /** Several statements in one message, without parameters. */
  run(text: string, limits: PostgresCallLimits): Promise<unknown>
  /** Listen to a channel, on one connection that stays. Undefined: this client cannot. */
  readonly listen?: ((channel: string, listener: ChannelListener) => Promise<ListenConnection>) | undefined
  /** Let go of the client: close it if it is ours. */
  close(): Promise<void>
}
