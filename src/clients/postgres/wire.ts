/**
 * What the engine asks of a client, whichever it is. The adapters beside this file make it of pg and of postgres.js.
 *
 * A wire sends a statement once, on whichever connection is free, and gives the connection back. It never sends late:
 * what still waits for a connection when its time is up is dropped.
 */

/** How long one statement may take. */
export interface Limits {
  /** Until there is a connection for it. */
  readonly connectMs: number
  /** From then on until it is answered. */
  readonly answerMs: number
}

export interface Wire {
  /** As in error messages: `pg`, `postgres.js`. */
  readonly name: string
  /**
   * The one value that a statement answers. Rejects with the client's own error; with `NotSent` if nothing was sent.
   */
  ask(text: string, values: readonly string[], limits: Limits): Promise<unknown>
  /** Several statements in one message, without parameters. */
  run(text: string, limits: Limits): Promise<unknown>
  /** Listen to a channel, on one connection that stays. Undefined: this client cannot. */
  readonly listen?: ((channel: string, ears: Ears) => Promise<Listening>) | undefined
  /** Let go of the client: close it if it is ours. */
  close(): Promise<void>
}

export interface Ears {
  heard(payload: string): void
  /** The connection was lost, or it is there again: something may have been missed. */
  gap(): void
}

export interface Listening {
  /** Nothing arrives any more: make a new connection. */
  restart(): void
  close(): Promise<void>
}

/** No answer in time. Nobody knows what became of it. */
export class Late extends Error {
  override readonly name = 'Late'

  constructor() {
    super('no answer in time')
  }
}

/** Clients that somebody listens to for good. */
const listened = new WeakSet<object>()

/**
 * Without a listener for its errors, a client of pg ends the process at the first blip. Ours stays when the engine is
 * closed: whoever brought the client may have relied on it.
 */
export function neverCrash(client: { on(event: 'error', listener: (error: Error) => void): unknown }): void {
  if (listened.has(client)) return
  listened.add(client)
  client.on('error', () => undefined)
}
