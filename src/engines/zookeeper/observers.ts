/**
 * Observers of lines, who have no entry in them. Each line that is observed has one watch of its children. A watch
 * tells once: it is set again first, and then the observer is told, so that it misses nothing when it looks. Where it
 * cannot be set, the observer is told all the same, and it is tried again.
 */
import { hasCode } from '../../clients/zookeeper/errors.ts'
import type { Clock } from '../../core/clock.ts'
import type { ClassSession } from './class-session.ts'
import type { ClassSessions } from './class-sessions.ts'
import type { ZooKeeperNames } from './names.ts'

interface ObservedLine {
  readonly path: string
  readonly listeners: Set<() => void>
  /** The session that has the watch, or is being asked for it. */
  session: ClassSession | undefined
  /** The watch that was asked for last. */
  watching: Promise<void> | undefined
}

const AGAIN_MS = 1_000

export class LineObservers {
  readonly #sessions: ClassSessions
  readonly #names: ZooKeeperNames
  readonly #clock: Clock
  readonly #lines = new Map<string, ObservedLine>()

  constructor(sessions: ClassSessions, names: ZooKeeperNames, clock: Clock) {
    this.#sessions = sessions
    this.#names = names
    this.#clock = clock
  }

  /** Resolves when no change is missed any more. */
  async add(key: string, listener: () => void): Promise<AsyncDisposable> {
    const path = this.#names.line(key)
    const line: ObservedLine = this.#lines.get(path) ?? {
      path,
      listeners: new Set(),
      session: undefined,
      watching: undefined,
    }
    this.#lines.set(path, line)
    line.listeners.add(listener)
    const remove = (): void => {
      line.listeners.delete(listener)
      if (line.listeners.size === 0 && this.#lines.get(path) === line) this.#lines.delete(path)
    }
    try {
      await (line.session?.usable === true ? line.watching : this.#watch(line))
    } catch (error) {
      remove()
      throw error
    }
    return { [Symbol.asyncDispose]: async () => remove() }
  }

  /** The watch of this node has told something. */
  changed(path: string): void {
    const line = this.#lines.get(path)
    if (line !== undefined) this.#watchAgain(line)
  }

  /** The watches of this session are gone, with it. */
  ended(session: ClassSession): void {
    for (const line of this.#lines.values()) if (line.session === session) this.#watchAgain(line)
  }

  stop(): void {
    this.#lines.clear()
  }

  #watchAgain(line: ObservedLine): void {
    const isObserved = (): boolean => this.#lines.get(line.path) === line
    const tell = (): void => {
      if (isObserved()) for (const listener of line.listeners) listener()
    }
    this.#watch(line).then(tell, () => {
      // The observer looks, and finds out why.
      tell()
      this.#clock.timer(AGAIN_MS, () => {
        if (isObserved() && line.session === undefined) this.#watchAgain(line)
      })
    })
  }

  async #watch(line: ObservedLine): Promise<void> {
    const watching = this.#askForWatch(line)
    line.watching = watching
    try {
      await watching
    } catch (error) {
      if (line.watching === watching) line.session = undefined
      throw error
    }
  }

  async #askForWatch(line: ObservedLine): Promise<void> {
    const session = await this.#sessions.any('watch')
    line.session = session
    for (;;) {
      try {
        await session.zk.getChildren(line.path, { watch: true })
        return
      } catch (error) {
        if (!hasCode(error, 'noNode')) throw error
      }
      // A line without a node is watched until it has one.
      if ((await session.zk.exists(line.path, { watch: true })) === undefined) return
    }
  }
}
