/**
 * How news arrive: by messages that the scripts publish, and where none comes, by rechecks.
 *
 * There is one channel for each engine object, on a connection of its own (engines/shared/news-channel.ts). It has
 * messages for waiters, for holders and for observers. A waiter that hears nothing is rechecked in time
 * (engines/shared/recheck-timer.ts).
 */
import { RESERVED, type RedisNames } from '../../clients/redis/names.ts'
import type { RedisWire } from '../../clients/redis/wire.ts'
import type { Clock } from '../../core/clock.ts'
import type { News } from '../../core/engine.ts'
import { NewsChannel } from '../shared/news-channel.ts'
import { RecheckTimer } from '../shared/recheck-timer.ts'
import { readMessages } from './codec.ts'
import { RedisObservers, type RegisterObserver } from './observers.ts'

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
  readonly observers: RedisObservers
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
    this.observers = new RedisObservers(clock, register, { deaf: wire.listen === undefined })
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
