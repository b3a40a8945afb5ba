/**
 * The channels on which the servers of a Redlock send signals to this process: one for each server.
 *
 * A connection can be dead without anything that tells. So, while there are waiters, a server that has sent nothing for
 * a while is asked to send an empty message; if that does not arrive, the connection is made anew.
 */
import type { ChannelListener } from '../../clients/shared/listen.ts'
import type { Clock } from '../../core/clock.ts'
import { NewsChannel } from '../shared/news-channel.ts'
import { majorityOf } from './quorum-decision.ts'
import type { RedlockServer } from './server.ts'

/** How long a server may have sent nothing before it is asked to. */
const QUIET_MS = 1000

export class RedlockListener {
  readonly #servers: readonly RedlockServer[]
  readonly #clock: Clock
  readonly #channel: string
  readonly #listenerFor: (server: number) => ChannelListener
  /** By index of the server: open, or being opened. */
  readonly #opening = new Map<number, Promise<NewsChannel>>()
  readonly #open = new Map<number, NewsChannel>()
  /** When the servers that were quiet were last asked to send something. */
  #askedAt = Number.NEGATIVE_INFINITY
  #closed = false

  constructor(
    servers: readonly RedlockServer[],
    clock: Clock,
    channel: string,
    listenerFor: (server: number) => ChannelListener,
  ) {
    this.#servers = servers
    this.#clock = clock
    this.#channel = channel
    this.#listenerFor = listenerFor
  }

  /** Fewer servers than a majority can send signals. */
  get deaf(): boolean {
    return this.#open.size < majorityOf(this.#servers.length)
  }

  /** Listens on every server that can be reached. On the others, `openOn` is called when they come back. */
  openAll(): readonly Promise<NewsChannel>[] {
    return this.#servers.flatMap((server, index) => (server.wire.ready ? this.openOn(index) : []))
  }

  /** One promise, or none where the client cannot listen. */
  openOn(index: number): readonly Promise<NewsChannel>[] {
    const known = this.#opening.get(index)
    if (known !== undefined) return [known]
    const { wire } = this.#servers[index] as RedlockServer
    // After `close`, a connection that is opened now would stay open.
    if (wire.listen === undefined || this.#closed) return []
    const channel = new NewsChannel(this.#clock, this.#listenerFor(index))
    const opening = channel.open(wire.listen, this.#channel).then(() => channel)
    opening.then(
      () => this.#open.set(index, channel),
      // Tried again when the server comes back.
      () => this.#opening.delete(index),
    )
    this.#opening.set(index, opening)
    return [opening]
  }

  /** Find out whether signals still arrive from the servers that have sent none for a while. */
  check(): void {
    const now = this.#clock.now()
    if (now < this.#askedAt + QUIET_MS) return
    this.#askedAt = now
    for (const [index, channel] of this.#open) {
      const { wire } = this.#servers[index] as RedlockServer
      if (!wire.ready || channel.heardSince(now - QUIET_MS)) continue
      // A server that does not answer is none of our business here: its main connection will tell.
      wire.send('PUBLISH', [this.#channel, '']).then(
        () => channel.expect(now),
        () => undefined,
      )
    }
  }

  /** A connection that is still being opened is closed when it is open. */
  close(): void {
    this.#closed = true
    for (const opening of this.#opening.values())
      opening.then((open) => open[Symbol.asyncDispose]()).catch(() => undefined)
  }
}
