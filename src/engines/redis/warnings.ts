/**
 * What somebody should know about a server, told on the diagnostics channel `holdfast:warning`: each kind once for each
 * engine object.
 */
import { type Channel, channel } from 'node:diagnostics_channel'
import { ENGINE } from '../../clients/redis/errors.ts'
import type { RedisFinding } from './diagnose.ts'

/** `{ engine, name, message }`. */
const told: Channel = channel('holdfast:warning')

export class Warnings {
  readonly #known = new Set<string>()

  /** Whether anybody would hear them. */
  get heard(): boolean {
    return told.hasSubscribers
  }

  tell({ name, finding, todo }: Pick<RedisFinding, 'name' | 'finding' | 'todo'>): void {
    if (!this.heard || this.#known.has(name)) return
    this.#known.add(name)
    told.publish({ engine: ENGINE, name, message: todo === undefined ? finding : `${finding}: ${todo}` })
  }
}
