/**
 * What engines and guards ask of a client, whichever it is. The adapters beside this file make it of ioredis,
 * node-redis and valkey-glide.
 *
 * A wire sends what it is given, once, and tells what came back. It never queues for later: seconds after a lock was
 * asked for, the caller has given up, and a lock that is taken then is in the way of others.
 */

import type { Clock, Timer } from '../../core/clock.ts'
import type { NamedFinding } from '../../core/finding-names.ts'
import { KeepAlive } from '../../core/keep-alive.ts'
import type { ChannelListener, ListenConnection } from '../shared/listen.ts'

export interface RedisWire {
  /** As in error messages: `ioredis`, `node-redis`, `valkey-glide`. */
  readonly name: string
  /** Keys live in slots, and slots on several servers. */
  readonly cluster: boolean
  /** All commands go to one server, on one connection, in order. */
  readonly inOrder: boolean
  /** A plain command that reads may go to a replica, which knows less than the server that scripts run on. */
  readonly readsReplicas?: boolean
  /** Counts the connections so far: two answers with the same number before and after came on one. */
  readonly connection: number
  /** What the client itself puts before every key; '' if nothing. */
  readonly keyPrefix: string
  /** What is sent now goes out now. */
  readonly ready: boolean
  /** What the client last complained of; undefined when all is well. */
  readonly trouble: Error | undefined
  /** What about the client itself weakens a promise. */
  readonly finding?: NamedFinding
  /** Called whenever `ready` or `trouble` may have changed. */
  onChange: () => void
  /** To be told of what is asked and answered, where a connection that is silent is ours to end. */
  readonly silence?: SilenceCheck
  /** Send a command. `key` says where to, in Cluster. Rejects with the client's own error, or with `ConnectionLost`. */
  send(command: string, words: readonly string[], key?: string): Promise<unknown>
  /** Each server that has keys of its own, for SCAN and INFO. */
  servers(): Promise<readonly RedisServer[]>
  /** Listen to a channel on a connection that is for nothing else. Undefined: this client cannot. */
  readonly listen?: (channel: string, listener: ChannelListener) => Promise<ListenConnection>
  /** Let go of the client: close it if it is ours. */
  close(): Promise<void>
}

/** One server, by itself. */
export interface RedisServer {
  send(command: string, words: readonly string[]): Promise<unknown>
}

/** How many keys a server looks at in one go: about a millisecond of its time. */
const SCANNED_AT_ONCE = '1000'

/**
 * The keys that SCAN finds, page by page, so that no server is stopped for long. It may find a key twice, and may or
 * may not find keys that come or go meanwhile. It throws the client's own errors.
 */
export async function* scanPages(server: RedisServer, pattern: string, type: string): AsyncIterable<readonly string[]> {
  let cursor = '0'
  do {
    const reply = await server.send('SCAN', [cursor, 'MATCH', pattern, 'COUNT', SCANNED_AT_ONCE, 'TYPE', type])
    const [next, names] = reply as [unknown, readonly unknown[]]
    yield names.map(String)
    cursor = String(next)
  } while (cursor !== '0')
}

/** The connection ended while a command was under way. Whether the server has executed it is not known. */
export class ConnectionLost extends Error {
  override readonly name = 'ConnectionLost'
}

/**
 * How long nothing may be answered, though asked. Noticed after that time at the earliest, and twice that at the
 * latest.
 */
const SILENCE_MS = 1000

/**
 * Notices a connection that is dead without having ended: nothing is answered any more. Cheap, since it looks only now
 * and then.
 *
 * It also keeps the process alive while an answer is missing: a socket of ours does not (core/keep-alive.ts).
 */
export class SilenceCheck {
  readonly #clock: Clock
  readonly #keepAlive: KeepAlive
  readonly #noticed: () => void
  #waiting = 0
  #answers = 0
  /** How many answers there were when it last looked, if one was waited for then. */
  #before: number | undefined
  #timer: Timer | undefined

  constructor(clock: Clock, noticed: () => void) {
    this.#clock = clock
    this.#keepAlive = new KeepAlive(clock)
    this.#noticed = noticed
  }

  asked(): void {
    this.#keepAlive.begin()
    this.#waiting += 1
    this.#timer ??= this.#clock.timer(SILENCE_MS, () => this.#look())
  }

  answered(): void {
    this.#keepAlive.end()
    this.#waiting -= 1
    this.#answers += 1
  }

  stop(): void {
    this.#timer?.cancel()
    this.#timer = undefined
    this.#before = undefined
  }

  #look(): void {
    const silent = this.#waiting > 0 && this.#before === this.#answers
    this.stop()
    if (this.#waiting === 0) return
    this.#before = this.#answers
    this.#timer = this.#clock.timer(SILENCE_MS, () => this.#look())
    if (silent) this.#noticed()
  }
}
