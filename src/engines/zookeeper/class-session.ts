/**
 * A session of ZooKeeper, and the entries of this engine object that live by it. There is one for each ttl, in whole
 * seconds, that is in use: all entries of one ttl are kept alive by one session, and end with it. Only for thousands of
 * entries there are more, since a session has room for so many (`hasRoom`).
 *
 * The session is a third longer than the ttl. What surely is left of it, when a write was answered, is two thirds to
 * three quarters of it (clients/zookeeper/session-life.ts): so a holder has its ttl, or little less.
 *
 * **What is known of an entry is kept true by a watch of its node.** The watch is set when the entry has been there for
 * a moment: a lock that is held for a moment costs none. Where a watch has told that something happened to the node,
 * the entry is `doubtful`, and is looked at before it is believed.
 *
 * **An entry that was given up must not live on** (deletions.ts). So entries that the core has not asked for in a whole
 * ttl are deleted.
 */
import { hasCode } from '../../clients/zookeeper/errors.ts'
import type { NodeAcl, NodeEvent } from '../../clients/zookeeper/messages.ts'
import { ZooKeeperSession } from '../../clients/zookeeper/session.ts'
import type { ZooKeeperServers } from '../../clients/zookeeper/session-connection.ts'
import type { Clock, Timer } from '../../core/clock.ts'
import type { News } from '../../core/engine.ts'
import { readEntryData, type ZooKeeperLine } from './codec.ts'
import { SureDeletions } from './deletions.ts'
import { LineReader } from './line-reader.ts'
import { LineWaiters } from './listen.ts'
import type { ZooKeeperNames } from './names.ts'
import type { OwnEntryState, ZooKeeperOwnEntry } from './own-entries.ts'

/** What all sessions of an engine object have in common. */
export interface ZooKeeperContext {
  readonly servers: ZooKeeperServers
  readonly clock: Clock
  readonly names: ZooKeeperNames
  readonly acl: NodeAcl
  tell(news: News): void
  /** The children of this node may have changed: an observer watches it. */
  lineChanged(path: string): void
  /** The session goes on after a cut. */
  reconnected(session: ClassSession): void
  /** The session has ended by itself. */
  ended(session: ClassSession): void
}

/** After how long in line an entry is watched. */
const WATCH_AFTER_MS = 100
/** How often, in one session time, entries that were given up are looked for. */
const SWEEPS = 3
/**
 * How many bytes the paths of all entries of a session may have. When a session ends, the server that leads writes
 * them into one transaction. One that is longer than `jute.maxbuffer`, 1 MiB unless a server was told otherwise, no
 * server reads: the ensemble stops, and does not start any more.
 */
const MOST_PATH_BYTES = 2 ** 19

export class ClassSession {
  readonly ttlMs: number
  readonly zk: ZooKeeperSession
  readonly lines: LineReader
  readonly deletions: SureDeletions
  readonly waiters: LineWaiters
  /** By their ids. */
  readonly entries: Map<string, ZooKeeperOwnEntry> = new Map()
  /**
   * Ids that this session lets enter, or has let enter with unknown outcome; and the keys of their lines. Only what is
   * asked on this same session comes after that enter, whatever became of it.
   */
  readonly #entering = new Map<string, { readonly key: string; readonly at: number }>()
  readonly #context: ZooKeeperContext
  readonly #byPath = new Map<string, ZooKeeperOwnEntry>()
  /** Of all entries that are here, or are entering. */
  #pathBytes = 0
  /** Entries that wait for their watch, oldest first. */
  #unwatched: ZooKeeperOwnEntry[] = []
  #watchTimer: Timer | undefined
  #sweepTimer: Timer | undefined
  #stopped = false

  constructor(context: ZooKeeperContext, ttlMs: number) {
    this.#context = context
    this.ttlMs = ttlMs
    const { servers, clock } = context
    this.zk = new ZooKeeperSession({
      servers,
      clock,
      timeoutMs: Math.ceil((ttlMs * 4) / 3),
      event: (event) => this.#heard(event),
      reconnected: () => {
        this.#sweep()
        context.reconnected(this)
      },
      ended: () => this.#ended(),
    })
    this.lines = new LineReader(this.zk, context.names)
    this.deletions = new SureDeletions(this.zk, () => this.#sweepSoon())
    this.waiters = new LineWaiters({
      session: this,
      names: context.names,
      tell: (news) => context.tell(news),
      now: () => clock.now(),
    })
  }

  get usable(): boolean {
    return this.zk.end === undefined
  }

  /** Whether the entry is here, or may be. */
  has(id: string): boolean {
    return this.entries.has(id) || this.#entering.has(id)
  }

  /** Whether it takes entries whose paths have so many bytes. An empty one takes what one call brings. */
  hasRoom(bytes: number): boolean {
    return this.#pathBytes === 0 || this.#pathBytes + bytes <= MOST_PATH_BYTES
  }

  /** An enter is about to be sent. */
  beginEntering(key: string, id: string): void {
    if (!this.#entering.has(id)) this.#pathBytes += this.#context.names.entryBytes(key)
    this.#entering.set(id, { key, at: this.#context.clock.now() })
    this.#sweepSoon()
  }

  /** The outcome of the enter is known. */
  endEntering(id: string): void {
    const entering = this.#entering.get(id)
    if (entering === undefined) return
    this.#entering.delete(id)
    this.#pathBytes -= this.#context.names.entryBytes(entering.key)
  }

  /** Take out whatever has this id. Answers whether something was there. */
  async deleteById(key: string, id: string): Promise<boolean> {
    const view = await this.lines.readNow(key)
    const all = view === undefined ? [] : [...view.entries, ...view.duplicates]
    const paths = all.filter((entry) => entry.id === id).map(({ name }) => this.#context.names.entry(key, name))
    const deleted = await Promise.all(this.deletions.deleteAll(paths))
    this.endEntering(id)
    return deleted.includes(true)
  }

  /** The entry is in its line. */
  record(entry: Omit<ZooKeeperOwnEntry, keyof OwnEntryState>): ZooKeeperOwnEntry {
    const now = this.#context.clock.now()
    const known = this.entries.get(entry.id)
    if (known?.name === entry.name && known.token === entry.token) {
      known.held ||= entry.held
      known.ttlMs = entry.ttlMs
      known.requestedAt = now
      if (known.doubtful) {
        known.doubtful = false
        this.#watchLater(known)
      }
      return known
    }
    if (known !== undefined) this.forget(known.id)
    const recorded = { ...entry, watched: false, events: 0, doubtful: false, evicted: false, requestedAt: now }
    this.entries.set(entry.id, recorded)
    this.#pathBytes += this.#context.names.entryBytes(entry.key)
    this.#byPath.set(this.pathOf(recorded), recorded)
    this.#watchLater(recorded)
    this.#sweepSoon()
    return recorded
  }

  /** The entry is in no line, or this session does not decide about it any more. */
  forget(id: string): void {
    const entry = this.entries.get(id)
    if (entry === undefined) return
    this.entries.delete(id)
    this.#pathBytes -= this.#context.names.entryBytes(entry.key)
    this.#byPath.delete(this.pathOf(entry))
    this.waiters.remove(entry.key, id)
  }

  pathOf({ key, name }: Pick<ZooKeeperOwnEntry, 'key' | 'name'>): string {
    return this.#context.names.entry(key, name)
  }

  /** Whether this session has the entry of this name. */
  owns(key: string, name: string): boolean {
    return this.#byPath.has(this.#context.names.entry(key, name))
  }

  /**
   * Look at the node of an entry, and watch it from now on. What is found is told to the core by a hint. Rejects if the
   * server cannot be asked.
   */
  async watchOwn(entry: ZooKeeperOwnEntry): Promise<void> {
    const { events } = entry
    try {
      const { data, stat } = await this.zk.getData(this.pathOf(entry), { watch: true })
      // Another engine object has moved it to a session of its own, by the same name.
      if (stat.ephemeralOwner !== this.zk.id) {
        this.#gone(entry)
        return
      }
      // An event may have come right behind the answer: then the watch is used up, and tells nothing any more.
      entry.watched = entry.events === events
      if (readEntryData(data).evicted) this.#evicted(entry)
    } catch (error) {
      if (!hasCode(error, 'noNode')) throw error
      this.#gone(entry)
    }
  }

  /** Take out the entries of an id that count for nothing. Should it fail, it is tried again later. */
  async deleteDuplicates(key: string, id: string, { duplicates }: ZooKeeperLine): Promise<void> {
    const paths = duplicates.filter((one) => one.id === id).map(({ name }) => this.#context.names.entry(key, name))
    await Promise.allSettled(this.deletions.deleteAll(paths))
  }

  /** End the session, and everything that lives by it. */
  async close(): Promise<void> {
    this.#stop()
    await this.zk.close()
  }

  // ---- what happens to entries of ours ----

  #heard(event: NodeEvent): void {
    const { kind, path } = event
    const { names } = this.#context
    const own = this.#byPath.get(path)
    if (own !== undefined) {
      own.watched = false
      own.events += 1
      if (kind === 'deleted') this.#gone(own)
      // Should it fail, the next renewal looks at it.
      else this.watchOwn(own).catch(() => {})
    }
    const depth = path.slice(names.base.length).split('/').length
    if (depth === 3) {
      const { key, name } = names.parse(path)
      this.waiters.heard(key, name, event)
    } else {
      this.#context.lineChanged(path)
    }
  }

  #gone(entry: ZooKeeperOwnEntry): void {
    if (this.entries.get(entry.id) !== entry) return
    entry.doubtful = true
    this.waiters.changed(entry.key)
    this.#context.tell({ key: entry.key, id: entry.id })
  }

  #evicted(entry: ZooKeeperOwnEntry): void {
    if (entry.evicted || this.entries.get(entry.id) !== entry) return
    entry.evicted = true
    this.#context.tell({ key: entry.key, id: entry.id })
  }

  #ended(): void {
    this.#stop()
    const entries = [...this.entries.values()]
    this.entries.clear()
    this.#byPath.clear()
    this.#context.ended(this)
    for (const entry of entries) this.#context.tell({ key: entry.key, id: entry.id })
  }

  #stop(): void {
    this.#stopped = true
    this.#watchTimer?.cancel()
    this.#sweepTimer?.cancel()
    this.waiters.stop()
  }

  // ---- what is done now and then ----

  #watchLater(entry: ZooKeeperOwnEntry): void {
    this.#unwatched.push(entry)
    if (this.#stopped || this.#watchTimer !== undefined) return
    this.#watchTimer = this.#context.clock.timer(WATCH_AFTER_MS, () => {
      this.#watchTimer = undefined
      const due = this.#unwatched
      this.#unwatched = []
      for (const entry of due)
        if (this.entries.get(entry.id) === entry && !entry.watched) this.watchOwn(entry).catch(() => {})
    })
  }

  #sweepSoon(): void {
    if (this.#stopped || this.#sweepTimer !== undefined) return
    if (this.entries.size === 0 && !this.deletions.areLeft && this.#entering.size === 0) return
    this.#sweepTimer = this.#context.clock.timer(this.zk.timeoutMs / SWEEPS, () => {
      this.#sweepTimer = undefined
      this.#sweep()
      this.#sweepSoon()
    })
  }

  #sweep(): void {
    const now = this.#context.clock.now()
    for (const entry of [...this.entries.values()]) {
      if (now - entry.requestedAt <= Math.max(entry.ttlMs, this.ttlMs) + marginMs(this.ttlMs)) continue
      this.forget(entry.id)
      // What is there by its name, if anything, may live by the session of another engine object. Then waiters of this
      // process watch it from now on.
      if (entry.doubtful) this.waiters.changed(entry.key)
      else this.deletions.later(this.pathOf(entry))
    }
    for (const [id, { key, at }] of this.#entering) {
      // The core does not ask for it any more.
      if (now - at > 2 * this.ttlMs) this.deleteById(key, id).catch(() => {})
    }
    this.deletions.retry((path) => this.waiters.changed(this.#context.names.parse(path).key))
  }
}

/** The core asks a little later than it plans to, when it is busy. */
const marginMs = (ttlMs: number): number => ttlMs / 10
