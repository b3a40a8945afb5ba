/**
 * What the engine asks of a client, whichever it is. The adapters beside this file make it of ioredis, node-redis and valkey-glide.
 *
 * A wire sends what it is given, once, and tells what came back. It never queues for later: a lock that is taken seconds after somebody asked for it is taken
 * for nobody.
 */
import type { Clock, Timer } from '../../../core/clock.ts'

export interface Wire {
  /** As in error messages: `ioredis`, `node-redis`, `valkey-glide`. */
  readonly name: string
  /** Keys live in slots, and slots on several servers. */
  readonly cluster: boolean
  /** What the client itself puts before every key; '' if nothing. */
  readonly keyPrefix: string
  /** What is sent now goes out now. */
  readonly ready: boolean
  /** What the client last complained of; undefined when all is well. */
  readonly trouble: Error | undefined
  /** Called whenever `ready` or `trouble` may have changed. */
  onChange: () => void
  /**
   * Send a command. `key` says where to, in Cluster; `signal` takes back what the client has not sent yet, where the client can do that. Rejects with the
   * client's own error, or with `ConnectionLost`.
   */
  send(command: string, words: readonly string[], key?: string, signal?: AbortSignal): Promise<unknown>
  /** Each server that has keys of its own, for SCAN and INFO. */
  servers(): Promise<readonly Server[]>
  /** Listen to a channel on a connection that is for nothing else. Undefined: this client cannot. */
  readonly listen?: (channel: string, ears: Ears) => Promise<Listening>
  /** Let go of the client: close it if it is ours. */
  close(): Promise<void>
}

/** One server, by itself. */
export interface Server {
  send(command: string, words: readonly string[]): Promise<unknown>
}

export interface Ears {
  heard(message: string): void
  /** The connection was lost and is there again: something may have been missed. */
  gap(): void
}

export interface Listening {
  /** Nothing arrives any more: make a new connection. */
  restart(): void
  close(): Promise<void>
}

/** Clients that somebody listens to for good. */
const listened = new WeakSet<object>()

/**
 * Without a listener for its errors, node-redis ends the process at the first blip, and ioredis writes to the console. Ours stays when the engine is closed: whoever
 * brought the client may have relied on it.
 */
export function neverCrash(client: { on(event: string, listener: () => void): unknown }): void {
  if (listened.has(client)) return
  listened.add(client)
  client.on('error', () => undefined)
}

/** The connection ended while a command was under way. Nobody knows whether it was executed. */
export class ConnectionLost extends Error {
  override readonly name = 'ConnectionLost'
}

/** A server that says nothing for this long, though asked, is given up. */
const SILENCE_MS = 2000

/**
 * Commands under way, so that they can be failed at once when their connection ends: clients keep some of them for ever, and send others again. And so that
 * somebody notices when a connection is dead without having ended.
 */
export class UnderWay {
  readonly #clock: Clock
  readonly #silent: (() => void) | undefined
  /** How to fail each, and since when it is under way; the oldest first. */
  readonly #commands = new Map<(error: Error) => void, number>()
  /** One timer watches all commands. It is left standing when they are answered, for the next ones, and ends when it finds none. */
  #watch: Timer | undefined

  /** `silent` is called when nothing has been answered for too long. */
  constructor(clock: Clock, silent?: () => void) {
    this.#clock = clock
    this.#silent = silent
  }

  track(reply: Promise<unknown>): Promise<unknown> {
    return new Promise((resolve, reject) => {
      this.#commands.set(reject, this.#clock.now())
      if (this.#silent !== undefined) this.#watch ??= this.#clock.timer(SILENCE_MS, () => this.#look())
      reply.then(
        (value) => {
          this.#commands.delete(reject)
          resolve(value)
        },
        (error: unknown) => {
          this.#commands.delete(reject)
          reject(error)
        },
      )
    })
  }

  /** The connection has ended. */
  lost(cause: unknown): void {
    for (const reject of this.#commands.keys()) reject(new ConnectionLost('the connection ended before the answer came', { cause }))
    this.#commands.clear()
  }

  stop(): void {
    this.#watch?.cancel()
    this.#watch = undefined
  }

  #look(): void {
    this.stop()
    const [oldest] = this.#commands.values()
    if (oldest === undefined) return
    const ageMs = this.#clock.now() - oldest
    if (ageMs >= SILENCE_MS) this.#silent?.()
    this.#watch = this.#clock.timer(ageMs >= SILENCE_MS ? SILENCE_MS : SILENCE_MS - ageMs, () => this.#look())
  }
}
