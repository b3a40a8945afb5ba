/** How the servers of a Redlock wake a waiter: the channels on which signals arrive, and what follows from them. */
import type { ChannelListener } from '../../clients/shared/listen.ts'
import type { Chance, Clock } from '../../core/clock.ts'
import type { Place } from '../../core/engine.ts'
import { NewsChannel } from '../shared/news-channel.ts'
import { RecheckTimer } from '../shared/recheck-timer.ts'
import { majorityOf, type RefusalSummary } from './quorum-decision.ts'
import type { RedlockServer } from './server.ts'

/** How long a server may have sent nothing before it is asked to. */
const QUIET_MS = 1000

/**
 * The channels on which the servers send signals to this process: one for each server.
 *
 * A connection can be dead without anything that tells. So, while there are waiters, a server that has sent nothing for
 * a while is asked to send an empty message; if that does not arrive, the connection is made anew.
 */
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

/** How long the signals of the other servers may take. */
const OTHERS_MS = 10
/** Entries that have split the servers try again within this time, at first. */
const SPLIT_MS = 15

export interface RetrySignalsOptions {
  /** How many servers there are. */
  readonly servers: number
  readonly clock: Clock
  readonly chance: Chance
  /** Whether signals cannot arrive, because too few servers are listened to. */
  readonly deaf: () => boolean
  /** Whether that entry is one of this process that has not left. */
  readonly isOurs: (id: string) => boolean
  /** Tells a waiter to try again. */
  readonly retry: (key: string, id: string) => void
}

/**
 * When a waiter tries again. A signal is only a hint: a waiter that it wakes has to win a majority like every other.
 *
 * A release signals the first waiter, on every server. The signal of the first server arrives before the other servers
 * have freed the key. So a waiter tries when a majority has signalled, or a moment after the first signal. A waiter
 * that gets no signal tries when the holder's time is over. Entries that came at the same moment, and have taken some
 * servers each, try again after a random moment. A stranger signals nothing, so the key is polled behind it.
 */
export class RetrySignals {
  readonly #rechecks: RecheckTimer
  readonly #chance: Chance
  readonly #most: number
  readonly #isOurs: (id: string) => boolean
  readonly #retry: (key: string, id: string) => void
  /** By id of a waiter: which servers have signalled. */
  readonly #signalled = new Map<string, Set<number>>()

  constructor({ servers, clock, chance, deaf, isOurs, retry }: RetrySignalsOptions) {
    this.#most = majorityOf(servers)
    this.#chance = chance
    this.#isOurs = isOurs
    this.#retry = retry
    this.#rechecks = new RecheckTimer(clock, deaf, (key, id) => this.#wake(key, id))
  }

  /** The entry waits; `summary` is what the servers have replied. */
  schedule({ key, id, ttlMs }: Place, { split, stranger, next, recheckMs }: RefusalSummary): void {
    // A signal that came while the waiter asked is newer than the replies: it is about to try again.
    if (this.#signalled.has(id)) return
    // Entries that have split the servers hold nothing, and no release will signal them: they try by themselves.
    const place = split || stranger ? 'stranger' : next ? 'first' : 'behind'
    const delayMs = split ? SPLIT_MS * this.#chance.fraction() : recheckMs
    this.#rechecks.schedule({ key, id, ttlMs, recheckMs: delayMs, place })
  }

  /** Whether the entry waits, and has got no signal yet. */
  awaits(id: string): boolean {
    return this.#rechecks.has(id) && !this.#signalled.has(id)
  }

  /** How many entries are remembered. */
  get size(): number {
    return this.#rechecks.size + this.#signalled.size
  }

  /** The entry waits no longer. */
  forget(id: string): void {
    this.#signalled.delete(id)
    this.#rechecks.forget(id)
  }

  /**
   * A signal: `<id> <serverKey>`. Any client can publish on our channel, so that other messages are ignored. So is the
   * signal of a slow server for an entry that has left meanwhile.
   */
  received(server: number, message: string, keyOf: (serverKey: string) => string): void {
    const space = message.indexOf(' ')
    if (space < 1) return
    const [id, key] = [message.slice(0, space), keyOf(message.slice(space + 1))]
    if (!this.#isOurs(id)) return
    const servers = this.#signalled.get(id) ?? new Set()
    this.#signalled.set(id, servers.add(server))
    if (servers.size >= this.#most) {
      this.#rechecks.forget(id)
      this.#wake(key, id)
    } else {
      const delayMs = OTHERS_MS * (1 + this.#chance.fraction())
      this.#rechecks.schedule({ key, id, ttlMs: 0, recheckMs: delayMs, place: 'first' })
    }
  }

  stop(): void {
    this.#signalled.clear()
    this.#rechecks.stop()
  }

  /** The recheck timer keeps what it knows of the waiter: how often it was woken in vain says when it is woken next. */
  #wake(key: string, id: string): void {
    this.#signalled.delete(id)
    this.#retry(key, id)
  }
}
