/**
 * What the user should know about a server, published as the event `warning`: each kind once for each engine object.
 */
import { ENGINE } from '../../clients/redis/errors.ts'
import { channels, publish } from '../../core/diagnostics.ts'
import type { Finding } from '../../core/engine.ts'

export class Warnings {
  readonly #known = new Set<string>()

  /** Whether the event has subscribers. */
  get heard(): boolean {
    return channels.warning.hasSubscribers
  }

  tell({ name, finding, todo }: Pick<Finding, 'name' | 'finding' | 'todo'>): void {
    if (!this.heard || this.#known.has(name)) return
    this.#known.add(name)
    publish.warning({ engine: ENGINE, name, message: todo === undefined ? finding : `${finding}: ${todo}` })
  }
}
