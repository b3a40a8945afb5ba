/**
 * The actors of one run. Starting a process is the dearest part of a case that has actors, so one to which nothing
 * lasting was done acts again in the next case, with a new engine.
 */
import type { World } from '../world.ts'
import { Actor, type ActorOptions, type OnUnhandled } from './client.ts'

export class ActorPool {
  readonly #world: World
  readonly #onUnhandled: OnUnhandled
  readonly #idle: Actor[] = []

  constructor(world: World, onUnhandled: OnUnhandled) {
    this.#world = world
    this.#onUnhandled = onUnhandled
  }

  async take(options: ActorOptions): Promise<Actor> {
    const actor = this.#idle.pop() ?? (await this.#start())
    try {
      await actor.open(options)
      return actor
    } catch (error) {
      await actor.kill()
      throw error
    }
  }

  async giveBack(actor: Actor): Promise<void> {
    if (!actor.reusable) return actor.kill()
    await actor.ask('close', {})
    this.#idle.push(actor)
  }

  async close(): Promise<void> {
    await Promise.all(this.#idle.splice(0).map((actor) => actor.kill()))
  }

  async #start(): Promise<Actor> {
    if (this.#world.actor === undefined) throw new Error('a case that has actors needs them')
    return Actor.start(await this.#world.actor(), this.#onUnhandled)
  }
}
