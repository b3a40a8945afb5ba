/**
 * How a waiter hears that it holds. (How an observer hears of a change is in observers.ts.)
 *
 * No entry overtakes another. So of all entries of ours that wait in a line, only the first one is looked after: none
 * of the others can hold before it does. It watches the entries whose going can matter to it (`blockersOf` in
 * codec.ts): for a mutex, the one right before it. So a release is one event, for one process, however many wait.
 *
 * An event that an entry has gone says enough where a waiter of ours holds without that entry. What was read last has
 * every entry that is before ours, since none is ever put there: others may have gone since, which only helps. Whether
 * our own entry is still there, its own watch says, and all watches of a session tell in order. So our entry has to be
 * watched, and the event must not be one of those that follow a reconnect. In all other cases the line is read. An
 * entry that moves to another session is also deleted, but its watchers hear that it has changed (move-entry.ts).
 *
 * Entries of this session are not watched here: what this process does to them it knows, and class-session.ts watches
 * them for what others do.
 */
import { hasCode } from '../../clients/zookeeper/errors.ts'
import type { NodeEvent } from '../../clients/zookeeper/messages.ts'
import type { ZooKeeperSession } from '../../clients/zookeeper/session.ts'
import type { News } from '../../core/engine.ts'
import { blockersOf, toZooKeeperLine, type ZooKeeperLine } from './codec.ts'
import type { LineReader } from './line-reader.ts'
import type { ZooKeeperNames } from './names.ts'
import type { ZooKeeperOwnEntry } from './own-entries.ts'

interface WaitedLine {
  readonly key: string
  /** Entries of ours that wait in it, by their ids. */
  readonly waiters: Map<string, ZooKeeperOwnEntry>
  view: ZooKeeperLine
  /** The names of entries that are watched. */
  readonly watched: Set<string>
  reading: boolean
  /** What is being read may be too old. */
  readAgain: boolean
}

/** The session by which the waiters live. */
interface WaitersSession {
  readonly zk: ZooKeeperSession
  readonly lines: LineReader
  /** Whether it has the entry of this name. */
  owns(key: string, name: string): boolean
  /** Watch an entry that it has. */
  watchOwn(entry: ZooKeeperOwnEntry): Promise<void>
}

export interface LineWaitersOptions {
  readonly session: WaitersSession
  readonly names: ZooKeeperNames
  tell(news: News): void
  now(): number
}

export class LineWaiters {
  readonly #options: LineWaitersOptions
  readonly #lines = new Map<string, WaitedLine>()

  constructor(options: LineWaitersOptions) {
    this.#options = options
  }

  /** Whether entries of ours wait in this line. */
  has(key: string): boolean {
    return this.#lines.has(key)
  }

  /** An entry of ours waits, in a line that looks like this. */
  add(entry: ZooKeeperOwnEntry, view: ZooKeeperLine): void {
    const line = this.#lines.get(entry.key) ?? {
      key: entry.key,
      waiters: new Map<string, ZooKeeperOwnEntry>(),
      view,
      watched: new Set<string>(),
      reading: false,
      readAgain: false,
    }
    this.#lines.set(entry.key, line)
    line.waiters.set(entry.id, entry)
    this.saw(entry.key, view)
  }

  /** An entry of ours waits no more: it holds, or has gone. */
  remove(key: string, id: string): void {
    const line = this.#lines.get(key)
    if (line?.waiters.delete(id) !== true) return
    if (line.waiters.size === 0) this.#lines.delete(key)
    else this.#look(line)
  }

  /** The line was read. What is read on one session comes in order: so this is the newest. */
  saw(key: string, view: ZooKeeperLine): void {
    const line = this.#lines.get(key)
    if (line === undefined) return
    line.view = view
    for (const { id, name } of view.entries.slice(0, view.held)) {
      const waiter = line.waiters.get(id)
      if (waiter?.name !== name) continue
      waiter.held = true
      line.waiters.delete(id)
      const heldForMs = Math.min(this.#options.session.zk.leftMs(this.#options.now()), waiter.ttlMs)
      this.#options.tell({ key, id, standing: { state: 'held', token: waiter.token, heldForMs } })
    }
    if (line.waiters.size === 0) this.#lines.delete(key)
    else this.#look(line)
  }

  /** The watch of an entry has told something. */
  heard(key: string, name: string, { kind, inOrder }: NodeEvent): void {
    const line = this.#lines.get(key)
    if (line?.watched.delete(name) !== true) return
    const view = kind === 'deleted' && inOrder ? grantedWithout(line, name) : undefined
    if (view === undefined) void this.#read(line)
    else this.saw(key, view)
  }

  /** An entry of ours has left this line, or may have. */
  changed(key: string): void {
    const line = this.#lines.get(key)
    if (line !== undefined) void this.#read(line)
  }

  stop(): void {
    this.#lines.clear()
  }

  /** Watch what the first of our waiters waits for. */
  #look(line: WaitedLine): void {
    const { entries } = line.view
    const first = entries.findIndex(({ id, name }) => line.waiters.get(id)?.name === name)
    const waiter = entries[first]
    // Its own watch tells if it has gone; the next renewal finds it otherwise.
    if (waiter === undefined) return
    const { session } = this.#options
    const blockers = blockersOf(entries.slice(0, first), waiter).filter(
      ({ name }) => !line.watched.has(name) && !session.owns(line.key, name),
    )
    const own = line.waiters.get(waiter.id)
    // Should it fail, the line is read when a blocker has gone.
    if (blockers.length > 0 && own?.watched === false) session.watchOwn(own).catch(() => {})
    for (const { name } of blockers) {
      line.watched.add(name)
      void this.#watch(line, name)
    }
  }

  async #watch(line: WaitedLine, name: string): Promise<void> {
    const { session, names } = this.#options
    try {
      await session.zk.getData(names.entry(line.key, name), { watch: true })
    } catch (error) {
      line.watched.delete(name)
      // It went between the read and the watch. After another failure, the next renewal reads the line.
      if (hasCode(error, 'noNode') && this.#lines.get(line.key) === line) void this.#read(line)
    }
  }

  async #read(line: WaitedLine): Promise<void> {
    if (line.reading) {
      line.readAgain = true
      return
    }
    line.reading = true
    try {
      do {
        line.readAgain = false
        const view = await this.#options.session.lines.read(line.key)
        if (this.#lines.get(line.key) !== line) return
        if (view !== undefined) this.saw(line.key, view)
      } while (line.readAgain && this.#lines.get(line.key) === line)
    } catch {
      // The next renewal of a waiter says the same, or why it cannot be said.
      for (const { key, id } of line.waiters.values()) this.#options.tell({ key, id })
    } finally {
      line.reading = false
    }
  }
}

/** The line without an entry that has gone; undefined if no waiter of ours surely holds in it. */
function grantedWithout({ view, waiters }: WaitedLine, gone: string): ZooKeeperLine | undefined {
  // A duplicate counts for nothing while the entry of its id stands in front of it. If that is the one that has gone,
  // the duplicate counts from now on: then the line has to be read.
  if (view.duplicates.length > 0) return undefined
  const left = toZooKeeperLine({ entries: view.entries.filter(({ name }) => name !== gone), evicted: view.evicted })
  const granted = left.entries.slice(0, left.held).flatMap(({ id, name }) => {
    const waiter = waiters.get(id)
    return waiter?.name === name ? [waiter] : []
  })
  return granted.length > 0 && granted.every(({ watched }) => watched) ? left : undefined
}
