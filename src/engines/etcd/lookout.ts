/**
 * The lookout: for every line in which entries of ours wait, one watch, and the front of the line as it was when we
 * last read it, less those whose going was told since.
 *
 * Nobody overtakes, so what comes later does not matter: only deletions are watched. A watch begins with what happens
 * next, and if anything happened in etcd between the reading of the line and that, the line is read once more, so that
 * nothing is missed in between. (etcd also starts watches in the past, but looks after those ten times a second only.)
 * When somebody goes, the rule says who holds now, and ours are told, with their token: a hand-over is one message, and
 * no further question. Those who stand too far behind to be in the front we know are not forgotten: when everybody whom
 * we know of holds, we read on.
 */

import type { EtcdClient } from '../../clients/etcd/client.ts'
import type { WatchEvent } from '../../clients/etcd/messages.ts'
import type { WatchStream } from '../../clients/etcd/watch-stream.ts'
import type { News } from '../../core/engine.ts'
import type { Mine } from './mine.ts'
import type { Names } from './names.ts'
import { type Front, frontOf, without } from './stored.ts'

/** How much of a line is read at once; more where more can hold together. */
export const FRONT = 32

interface Waited {
  readonly key: string
  readonly waiters: Map<string, Mine>
  front: Front
  /** The revision at which it was read. */
  revision: bigint
  /** Who has gone since, by name, and when. */
  readonly gone: Map<string, bigint>
  reading: boolean
  /** What is being read may be too old: read once more. */
  readAgain: boolean
  stop: () => void
}

export interface LookoutSetup {
  readonly client: EtcdClient
  readonly watches: WatchStream
  readonly names: Names
  readonly tell: (news: News) => void
  readonly now: () => number
}

export class Lookout {
  readonly #setup: LookoutSetup
  readonly #lines = new Map<string, Waited>()

  constructor(setup: LookoutSetup) {
    this.#setup = setup
  }

  /** One of ours waits, in a line that looked like this at that revision. */
  waits(mine: Mine, front: Front, revision: bigint): void {
    const known = this.#lines.get(mine.key)
    const line = known ?? this.#begin(mine.key, front, revision)
    line.waiters.set(mine.id, mine)
    if (known === undefined) this.#settle(line)
    else this.#adopt(line, front, revision)
    this.#dismiss(line, mine.id)
  }

  /** It waits no more: it holds, or has gone. */
  forget(key: string, id: string): void {
    const line = this.#lines.get(key)
    if (line?.waiters.delete(id) === true && line.waiters.size === 0) this.#end(line)
  }

  stop(): void {
    for (const line of this.#lines.values()) this.#end(line)
  }

  #begin(key: string, front: Front, revision: bigint): Waited {
    const line: Waited = {
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

  #watch(line: Waited): void {
    const { watches, names } = this.#setup
    line.stop = watches.add(
      { ...names.line(line.key), fromRevision: 0n, deletesOnly: true },
      {
        changed: (events) => this.#changed(line, events),
        created: (revision) => revision > line.revision && void this.#read(line, { missed: true }),
        compacted: () => this.#watch(line),
        // Whoever may not look is told so when it does. The line stays, so that it is not tried again and again.
        refused: () => this.#wake(line),
      },
    )
  }

  #end(line: Waited): void {
    line.stop()
    if (this.#lines.get(line.key) === line) this.#lines.delete(line.key)
  }

  #changed(line: Waited, events: readonly WatchEvent[]): void {
    for (const { kv } of events) {
      const { name } = this.#setup.names.parse(kv.key)
      line.gone.set(name, kv.modRevision)
      // Whoever waits has entered a line that was not empty: its name is its id.
      this.#dismiss(line, name)
    }
    line.front = without(line.front, ({ name, token }) => (line.gone.get(name) ?? 0n) > token)
    this.#settle(line)
  }

  /** One of ours that has gone, and not by us, or it would not wait: its owner has to ask why. */
  #dismiss(line: Waited, id: string): void {
    const mine = line.waiters.get(id)
    if (mine === undefined || (line.gone.get(id) ?? 0n) <= mine.token) return
    line.waiters.delete(id)
    this.#setup.tell({ key: line.key, id })
    if (line.waiters.size === 0) this.#end(line)
  }

  /** Take over what was read, unless what we know is newer. */
  #adopt(line: Waited, front: Front, revision: bigint): void {
    if (revision <= line.revision) return
    line.revision = revision
    for (const [name, goneAt] of line.gone) if (goneAt <= revision) line.gone.delete(name)
    line.front = without(front, ({ name, token }) => (line.gone.get(name) ?? 0n) > token)
    this.#settle(line)
  }

  #settle(line: Waited): void {
    const { seats, held, count } = line.front
    for (const { id, token } of seats.slice(0, held)) {
      const mine = line.waiters.get(id)
      if (mine === undefined || mine.token !== token) continue
      mine.held = true
      line.waiters.delete(id)
      this.#setup.tell({
        key: line.key,
        id,
        standing: { state: 'held', token, heldForMs: mine.lease.leftMs(this.#setup.now()) },
      })
    }
    if (line.waiters.size === 0) this.#end(line)
    else if (held === seats.length && count > held) void this.#read(line)
  }

  /** `missed`: something may have happened that nobody tells us. */
  async #read(line: Waited, { missed = false }: { readonly missed?: boolean } = {}): Promise<void> {
    if (line.reading) {
      line.readAgain ||= missed
      return
    }
    line.reading = true
    line.readAgain = false
    try {
      const limit = Math.max(FRONT, 2 * line.front.held)
      const answer = await this.#setup.client.range({ ...this.#setup.names.line(line.key), oldestFirst: true, limit })
      line.reading = false
      if (this.#lines.get(line.key) !== line) return
      this.#adopt(line, frontOf(answer), answer.header.revision)
      if (line.readAgain && this.#lines.get(line.key) === line) void this.#read(line, { missed: true })
    } catch {
      line.reading = false
      // Without it, the next renewal of a waiter brings what we wanted to know; but that may be long.
      if ((!missed && !line.readAgain) || this.#lines.get(line.key) !== line) return
      this.#end(line)
      this.#wake(line)
    }
  }

  /** Nobody tells them any more: they have to look for themselves. */
  #wake(line: Waited): void {
    for (const id of [...line.waiters.keys()]) this.#setup.tell({ key: line.key, id })
  }
}
