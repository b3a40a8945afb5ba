/**
 * Watches: one stream for all of them, made when the first one is wanted.
 *
 * A stream that breaks is made anew, on whichever member answers, and every watch goes on from the revision it has come
 * to: nothing is missed, and nothing is told twice. Only where the server has compacted that revision away is the
 * watcher told that it has missed something.
 *
 * A server with users answers a watch that it refuses as if it were created and canceled at once, and newer ones
 * without saying which: they answer in the order in which they were asked. It may be that the token of the stream is
 * too old, so it is asked again, on another stream and with another token, before the watcher is told.
 */
import { type Chance, type Clock, systemChance, type Timer } from '../../core/clock.ts'
import type { AuthorizedStream, EtcdClient } from './client.ts'
import { type Keys, readWatch, type WatchAnswer, type WatchEvent, watchCancelation, watchCreation } from './messages.ts'
import { Reader } from './proto.ts'
import { RpcError, STATUS } from './rpc-error.ts'

export interface WatchRequest extends Keys {
  /** 0: from now on. */
  readonly fromRevision: bigint
  /** Only what is deleted. */
  readonly deletesOnly: boolean
}

export interface Watcher {
  /** All that one revision changed comes at once. */
  changed(events: readonly WatchEvent[]): void
  /** What was asked for is no longer known to the server, and the watch is over: look for yourself. */
  compacted(): void
  /** From this revision on nothing is missed. Once for each stream. */
  created?(revision: bigint): void
  /** The server does not let us, and the watch is over. */
  refused(error: RpcError): void
}

interface Watch extends WatchRequest {
  readonly watcher: Watcher
  fromRevision: bigint
  /** How often in a row it was refused. */
  refusals: number
}

/** A token that is new, and too old at once, is bad luck; to have it more often is to have no right. */
const REFUSALS = 3
/** What some servers put before a reason. */
const GRPC_WORDS = /^rpc error: code = \w+ desc = /
const RETRY_FIRST_MS = 20
const RETRY_LONGEST_MS = 1_000

export class Watches {
  readonly #client: EtcdClient
  readonly #clock: Clock
  readonly #chance: Chance
  readonly #watches = new Map<number, Watch>()
  /** Those of which the server has not said yet whether they are created, in the order in which it was asked. */
  #asked: number[] = []
  /** Something was refused on this stream: when all of them are answered, there is to be another one. */
  #distrusted = false
  #stream: AuthorizedStream | undefined
  #opening = false
  #failures = 0
  #retry: Timer | undefined
  #last = 0
  #stopped = false

  constructor(client: EtcdClient, clock: Clock, chance: Chance = systemChance) {
    this.#client = client
    this.#clock = clock
    this.#chance = chance
  }

  /** How many there are. */
  get size(): number {
    return this.#watches.size
  }

  /** Begin. Answers how to end it. */
  add(request: WatchRequest, watcher: Watcher): () => void {
    this.#last += 1
    const id = this.#last
    const watch = { ...request, watcher, refusals: 0 }
    this.#watches.set(id, watch)
    if (this.#stream === undefined) this.#open()
    // One that is about to be given up would refuse it, too: the next one creates it.
    else if (!this.#distrusted) this.#create(this.#stream, id, watch)
    return () => {
      if (this.#watches.delete(id)) this.#stream?.send(watchCancelation(id))
    }
  }

  stop(): void {
    this.#stopped = true
    this.#retry?.cancel()
    this.#watches.clear()
    this.#stream?.close()
    this.#stream = undefined
  }

  #create(stream: AuthorizedStream, id: number, { key, end, fromRevision, deletesOnly }: Watch): void {
    this.#asked.push(id)
    stream.send(watchCreation({ key, ...(end === undefined ? {} : { end }), watch: id, fromRevision, deletesOnly }))
  }

  #open(): void {
    if (this.#opening || this.#retry !== undefined || this.#stopped) return
    this.#opening = true
    let mine: AuthorizedStream | undefined
    const begun = this.#client.stream('/etcdserverpb.Watch/Watch', {
      message: (bytes) => {
        // What one has still to say that was given up is said again by the next one.
        if (this.#stream === mine) this.#hear(readWatch(new Reader(bytes)))
      },
      ended: () => {
        if (this.#stream === mine) this.#broken()
      },
    })
    begun.then(
      (stream) => {
        mine = stream
        this.#opening = false
        if (this.#stopped) return stream.close()
        this.#stream = stream
        this.#asked = []
        this.#distrusted = false
        for (const [id, watch] of this.#watches) this.#create(stream, id, watch)
      },
      () => {
        this.#opening = false
        this.#broken()
      },
    )
  }

  #broken(): void {
    this.#stream = undefined
    if (this.#watches.size === 0 || this.#stopped || this.#retry !== undefined) return
    const pauseMs = Math.min(RETRY_FIRST_MS * 2 ** this.#failures, RETRY_LONGEST_MS) * (0.5 + this.#chance.fraction())
    this.#failures += 1
    this.#retry = this.#clock.timer(pauseMs, () => {
      this.#retry = undefined
      if (this.#watches.size > 0) this.#open()
    })
  }

  #hear(answer: WatchAnswer): void {
    const id = answer.created ? this.#answered(answer.watch) : answer.watch
    const watch = this.#watches.get(id)
    if (watch !== undefined && answer.canceled) this.#canceled(id, watch, answer)
    else if (watch !== undefined) this.#goOn(watch, answer)
    if (!this.#distrusted || this.#asked.length > 0) return
    this.#stream?.distrust()
    this.#stream?.close()
    this.#broken()
  }

  /** Which one it is that was created, or refused: where no id is said, the one that was asked for first. */
  #answered(said: number): number {
    const place = said < 0 ? 0 : this.#asked.indexOf(said)
    return place < 0 ? said : (this.#asked.splice(place, 1)[0] ?? said)
  }

  #canceled(id: number, watch: Watch, { compactRevision, reason }: WatchAnswer): void {
    if (compactRevision > 0n) {
      this.#watches.delete(id)
      watch.watcher.compacted()
      return
    }
    watch.refusals += 1
    this.#distrusted ||= watch.refusals < REFUSALS
    if (watch.refusals < REFUSALS) return
    this.#watches.delete(id)
    const why = reason.replace(GRPC_WORDS, '') || 'it does not say why'
    watch.watcher.refused(new RpcError(STATUS.permissionDenied, `the server does not let us watch this: ${why}`))
  }

  #goOn(watch: Watch, { created, events, header }: WatchAnswer): void {
    this.#failures = 0
    watch.refusals = 0
    if (created) {
      if (watch.fromRevision === 0n) watch.fromRevision = header.revision + 1n
      watch.watcher.created?.(header.revision)
    }
    // After a change of members, some may be told again.
    const fresh = events.filter(({ kv }) => kv.modRevision >= watch.fromRevision)
    const last = fresh.at(-1)
    if (last === undefined) return
    watch.fromRevision = last.kv.modRevision + 1n
    watch.watcher.changed(fresh)
  }
}
