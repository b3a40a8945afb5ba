/**
 * Observers of lines, who have no entry in them. Each line that is observed has one watch of its children. A watch
 * tells once: it is set again first, and then the observer is told, so that it misses nothing when it looks.
 */
import { hasCode } from '../../clients/zookeeper/errors.ts'
import type { ClassSession } from './class-session.ts'
import type { ClassSessions } from './class-sessions.ts'
import type { ZooKeeperNames } from './names.ts'

interface ObservedLine {
  readonly path: string
  readonly listeners: Set<() => void>
  /** The session that has the watch. */
  session: ClassSession | undefined
}

export class LineObservers {
  readonly #sessions: ClassSessions
  readonly #names: ZooKeeperNames
  readonly #lines = new Map<string, ObservedLine>()

  constructor(sessions: ClassSessions, names: ZooKeeperNames) {
    this.#sessions = sessions
    this.#names = names
  }

  /** Resolves when no change is missed any more. */
  async add(key: string, listener: () => void): Promise<AsyncDisposable> {
    const path = this.#names.line(key)
    const line = this.#lines.get(path) ?? { path, listeners: new Set<() => void>(), session: undefined }
    this.#lines.set(path, line)
    line.listeners.add(listener)
    const remove = (): void => {
      line.listeners.delete(listener)
      if (line.listeners.size === 0 && this.#lines.get(path) === line) this.#lines.delete(path)
    }
    try {
      if (line.session?.usable !== true) await this.#watch(line)
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
    const tell = (): void => {
      if (this.#lines.get(line.path) === line) for (const listener of line.listeners) listener()
    }
    this.#watch(line).then(tell, () => {
      line.session = undefined
      // The observer looks, and finds out why. The next one that is added sets the watch.
      tell()
    })
  }

  async #watch(line: ObservedLine): Promise<void> {
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
