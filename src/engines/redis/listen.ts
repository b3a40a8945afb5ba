/**
 * How news arrive: by messages that the scripts publish, and where none comes, by rechecks.
 *
 * There is one channel for each engine object, on a connection of its own (engines/shared/news-channel.ts). It has
 * messages for waiters, for holders and for observers. A waiter that hears nothing is rechecked in time
 * (engines/shared/recheck-timer.ts).
 */
import { RESERVED, type RedisNames } from '../../clients/redis/names.ts'
import type { RedisWire } from '../../clients/redis/wire.ts'
import type { Clock, Timer } from '../../core/clock.ts'
import type { News } from '../../core/engine.ts'
import { NewsChannel } from '../shared/news-channel.ts'
import { RecheckTimer } from '../shared/recheck-timer.ts'

export interface RedisListenerSetup {
  readonly wire: RedisWire
  readonly clock: Clock
  readonly names: RedisNames
  readonly engineId: string
  /** Replicas have to confirm grants. */
  readonly confirms: boolean
  /** Resolves when there is a connection. */
  readonly connected: () => Promise<void>
  /** See lua/watch.lua. */
  readonly register: RegisterObserver
}

export class RedisListener {
  readonly rechecks: RecheckTimer
  readonly observers: Observers
  readonly #setup: RedisListenerSetup
  #channel: NewsChannel | undefined
  #opening: Promise<void> | undefined
  #listener: ((news: News) => void) | undefined
  #closed = false

  constructor(setup: RedisListenerSetup) {
    const { clock, wire, register } = setup
    this.#setup = setup
    this.rechecks = new RecheckTimer(
      clock,
      () => this.#channel === undefined || wire.listen === undefined,
      (key, id) => this.#listener?.({ key, id }),
    )
    this.observers = new Observers(clock, register, { deaf: wire.listen === undefined })
  }

  /** `listener` is told all news until what is returned is disposed of, or another listener comes. */
  async subscribe(listener: (news: News) => void): Promise<AsyncDisposable> {
    this.#listener = listener
    await this.open()
    return {
      [Symbol.asyncDispose]: async () => {
        if (this.#listener !== listener) return
        this.#listener = undefined
        this.rechecks.stop()
      },
    }
  }

  /** Resolves when messages can arrive; rejects with the client's own error. */
  open(): Promise<void> {
    this.#opening ??= this.#open().catch((error: unknown) => {
      this.#opening = undefined
      throw error
    })
    return this.#opening
  }

  /** The server has sent a message to this process that had not arrived at `since`. If it never does, listen anew. */
  expect(since: number): void {
    this.#channel?.expect(since)
  }

  async close(): Promise<void> {
    this.#closed = true
    this.#listener = undefined
    this.rechecks.stop()
    this.observers.stop()
    await this.#channel?.[Symbol.asyncDispose]()
  }

  async #open(): Promise<void> {
    const { wire, clock, names, engineId, connected } = this.#setup
    await connected()
    const listener = {
      news: (news: News) => this.#heard(news),
      changed: (key: string) => this.observers.notify(key),
    }
    const channel = new NewsChannel(clock, {
      message: (text) => readMessages(text, names, listener),
      gap: () => this.#heard({ gap: true }),
    })
    if (wire.listen !== undefined) await channel.open(wire.listen, RESERVED + engineId)
    // Until now no message could arrive, and waiters were rechecked again and again.
    this.#channel = channel
    // The engine was closed meanwhile, when there was no channel to close yet.
    if (this.#closed) await channel[Symbol.asyncDispose]()
  }

  #heard(news: News): void {
    if ('id' in news) this.rechecks.forget(news.id)
    else this.observers.notifyAll()
    // A grant that the replicas have not confirmed is only a hint: the renewal that follows will have it confirmed.
    const unconfirmed = this.#setup.confirms && 'id' in news && news.standing?.state === 'held'
    this.#listener?.(unconfirmed ? { key: news.key, id: news.id } : news)
  }
}

// ---- messages ----
//
// What the scripts send to the channel of an engine: which waiter holds now, which entry was evicted, which waiter
// should look again, and which line an observer should look at. Messages are separated by NUL; each is
//
//     <id> <token, or - if it was evicted> <for how long it is held (ms)> <server key>
//     <id> ? 0 <server key>
//     ! - 0 <server key>
//
// Any client of the server may publish to the channel: a message that is none of these is ignored.

const TOKEN_AND_MS = /^\d+ \d+$/

/** Is told what messages say. */
export interface MessageListener {
  news(news: News): void
  /** A line that an observer watches may have changed. */
  changed(key: string): void
}

export function readMessages(text: string, names: RedisNames, listener: MessageListener): void {
  if (text.includes('\0')) for (const message of text.split('\0')) readMessage(message, names, listener)
  else readMessage(text, names, listener)
}

/** By hand, and not by a regular expression, because a waiter waits for just this. */
function readMessage(message: string, names: RedisNames, listener: MessageListener): void {
  const afterId = message.indexOf(' ')
  const afterToken = message.indexOf(' ', afterId + 1)
  const afterMs = message.indexOf(' ', afterToken + 1)
  if (afterId < 1 || afterToken < 0 || afterMs < 0) return
  const id = message.slice(0, afterId)
  const token = message.slice(afterId + 1, afterToken)
  const key = names.userKey(message.slice(afterMs + 1))
  if (id === '!') listener.changed(key)
  else if (token === '?') listener.news({ key, id })
  else if (token === '-') listener.news({ key, id, standing: { state: 'gone', why: 'evicted' } })
  else if (TOKEN_AND_MS.test(message.slice(afterId + 1, afterMs))) {
    const heldForMs = Number(message.slice(afterToken + 1, afterMs))
    listener.news({ key, id, standing: { state: 'held', token: BigInt(token), heldForMs } })
  }
}

// ---- observers ----

/** For how long the server remembers a registration. It is repeated three times as often. */
const WATCH_MS = 30_000
/** How often listeners are called where no messages can arrive. */
const POLL_MS = 500

/** Register for these keys, for so long; 0: no longer. Resolves with whether each was registered before. */
type RegisterObserver = (keys: readonly string[], ttlMs: number) => Promise<readonly boolean[]>

/**
 * Listeners that are called when a line may have changed, without having an entry in it.
 *
 * The server remembers for a while which engine objects watch a line, and sends them a message when it changes
 * (lua/watch.lua). So this process registers again and again. Where a message may have been missed (after a gap of the
 * channel, or when the server had forgotten the registration), listeners are called once too often rather than once too
 * rarely. Where no messages can arrive, all listeners are called now and then.
 */
class Observers {
  readonly #clock: Clock
  readonly #register: RegisterObserver
  readonly #deaf: boolean
  readonly #listeners = new Map<string, Set<() => void>>()
  #timer: Timer | undefined

  constructor(clock: Clock, register: RegisterObserver, options: { readonly deaf: boolean }) {
    this.#clock = clock
    this.#register = register
    this.#deaf = options.deaf
  }

  async add(key: string, listener: () => void): Promise<AsyncDisposable> {
    // A function of its own for each call: a user who watches twice with one listener watches twice.
    const notify = (): void => listener()
    const listeners = this.#listeners.get(key) ?? new Set()
    this.#listeners.set(key, listeners.add(notify))
    try {
      if (!this.#deaf) await this.#register([key], WATCH_MS)
    } catch (error) {
      this.#forget(key, notify)
      throw error
    }
    this.#arm()
    return {
      [Symbol.asyncDispose]: async () => {
        if (!this.#forget(key, notify) || this.#deaf) return
        // If it fails, the server forgets the registration in a while.
        await this.#register([key], 0).catch(() => undefined)
      },
    }
  }

  /** The line of that key may have changed. */
  notify(key: string): void {
    for (const notify of [...(this.#listeners.get(key) ?? [])]) notify()
  }

  notifyAll(): void {
    for (const key of [...this.#listeners.keys()]) this.notify(key)
  }

  stop(): void {
    this.#timer?.cancel()
    this.#timer = undefined
    this.#listeners.clear()
  }

  /** Answers whether that was the last listener for the key. */
  #forget(key: string, notify: () => void): boolean {
    const listeners = this.#listeners.get(key)
    if (!listeners?.delete(notify) || listeners.size > 0) return false
    return this.#listeners.delete(key)
  }

  #arm(): void {
    if (this.#timer !== undefined || this.#listeners.size === 0) return
    this.#timer = this.#clock.timer(this.#deaf ? POLL_MS : WATCH_MS / 3, () => {
      this.#timer = undefined
      if (this.#deaf) this.notifyAll()
      else void this.#again()
      this.#arm()
    })
  }

  async #again(): Promise<void> {
    const keys = [...this.#listeners.keys()]
    // What fails is tried again the next time.
    const known = await this.#register(keys, WATCH_MS).catch(() => [])
    for (const [index, key] of keys.entries()) if (known[index] === false) this.notify(key)
  }
}
