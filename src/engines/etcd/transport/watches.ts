/**
 * Watches: one stream for all of them, made when the first one is wanted.
 *
 * A stream that breaks is made anew, on whichever member answers, and every watch goes on from the revision it has come to: nothing is missed, and nothing is told
 * twice. Only where the server has compacted that revision away is the watcher told that it has missed something.
 */
import { type Chance, type Clock, systemChance, type Timer } from '../../../core/clock.ts'
import type { EtcdClient } from './client.ts'
import type { RpcStream } from './connection.ts'
import { type Keys, readWatch, type WatchAnswer, type WatchEvent, watchCancelation, watchCreation } from './messages.ts'
import { Reader } from './proto.ts'

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
}

interface Watch extends WatchRequest {
  readonly watcher: Watcher
  fromRevision: bigint
}

const RETRY_FIRST_MS = 20
const RETRY_LONGEST_MS = 1_000

export class Watches {
  readonly #client: EtcdClient
  readonly #clock: Clock
  readonly #chance: Chance
  readonly #watches = new Map<number, Watch>()
  #stream: RpcStream | undefined
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
    const watch = { ...request, watcher }
    this.#watches.set(id, watch)
    if (this.#stream === undefined) this.#open()
    else this.#create(this.#stream, id, watch)
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

  #create(stream: RpcStream, id: number, { key, end, fromRevision, deletesOnly }: Watch): void {
    stream.send(watchCreation({ key, ...(end === undefined ? {} : { end }), watch: id, fromRevision, deletesOnly }))
  }

  #open(): void {
    if (this.#opening || this.#retry !== undefined || this.#stopped) return
    this.#opening = true
    let mine: RpcStream | undefined
    const begun = this.#client.stream('/etcdserverpb.Watch/Watch', {
      message: (bytes) => this.#hear(readWatch(new Reader(bytes))),
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

  #hear({ watch: id, created, canceled, compactRevision, events, header }: WatchAnswer): void {
    const watch = this.#watches.get(id)
    if (watch === undefined) return
    if (canceled) {
      if (compactRevision > 0n) {
        this.#watches.delete(id)
        watch.watcher.compacted()
      } else {
        // A token that has run out, or a right that was taken away: all of it anew, with what is valid then.
        this.#stream?.close()
        this.#broken()
      }
      return
    }
    this.#failures = 0
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
