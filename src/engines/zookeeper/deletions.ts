/**
 * Deleting nodes for certain. An entry that was given up must not live on, and it does not expire by itself as long as
 * its session lives for others. So what could not be deleted is kept in mind, and tried again.
 *
 * Several are deleted in one transaction, which the servers write once. It does all or nothing: where one of the nodes
 * has gone already, each is deleted by itself.
 */
import { hasCode, wasRefused } from '../../clients/zookeeper/errors.ts'
import type { ZooKeeperSession } from '../../clients/zookeeper/session.ts'
import { inGroups } from './request-results.ts'

export class SureDeletions {
  readonly #zk: ZooKeeperSession
  readonly #failed: () => void
  /** Paths that have to be deleted, and could not be yet. */
  readonly #undeleted = new Set<string>()

  /** `failed`: something is to be tried again. */
  constructor(zk: ZooKeeperSession, failed: () => void) {
    this.#zk = zk
    this.#failed = failed
  }

  get areLeft(): boolean {
    return this.#undeleted.size > 0
  }

  /** Delete a node, now or later. Answers whether it was there; rejects if that is not known yet. */
  async delete(path: string): Promise<boolean> {
    this.#undeleted.delete(path)
    try {
      await this.#zk.delete(path)
      return true
    } catch (error) {
      if (hasCode(error, 'noNode')) return false
      this.later(path)
      throw error
    }
  }

  /** The same for several. All of them are sent before the first is answered. */
  deleteAll(paths: readonly string[]): readonly Promise<boolean>[] {
    return inGroups(paths).flatMap((group) => {
      if (group.length === 1) return group.map((path) => this.delete(path))
      const done = this.#zk.deleteAll(group)
      return group.map(async (path) => {
        try {
          await done
          this.#undeleted.delete(path)
          return true
        } catch (error) {
          if (wasRefused(error)) return await this.delete(path)
          this.later(path)
          throw error
        }
      })
    })
  }

  later(path: string): void {
    this.#undeleted.add(path)
    this.#failed()
  }

  /** Try again what could not be deleted. `onDeleted`: this path was deleted, or had gone. */
  retry(onDeleted: (path: string) => void): void {
    for (const path of [...this.#undeleted])
      this.delete(path).then(
        () => onDeleted(path),
        () => {},
      )
  }
}
