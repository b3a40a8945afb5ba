/**
 * All watches of a client, on one stream. The stream is made for the first watch.
 *
 * A stream that breaks is made anew, on any member that answers. Every watch then goes on from the revision that it has
 * come to: no event is missed, and none is told twice. Only where the server has compacted that revision away is the
 * handler told that it has missed something.
 *
 * A server with users answers a watch that it refuses as if it were created and cancelled at once. Newer servers do not
 * say which watch that is, but they answer in the order of the requests. The reason may be that the token of the stream
 * is too old. So the watch is requested again, on another stream with another token, before its handler is told.
 */
import { type Chance, type Clock, systemChance, type Timer } from '../../core/clock.ts'
import { RetryPause } from '../shared/retry-pause.ts'
import type { AuthorizedStream, EtcdClient } from './client.ts'
import { GRPC_STATUS, RpcError } from './errors.ts'
import {
  readWatch,
  type WatchCreateRequest,
  type WatchEvent,
  type WatchResponse,
  watchCancelRequest,
  watchCreateRequest,
} from './messages.ts'
import { ProtoReader } from './proto.ts'

export type WatchRequest = Omit<WatchCreateRequest, 'watch'>

export interface WatchHandler {
  /** All changes of one revision come together. */
  changed(events: readonly WatchEvent[]): void
  /** The server has compacted away what this watch has missed, and the watch is over: read the keys. */
  compacted(): void
  /** From this revision on no event is missed. Called once for each stream. */
  created?(revision: bigint): void
  /** The server refuses the watch, and it is over. */
  refused(error: RpcError): void
}

interface Watch extends WatchRequest {
  readonly handler: WatchHandler
  fromRevision: bigint
  /** How often in a row it was refused. */
  refusals: number
}

/** A new token can be too old at once, by bad luck. After three refusals in a row the user has no right to watch. */
const REFUSALS = 3
/** What some servers write before a reason. */
const GRPC_WORDS = /^rpc error: code = \w+ desc = /

export class WatchStream {
  readonly #client: EtcdClient
  readonly #clock: Clock
  readonly #chance: Chance
  readonly #watches = new Map<number, Watch>()
  readonly #retryPause = new RetryPause({ firstMs: 20, longestMs: 1_000 })
  /** The watches that were requested on this stream and not answered yet, in order. */
  #requested: number[] = []
  /** The server refused a watch on this stream. When all its requests are answered, the next stream takes its place. */
  #distrusted = false
  #stream: AuthorizedStream | undefined
  #opening = false
  #retry: Timer | undefined
  #last = 0
  #stopped = false

  constructor(client: EtcdClient, clock: Clock, chance: Chance = systemChance) {
    this.#client = client
    this.#clock = clock
    this.#chance = chance
  }

  /** How many watches there are. */
  get size(): number {
    return this.#watches.size
  }

  /** Begin a watch. Returns the function that ends it. */
  add(request: WatchRequest, handler: WatchHandler): () => void {
    this.#last += 1
    const id = this.#last
    const watch = { ...request, handler, refusals: 0 }
    this.#watches.set(id, watch)
    if (this.#stream === undefined) this.#open()
    // A stream with a bad token would refuse this watch, too: the next stream creates it.
    else if (!this.#distrusted) this.#create(this.#stream, id, watch)
    return () => {
      if (this.#watches.delete(id)) this.#stream?.send(watchCancelRequest(id))
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
    this.#requested.push(id)
    stream.send(
      watchCreateRequest({ key, ...(end === undefined ? {} : { end }), watch: id, fromRevision, deletesOnly }),
    )
  }

  #open(): void {
    if (this.#opening || this.#retry !== undefined || this.#stopped) return
    this.#opening = true
    let opened: AuthorizedStream | undefined
    const begun = this.#client.stream('/etcdserverpb.Watch/Watch', {
      message: (bytes) => {
        // The server repeats on the next stream what it says late on one that was given up.
        if (this.#stream === opened) this.#hear(readWatch(new ProtoReader(bytes)))
      },
      ended: () => {
        if (this.#stream === opened) this.#broken()
      },
    })
    begun.then(
      (stream) => {
        opened = stream
        this.#opening = false
        if (this.#stopped) return stream.close()
        this.#stream = stream
        this.#requested = []
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
    this.#retry = this.#clock.timer(this.#retryPause.next() * (0.5 + this.#chance.fraction()), () => {
      this.#retry = undefined
      if (this.#watches.size > 0) this.#open()
    })
  }

  #hear(answer: WatchResponse): void {
    const id = answer.created ? this.#answered(answer.watch) : answer.watch
    const watch = this.#watches.get(id)
    if (watch !== undefined && answer.canceled) this.#canceled(id, watch, answer)
    else if (watch !== undefined) this.#goOn(watch, answer)
    if (!this.#distrusted || this.#requested.length > 0) return
    this.#stream?.distrust()
    this.#stream?.close()
    this.#broken()
  }

  /** The watch that was created or refused. Where the server names none, it is the one that was requested first. */
  #answered(said: number): number {
    const place = said < 0 ? 0 : this.#requested.indexOf(said)
    return place < 0 ? said : (this.#requested.splice(place, 1)[0] ?? said)
  }

  #canceled(id: number, watch: Watch, { compactRevision, reason }: WatchResponse): void {
    if (compactRevision > 0n) {
      this.#watches.delete(id)
      watch.handler.compacted()
      return
    }
    watch.refusals += 1
    this.#distrusted ||= watch.refusals < REFUSALS
    if (watch.refusals < REFUSALS) return
    this.#watches.delete(id)
    const why = reason.replace(GRPC_WORDS, '') || 'it does not say why'
    watch.handler.refused(new RpcError(GRPC_STATUS.permissionDenied, `the server does not let us watch this: ${why}`))
  }

  #goOn(watch: Watch, { created, events, header }: WatchResponse): void {
    this.#retryPause.reset()
    watch.refusals = 0
    if (created) {
      if (watch.fromRevision === 0n) watch.fromRevision = header.revision + 1n
      watch.handler.created?.(header.revision)
    }
    // After a change of members the server may repeat events.
    const fresh = events.filter(({ kv }) => kv.modRevision >= watch.fromRevision)
    const last = fresh.at(-1)
    if (last === undefined) return
    watch.fromRevision = last.kv.modRevision + 1n
    watch.handler.changed(fresh)
  }
}
