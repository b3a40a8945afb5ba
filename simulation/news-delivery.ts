/**
 * The other half of a link: the subscription of one process, and the delivery of the server's news to it.
 *
 * An outage loses the news of its time; when the subscription stands again, a gap is announced. Now and then a message
 * is lost without any outage, as published messages may be: then the waiter's own renewal has to repair it.
 */
import type { News } from '../src/core/engine.ts'
import type { Link } from './link.ts'
import type { SimulatedProcess } from './process.ts'
import type { World } from './world.ts'

type Listener = (news: News) => void

export class NewsDelivery {
  /** How the server knows this client. */
  readonly client: { listener: Listener | undefined } = { listener: undefined }
  readonly #world: World
  readonly #process: SimulatedProcess
  readonly #link: Link
  /**
   * Usually one. A subscription that the core had given up on may come to stand besides its successor, until the core
   * ends it.
   */
  readonly #listeners = new Set<Listener>()
  #failures: number

  constructor(world: World, process: SimulatedProcess, link: Link) {
    this.#world = world
    this.#process = process
    this.#link = link
    this.#failures = world.conditions.subscription === 'fails at first' ? world.random.whole(1, 2) : 0
  }

  subscribe(listener: Listener): Promise<AsyncDisposable> {
    const { conditions, random } = this.#world
    const troubleMs = conditions.subscription === 'slow' ? random.between(0, conditions.ttlMs) : 0
    if (troubleMs > 0) this.#world.fault('slow subscription', this.#process.number, troubleMs)
    return new Promise((resolve, reject) => {
      this.#process.schedule(random.between(conditions.delayMs / 5, conditions.delayMs * 2) + troubleMs, 'io', () => {
        if (this.#failures > 0 || this.#link.severed) {
          this.#failures -= 1
          this.#world.fault('failed subscription', this.#process.number)
          reject(new Error('cannot subscribe yet'))
          return
        }
        this.#listeners.add(listener)
        this.#world.history.subscribedAt.set(this.#process.number, this.#world.now)
        this.#stand()
        if (this.#world.logging) this.#world.log(this.#process.name, 'is subscribed')
        resolve({ [Symbol.asyncDispose]: async () => this.#unsubscribe(listener) })
      })
    })
  }

  /** A hint whenever the line of `key` may have changed, for observers. It takes its time, like everything. */
  async watch(key: string, listener: () => void): Promise<AsyncDisposable> {
    const { server, conditions, random } = this.#world
    const stop = server.lines.watch(key, () => {
      this.#process.schedule(random.between(0, conditions.delayMs), 'io', listener)
    })
    return { [Symbol.asyncDispose]: async () => stop() }
  }

  /** The subscription is gone, and stands again a moment after `durationMs`. */
  interrupt(durationMs: number): void {
    const { random, conditions } = this.#world
    if (this.client.listener === undefined) return
    this.client.listener = undefined
    this.#process.schedule(durationMs + random.between(0, conditions.delayMs * 4), 'io', () => {
      if (this.#link.closed) return
      this.#stand()
      if (this.#world.logging) this.#world.log(this.#process.name, 'hears of a gap')
      this.#link.knowledge.hearsOfGap()
      this.#tell({ gap: true })
    })
  }

  close(): void {
    this.client.listener = undefined
  }

  #unsubscribe(listener: Listener): void {
    this.#listeners.delete(listener)
    if (this.#listeners.size > 0) return
    this.client.listener = undefined
    // One that stood too late, and had been given up.
    if (!this.#process.ending) this.#world.history.subscribedAt.delete(this.#process.number)
  }

  #stand(): void {
    this.client.listener = (news) => this.#publish(news)
  }

  #tell(news: News): void {
    for (const listener of this.#listeners) listener(news)
  }

  #publish(news: News): void {
    const { conditions, random, calm } = this.#world
    if (!calm && random.happens(conditions.loseNews)) {
      this.#world.fault('lost news', this.#process.number)
      return
    }
    this.#send(news)
    if (calm || !random.happens(conditions.duplicateNews)) return
    this.#world.fault('duplicated news', this.#process.number)
    this.#send(news)
  }

  #send(news: News): void {
    const { conditions, random, calm } = this.#world
    let delayMs = random.between(conditions.delayMs / 10, conditions.delayMs)
    if (!calm && random.happens(conditions.slowNews)) {
      delayMs = random.between(0, conditions.ttlMs * random.pick([0.3, 1, 2.5]))
      this.#world.fault('slow news', this.#process.number, delayMs)
    }
    this.#process.schedule(delayMs, 'io', () => this.#deliver(news))
  }

  #deliver(news: News): void {
    if (this.#link.severed || 'gap' in news) return
    const { key, id, standing } = news
    const bare = this.#world.conditions.news === 'bare'
    if (this.#world.logging)
      this.#world.log(this.#process.name, `hears news of ${id}${bare ? '' : `: ${standing?.state}`}`)
    if (!bare) this.#link.knowledge.hears(news)
    this.#tell(bare ? { key, id } : news)
  }
}
