/** The connections on which the servers of a Redlock send signals to this process: one for each server. */
import type { ChannelListener, ListenConnection } from '../../clients/shared/listen.ts'
import { majorityOf } from './quorum-decision.ts'
import type { RedlockServer } from './server.ts'

export class RedlockListener {
  readonly #servers: readonly RedlockServer[]
  readonly #channel: string
  readonly #listenerFor: (server: number) => ChannelListener
  /** By index of the server: open, or being opened. */
  readonly #connections = new Map<number, Promise<ListenConnection>>()
  readonly #listening = new Set<number>()
  #closed = false

  constructor(servers: readonly RedlockServer[], channel: string, listenerFor: (server: number) => ChannelListener) {
    this.#servers = servers
    this.#channel = channel
    this.#listenerFor = listenerFor
  }

  /** Fewer servers than a majority can send signals. */
  get deaf(): boolean {
    return this.#listening.size < majorityOf(this.#servers.length)
  }

  /** Listens on every server that can be reached. On the others, `openOn` is called when they come back. */
  openAll(): readonly Promise<ListenConnection>[] {
    return this.#servers.flatMap((server, index) => (server.wire.ready ? this.openOn(index) : []))
  }

  /** One promise, or none where the client cannot listen. */
  openOn(index: number): readonly Promise<ListenConnection>[] {
    const known = this.#connections.get(index)
    if (known !== undefined) return [known]
    const { wire } = this.#servers[index] as RedlockServer
    // After `close`, a connection that is opened now would stay open.
    if (wire.listen === undefined || this.#closed) return []
    const opening = wire.listen(this.#channel, this.#listenerFor(index))
    opening.then(
      () => this.#listening.add(index),
      // Tried again when the server comes back.
      () => this.#connections.delete(index),
    )
    this.#connections.set(index, opening)
    return [opening]
  }

  /** A connection that is still being opened is closed when it is open. */
  close(): void {
    this.#closed = true
    for (const opening of this.#connections.values()) opening.then((open) => open.close()).catch(() => undefined)
  }
}
