/**
 * The store: a record is a node beside the lines (record-nodes.ts). A change is one `multi`. It compares that the
 * record is the one that the change was made from, and for `holding` that the entry is still there: an entry that holds
 * goes on holding for as long as it is there. If either has changed, both are read, and the change is made anew.
 *
 * Most changes are made from what this process has put or read last, and so take one round trip. Changes of a batch are
 * sent at the same time, each as a transaction of its own: all that one transaction writes has one number, and each
 * change is to have its own.
 */
import { hasCode, type ZooKeeperError } from '../../clients/zookeeper/errors.ts'
import { wallClockMs } from '../../core/clock.ts'
import { unmetCondition } from '../../core/record-rule.ts'
import {
  type Change,
  type Got,
  type Put,
  type Store,
  type StoredSummary,
  type StoreTraits,
  VALUE_LIMIT_BYTES,
  type When,
} from '../../core/store.ts'
import { fallbackAfter } from '../../core/time-limit.ts'
import { foundOf, livesForMsOf, storedOf, unsettledPut } from '../shared/kept-record.ts'
import { RecordSweep } from '../shared/record-sweep.ts'
import type { ClassSession, ZooKeeperContext } from './class-session.ts'
import type { ClassSessions } from './class-sessions.ts'
import { asEngineError, ENGINE } from './errors.ts'
import { SWEPT_AT_ONCE, sweepRecords } from './expired-records.ts'
import { asOf, changed, NO_RECORD } from './record-codec.ts'
import {
  type InSlot,
  type LineState,
  type RecordLook,
  RecordNodes,
  type RecordRead,
  type Unreadable,
} from './record-nodes.ts'

const traits: StoreTraits = {
  holding: true,
  valueLimitBytes: VALUE_LIMIT_BYTES,
  batchLimit: 64,
  takesSignal: [],
  survives: 'the death of any client, and of any minority of servers; not the restore of a snapshot',
}

/** How often a change is tried. If another client was faster each time, it is given up, and was not made. */
const TRIES = 50
/** How many records are remembered, to make changes from. */
const REMEMBERED = 1_000
/** A record that expires is read again before a change, if it was read so long ago, or expires so soon. */
const BELIEVED_MS = 60_000
const BEFORE_EXPIRY_MS = 1_000
/** How long a sweep may take when the engine is closed. */
const FINISH_LIMIT_MS = 1_000
/** How many records are read at once for a listing. */
const LISTED_AT_ONCE = 16

/** What this process has put or read last. */
interface Remembered extends RecordLook {
  /** When that was, by our own clock; and, at least, by that of the servers. */
  readonly at: number
  readonly serverMs: number
}

const NOT_LOOKED_AT: Remembered = { record: NO_RECORD, sweeps: undefined, at: 0, serverMs: 0 }

/** The entry that a change asks about. */
interface Holder {
  readonly session: ClassSession
  readonly path: string
}

export class ZooKeeperStore implements Store {
  readonly traits: StoreTraits = traits
  readonly #context: ZooKeeperContext
  readonly #sessions: ClassSessions
  readonly #nodes: RecordNodes
  readonly #sweep: RecordSweep
  /** By key, without values; the longest ago first. */
  readonly #recent = new Map<string, Remembered>()
  /** How many sweeps there were, when it was last looked. If there are no more, none has come since. */
  #sweeps: number | undefined

  constructor(context: ZooKeeperContext, sessions: ClassSessions) {
    this.#context = context
    this.#sessions = sessions
    this.#nodes = new RecordNodes(context)
    this.#sweep = new RecordSweep(context.clock, SWEPT_AT_ONCE, async () =>
      sweepRecords(context, this.#nodes, (await sessions.any('put')).zk),
    )
  }

  async get(keys: readonly string[]): Promise<readonly Got[]> {
    try {
      const { zk } = await this.#sessions.any('get')
      const { nowMs, looks } = await this.#nodes.readAll(zk, keys)
      return keys.map((key, index) => {
        const look = looks[index] as RecordLook | Unreadable
        if ('unreadable' in look) return { state: 'failed', error: look.unreadable }
        this.#remember(key, look, nowMs)
        return { state: 'read', stored: storedOf(key, look.record, nowMs ?? 0), serverTimeMs: nowMs }
      })
    } catch (error) {
      throw asEngineError('get', error)
    }
  }

  async put(changes: readonly Change[]): Promise<readonly Put[]> {
    const before = new Map<string, Promise<Put>>()
    const puts = changes.map((change) => {
      const earlier = before.get(change.key)
      const made = earlier === undefined ? this.#put(change) : earlier.then(() => this.#put(change))
      const put = made.catch((error: unknown): Put => ({ state: 'failed', error: asEngineError('put', error) }))
      before.set(change.key, put)
      return put
    })
    const answers = await Promise.all(puts)
    this.#sweep.afterPut()
    return answers
  }

  async *list(prefix: string, onProgress?: () => void): AsyncGenerator<StoredSummary> {
    const { names } = this.#context
    try {
      const { zk } = await this.#sessions.any('list')
      await zk.confirm()
      const found = await zk.getChildren(names.records).catch((error: unknown) => {
        if (hasCode(error, 'noNode')) return []
        throw error
      })
      const keys = found.map((name) => names.keyOf(name)).filter((key) => key.startsWith(prefix))
      for (let from = 0; from < keys.length; from += LISTED_AT_ONCE) {
        const some = keys.slice(from, from + LISTED_AT_ONCE)
        const { nowMs, looks } = await this.#nodes.readAll(zk, some)
        for (const [index, look] of looks.entries()) {
          if ('unreadable' in look) throw look.unreadable
          const { record } = look
          if (record.kind !== 'value') continue
          const { mark, version, value } = record
          const livesForMs = livesForMsOf(record, nowMs ?? 0)
          yield { key: some[index] as string, bytes: value.length, version, mark, livesForMs }
        }
        onProgress?.()
      }
    } catch (error) {
      throw asEngineError('list', error)
    }
  }

  /** The engine is closed. */
  async finish(): Promise<void> {
    await fallbackAfter(this.#context.clock, FINISH_LIMIT_MS, this.#sweep.finish(), undefined)
  }

  async #put(change: Change): Promise<Put> {
    const { key, when } = change
    const holder = await this.#holder(key, when.holding)
    const mayHold = when.holding === undefined || holder !== undefined
    const session = holder?.session ?? (await this.#sessions.any('put'))
    let line: LineState = 'has entries'
    let seenSlot = 0
    let look = mayHold ? this.#expected(change, holder !== undefined) : undefined
    for (let tries = 1; tries <= TRIES; tries += 1) {
      if (look === undefined) {
        const isFree = change.value === null && holder === undefined
        const read = await this.#nodes.read(session.zk, key, { entry: holder?.path, line: isFree })
        const by = unmetCondition(when, foundOf(read.record), () => mayHold && read.hasEntry)
        if (by !== undefined) return this.#refused(key, by, read)
        look = read
        line = isFree ? read.line : 'has entries'
      }
      const content = changed(look.record, change, line === 'has entries', wallClockMs())
      const isKept = look.record.version > 0n && look.record.slot === content.slot
      const inSlot: InSlot = isKept ? 'kept' : seenSlot === content.slot ? 'seen' : 'missing'
      const { steps, told, index } = this.#nodes.change(key, look, content, { entry: holder?.path, line, inSlot })
      try {
        const { mzxid: version, mtimeMs, version: nodeVersion } = await session.zk.multiStat(steps, told)
        const record = { ...content, version, nodeVersion, putAtMs: mtimeMs }
        this.#remember(key, { record, sweeps: look.sweeps ?? this.#sweeps }, mtimeMs)
        return { state: 'stored', version, mark: content.mark, serverTimeMs: mtimeMs }
      } catch (error) {
        this.#recent.delete(key)
        if (!hasChanged(error)) throw error
        // A record of the same key was in this slot before; or its node there has been swept meanwhile.
        if (error.step === index) seenSlot = hasCode(error, 'nodeExists') ? content.slot : 0
        // The first step looks for the entry of a holder. What is missing elsewhere can be created.
        const isEntryGone = holder !== undefined && error.step === 0
        if (hasCode(error, 'noNode') && !isEntryGone) await this.#nodes.createParents(session.zk, content.slot)
        look = undefined
      }
    }
    throw unsettledPut(ENGINE, key)
  }

  /**
   * What the record is, as far as this process knows; or, where it knows nothing, as the change expects it. If that is
   * wrong, the server says so. Undefined: it has to be read.
   */
  #expected({ key, value, when }: Change, isHeld: boolean): RecordLook | undefined {
    // Whether a removal is to be remembered depends on the line.
    if (value === null && !isHeld) return undefined
    const expectsNothing = when.absent === true || when.version === 0n
    const known = this.#recent.get(key) ?? (expectsNothing ? NOT_LOOKED_AT : undefined)
    if (known === undefined || !this.#isBelieved(known)) return undefined
    // What is answered to a refused change is read.
    return unmetCondition(when, foundOf(known.record), () => true) === undefined ? known : undefined
  }

  #isBelieved({ record, sweeps, at, serverMs }: Remembered): boolean {
    const { kind, ttlMs, putAtMs, version } = record
    if (sweeps === undefined && version > 0n) return false
    if (kind === 'nothing' || ttlMs === 0) return true
    const passedMs = this.#context.clock.now() - at
    return passedMs <= BELIEVED_MS && serverMs + passedMs <= putAtMs + ttlMs - BEFORE_EXPIRY_MS
  }

  /** The entry, if it holds as far as this process knows. One that was let in since is looked for. */
  async #holder(key: string, id: string | undefined): Promise<Holder | undefined> {
    const session = id === undefined ? undefined : this.#sessions.find(id)
    const entry = id === undefined ? undefined : session?.entries.get(id)
    if (session === undefined || entry?.key !== key) return undefined
    const holder = { session, path: session.pathOf(entry) }
    if (entry.held) return holder
    const view = await session.lines.readNow(key)
    const place = view?.entries.findIndex(({ name }) => name === entry.name) ?? -1
    if (view === undefined || place < 0 || place >= view.held) return undefined
    session.waiters.saw(key, view)
    entry.held = true
    return holder
  }

  #refused(key: string, by: keyof When, read: RecordRead): Put {
    this.#remember(key, read, read.nowMs)
    return { state: 'refused', by, stored: storedOf(key, read.record, read.nowMs ?? 0), serverTimeMs: read.nowMs }
  }

  #remember(key: string, { record, sweeps }: RecordLook, serverMs: number | null): void {
    this.#recent.delete(key)
    if (sweeps !== undefined) this.#sweeps = Math.max(sweeps, this.#sweeps ?? 0)
    if (serverMs === null) return
    const at = this.#context.clock.now()
    const kept = { ...asOf(record, serverMs), value: NO_RECORD.value }
    this.#recent.set(key, { record: kept, sweeps, at, serverMs })
    const [oldest] = this.#recent.keys()
    if (this.#recent.size > REMEMBERED && oldest !== undefined) this.#recent.delete(oldest)
  }
}

/** A step of the change was refused because of something that is not as it was expected. */
function hasChanged(error: unknown): error is ZooKeeperError {
  return (
    hasCode(error, 'noNode') ||
    hasCode(error, 'nodeExists') ||
    hasCode(error, 'badVersion') ||
    hasCode(error, 'notEmpty')
  )
}
