/**
 * How a waiter hears that it holds, and how a holder hears that it was evicted.
 *
 * For every line in which entries of ours wait, LineWatcher has one watch, and the front of the line as it was last
 * read, without the entries that have gone since.
 *
 * No entry overtakes another, so entries that come later do not matter: only deletions are watched. A watch begins with
 * what happens next. If anything happened in etcd between the read of the line and that moment, the line is read once
 * more, so that nothing is missed. (etcd also starts watches in the past, but it looks after those only ten times a
 * second.) When an entry goes, the rule says which entries hold now, and ours among them are told, with their tokens: a
 * hand-off is one message, and no further request. A waiter that stands too far behind to be in the front is not
 * forgotten: when all entries of the front hold, more of the line is read.
 */

import type { EtcdClient } from '../../clients/etcd/client.ts'
import type { WatchEvent } from '../../clients/etcd/messages.ts'
import type { WatchStream } from '../../clients/etcd/watch-stream.ts'
import type { News } from '../../core/engine.ts'
import { EVICTED_MARKER, FRONT_SIZE, type LineFront, toLineFront, withoutEntries } from './codec.ts'
import type { EtcdNames } from './names.ts'
import type { EtcdOwnEntry } from './own-entries.ts'

interface WatchedLine {
  readonly key: string
  /** Entries of ours that wait in it, by their ids. */
  readonly waiters: Map<string, EtcdOwnEntry>
  front: LineFront
  /** The revision at which `front` was read. */
  revision: bigint
  /** The names of entries that have gone since, and the revisions at which they went. */
  readonly gone: Map<string, bigint>
  reading: boolean
  /** What is being read may be too old: read once more. */
  readAgain: boolean
  stop: () => void
}

export interface LineWatcherOptions {
  readonly client: EtcdClient
  readonly watches: WatchStream
  readonly names: EtcdNames
  readonly tell: (news: News) => void
  readonly now: () => number
}

export class LineWatcher {
  readonly #options: LineWatcherOptions
  readonly #lines = new Map<string, WatchedLine>()

  constructor(options: LineWatcherOptions) {
    this.#options = options
  }

  /** An entry of ours waits, in a line that looked like this at that revision. */
  addWaiter(entry: EtcdOwnEntry, front: LineFront, revision: bigint): void {
    const known = this.#lines.get(entry.key)
    const line = known ?? this.#begin(entry.key, front, revision)
    line.waiters.set(entry.id, entry)
    if (known === undefined) this.#tellHolders(line)
    else this.#update(line, front, revision)
    this.#tellIfGone(line, entry.id)
  }

  /** An entry of ours waits no more: it holds, or has gone. */
  removeWaiter(key: string, id: string): void {
    const line = this.#lines.get(key)
    if (line?.waiters.delete(id) === true && line.waiters.size === 0) this.#end(line)
  }

  stop(): void {
    for (const line of this.#lines.values()) this.#end(line)
  }

  #begin(key: string, front: LineFront, revision: bigint): WatchedLine {
    const line: WatchedLine = {
      key,
      waiters: new Map(),
      front,
      revision,
      gone: new Map(),
      reading: false,
      readAgain: false,
      stop: () => {},
    }
    this.#lines.set(key, line)
    this.#watch(line)
    return line
  }

  #watch(line: WatchedLine): void {
    const { watches, names } = this.#options
    line.stop = watches.add(
      { ...names.line(line.key), fromRevision: 0n, deletesOnly: true },
      {
        changed: (events) => this.#deleted(line, events),
        created: (revision) => revision > line.revision && void this.#read(line, { missed: true }),
        compacted: () => this.#watch(line),
        // The waiters renew, and learn from the answer that they have no right. The line is kept, so that the watch is
        // not requested again and again.
        refused: () => this.#wakeAll(line),
      },
    )
  }

  #end(line: WatchedLine): void {
    line.stop()
    if (this.#lines.get(line.key) === line) this.#lines.delete(line.key)
  }

  #deleted(line: WatchedLine, events: readonly WatchEvent[]): void {
    for (const { kv } of events) {
      const { name } = this.#options.names.parse(kv.key)
      line.gone.set(name, kv.modRevision)
      // A waiter has entered a line that was not empty: its name is its id.
      this.#tellIfGone(line, name)
    }
    line.front = withoutEntries(line.front, ({ name, token }) => (line.gone.get(name) ?? 0n) > token)
    this.#tellHolders(line)
    // The key that is no entry of ours may be the one that has gone.
    if (line.front.stranger !== undefined && this.#lines.get(line.key) === line) void this.#read(line, { missed: true })
  }

  /** A waiter of ours has gone without a leave of ours: the core has to ask why. */
  #tellIfGone(line: WatchedLine, id: string): void {
    const waiter = line.waiters.get(id)
    if (waiter === undefined || (line.gone.get(id) ?? 0n) <= waiter.token) return
    line.waiters.delete(id)
    this.#options.tell({ key: line.key, id })
    if (line.waiters.size === 0) this.#end(line)
  }

  /** Take over a front that was read, unless what we know is newer. */
  #update(line: WatchedLine, front: LineFront, revision: bigint): void {
    if (revision <= line.revision) return
    line.revision = revision
    for (const [name, goneAt] of line.gone) if (goneAt <= revision) line.gone.delete(name)
    line.front = withoutEntries(front, ({ name, token }) => (line.gone.get(name) ?? 0n) > token)
    this.#tellHolders(line)
  }

  /** Tell the waiters of ours that hold by now. */
  #tellHolders(line: WatchedLine): void {
    const { entries, held, count, stranger } = line.front
    for (const { id, token } of entries.slice(0, held)) {
      const waiter = line.waiters.get(id)
      if (waiter === undefined || waiter.token !== token) continue
      waiter.held = true
      line.waiters.delete(id)
      const heldForMs = waiter.lease.leftMs(this.#options.now())
      this.#options.tell({ key: line.key, id, standing: { state: 'held', token, heldForMs } })
    }
    if (line.waiters.size === 0) this.#end(line)
    else if (held === entries.length && count > held && stranger === undefined) void this.#read(line)
  }

  /** `missed`: the line may have changed without an event. */
  async #read(line: WatchedLine, { missed = false }: { readonly missed?: boolean } = {}): Promise<void> {
    if (line.reading) {
      line.readAgain ||= missed
      return
    }
    line.reading = true
    line.readAgain = false
    try {
      const limit = Math.max(FRONT_SIZE, 2 * line.front.held)
      const { client, names } = this.#options
      const response = await client.range({ ...names.line(line.key), oldestFirst: true, limit })
      line.reading = false
      if (this.#lines.get(line.key) !== line) return
      this.#update(line, toLineFront(response), response.header.revision)
      if (line.readAgain && this.#lines.get(line.key) === line) void this.#read(line, { missed: true })
    } catch {
      line.reading = false
      // If no events were missed, the next renewal of a waiter reads the same. If some were, that may be too late.
      if ((!missed && !line.readAgain) || this.#lines.get(line.key) !== line) return
      this.#end(line)
      this.#wakeAll(line)
    }
  }

  /** No events come for this line any more: the core has to renew its waiters. */
  #wakeAll(line: WatchedLine): void {
    for (const id of [...line.waiters.keys()]) this.#options.tell({ key: line.key, id })
  }
}

export interface EvictionWatcherOptions {
  readonly watches: WatchStream
  readonly names: EtcdNames
  readonly tell: (news: News) => void
  /** Whether this engine object has the entry. */
  readonly has: (id: string) => boolean
}

/**
 * Tells of evictions. An entry that is evicted has a marker (entry-markers.ts). Markers are rare, so one watch of all
 * of them serves all entries of this engine object: to hold a lock costs no watch. It begins with the revision of the
 * first entry, so that no eviction comes too early for it. Should an event be missed all the same, the next renewal
 * says the same.
 */
export class EvictionWatcher {
  readonly #options: EvictionWatcherOptions
  #listening = false
  #stop: (() => void) | undefined

  constructor(options: EvictionWatcherOptions) {
    this.#options = options
  }

  /** From now on there is a listener to tell. */
  start(): void {
    this.#listening = true
  }

  /** An entry of ours was in its line at that revision: tell of every eviction since. */
  watchFrom(revision: bigint): void {
    if (this.#stop === undefined && this.#listening) this.#watch(revision + 1n)
  }

  stop(): void {
    this.#listening = false
    this.#stop?.()
    this.#stop = undefined
  }

  #watch(fromRevision: bigint): void {
    const { watches, names } = this.#options
    this.#stop = watches.add(
      { ...names.markers(), fromRevision, deletesOnly: false },
      {
        changed: (events) => this.#changed(events),
        compacted: () => this.#watch(0n),
        // The user has no right to watch them. It is not requested again.
        refused: () => {},
      },
    )
  }

  #changed(events: readonly WatchEvent[]): void {
    const { names, tell, has } = this.#options
    for (const { kind, kv } of events) {
      if (kind === 'delete' || kv.value.toString() !== EVICTED_MARKER) continue
      const { key, id } = names.parseMarker(kv.key)
      if (has(id)) tell({ key, id, standing: { state: 'gone', why: 'evicted' } })
    }
  }
}
