/**
 * The other half of a link: the subscription, and the news that comes along it.
 *
 * An outage loses the news of its time; when the subscription stands again, a gap is announced. Now and then a message is lost without any outage, as
 * published messages may be: then the waiter's own renewal has to repair it.
 */
import type { News, Standing } from '../src/core/engine.ts'
import type { Call, Rumour } from './history.ts'
import type { SimulatedProcess } from './process.ts'
import type { World } from './world.ts'

/** What the process was last told about an entry of its own. */
interface Known {
  standing: 'entering' | 'waiting' | 'held'
  /** The send of the last request that was answered. */
  answeredSend: number
  token: bigint | undefined
  /** An enter of it had an unknown outcome. */
  doubtful: boolean
  /** The last enter, and the signal by which the core gives up on it. */
  enter: Call
  signal: AbortSignal | undefined
}

export abstract class Newsline {
  protected readonly world: World
  protected readonly process: SimulatedProcess
  /** How the server knows this client. */
  readonly client: { listener: ((news: News) => void) | undefined } = { listener: undefined }
  protected closed = false
  #cutUntil = 0
  /** Usually one. A subscription that the core had given up on may come to stand besides its successor, until the core ends it. */
  readonly #listeners = new Set<(news: News) => void>()
  #failures: number
  readonly #known = new Map<string, Known>()
  /** Calls that nobody has told the process anything about. One that has vanished stays among them. */
  #unanswered = 0

  constructor(world: World, process: SimulatedProcess) {
    this.world = world
    this.process = process
    this.#failures = world.climate.subscription === 'fails at first' ? world.random.whole(1, 2) : 0
  }

  /** Nothing gets through, in either direction. */
  get severed(): boolean {
    return this.closed || this.world.now < this.#cutUntil
  }

  /** No way to the server for so long. */
  blackOut(durationMs: number): void {
    this.#cutUntil = Math.max(this.#cutUntil, this.world.now + durationMs)
    this.interrupt(durationMs)
  }

  /** The subscription is gone, and stands again a moment after `durationMs`. */
  interrupt(durationMs: number): void {
    const { world, process } = this
    if (this.client.listener === undefined) return
    this.client.listener = undefined
    const again = durationMs + world.random.between(0, world.climate.delayMs * 4)
    process.schedule(again, 'io', () => {
      if (this.closed) return
      this.#stand()
      world.coverage.gaps += 1
      if (this.#unanswered === 0) world.history.gaps.push({ at: world.now, process: process.number, waiting: this.#waiting() })
      if (world.logging) world.log(process.name, 'hears of a gap')
      this.#tell({ gap: true })
    })
  }

  close(): void {
    this.closed = true
    this.client.listener = undefined
  }

  /** The process has died. */
  cut(): void {
    this.closed = true
    this.client.listener = undefined
  }

  subscribe(listener: (news: News) => void): Promise<AsyncDisposable> {
    const { world, process } = this
    const { climate, random } = world
    const trouble = climate.subscription === 'slow' ? random.between(0, climate.ttlMs) : 0
    if (trouble > 0) world.fault('slow subscription', process.number, trouble)
    const inMs = random.between(climate.delayMs / 5, climate.delayMs * 2) + trouble
    return new Promise((resolve, reject) => {
      process.schedule(inMs, 'io', () => {
        if (this.#failures > 0 || this.severed) {
          this.#failures -= 1
          world.fault('failed subscription', process.number)
          return reject(new Error('cannot subscribe yet'))
        }
        this.#listeners.add(listener)
        this.#stand()
        if (world.logging) world.log(process.name, 'is subscribed')
        resolve({ [Symbol.asyncDispose]: async () => this.#unsubscribe(listener) })
      })
    })
  }

  #unsubscribe(listener: (news: News) => void): void {
    this.#listeners.delete(listener)
    if (this.#listeners.size === 0) this.client.listener = undefined
  }

  #tell(news: News): void {
    for (const listener of this.#listeners) listener(news)
  }

  #stand(): void {
    this.client.listener = (news) => this.#news(news)
  }

  #news(news: News): void {
    const { world, process } = this
    const { climate, random, calm } = world
    if (!calm && random.happens(climate.loseNews)) {
      world.fault('lost news', process.number)
      return
    }
    this.#sendNews(news)
    if (calm || !random.happens(climate.duplicateNews)) return
    world.fault('duplicated news', process.number)
    this.#sendNews(news)
  }

  #sendNews(news: News): void {
    const { world, process } = this
    const { climate, random, calm } = world
    let delayMs = random.between(climate.delayMs / 10, climate.delayMs)
    if (!calm && random.happens(climate.slowNews)) {
      delayMs = random.between(0, climate.ttlMs * random.pick([0.3, 1, 2.5]))
      world.fault('slow news', process.number, delayMs)
    }
    process.schedule(delayMs, 'io', () => {
      if (this.severed || 'gap' in news) return
      this.#noteGrant(news)
      if (world.logging) world.log(process.name, `hears news of ${news.id}${climate.news === 'bare' ? '' : `: ${news.standing?.state}`}`)
      this.#tell(climate.news === 'bare' ? { key: news.key, id: news.id } : news)
    })
  }

  // ---- what the process was told, for the record of interesting moments ----

  protected sends(call: Call, signal: AbortSignal | undefined): void {
    this.#unanswered += 1
    for (const { id } of call.items) {
      const known = this.#known.get(id)
      // The core may use one signal for several calls, one after the other: it speaks of this one only until it is over.
      if (known?.enter.overAt === undefined && known?.signal?.aborted) {
        known.enter.overAt = this.world.now
        known.doubtful = true
        this.world.coverage.unknownEnters += 1
      }
      if (call.verb === 'leave') this.#known.delete(id)
      if (call.verb !== 'enter') continue
      if (known === undefined)
        this.#known.set(id, { standing: 'entering', answeredSend: 0, token: undefined, doubtful: false, enter: call, signal })
      else Object.assign(known, { enter: call, signal })
    }
  }

  protected answered(call: Call, answers: readonly (Standing | boolean)[]): void {
    this.#unanswered -= 1
    call.items.forEach(({ key, id }, index) => {
      const standing = answers[index] as Standing | boolean
      const known = this.#known.get(id)
      if (known === undefined || typeof standing === 'boolean') return
      if (standing.state === 'gone') this.#known.delete(id)
      if (standing.state === 'gone' && known.standing === 'waiting') {
        if (standing.why === 'evicted') this.world.coverage.evictedWaiters += 1
        else this.world.coverage.reentries += 1
      }
      if (standing.state !== 'held' && standing.state !== 'waiting') return
      if (standing.state === 'held' && known.standing === 'waiting' && call.sentAt < known.answeredSend) {
        this.#rumour(key, standing.token as bigint, 'overtaken by a later answer')
      }
      known.answeredSend = Math.max(known.answeredSend, call.sentAt)
      if (standing.state === 'held') this.#noteToken(call, key, known, standing.token as bigint)
      if (known.standing !== 'held') known.standing = standing.state
    })
  }

  /** The call failed, and the process was told. */
  protected failed(call: Call, outcome: 'not applied' | 'unknown'): void {
    this.#unanswered -= 1
    if (call.verb !== 'enter' || outcome !== 'unknown') return
    this.world.coverage.unknownEnters += 1
    for (const { id } of call.items) {
      const known = this.#known.get(id)
      if (known !== undefined) known.doubtful = true
    }
  }

  #rumour(key: string, token: bigint, why: Rumour['why']): void {
    this.world.history.rumours.push({ at: this.world.now, process: this.process.number, key, token, why })
  }

  #noteToken({ verb, process }: Call, key: string, known: Known, token: bigint): void {
    const { history, now } = this.world
    known.token ??= token
    if (verb === 'renew' && known.token !== token) history.replacements.push({ at: now, process, key, token: known.token })
  }

  #waiting(): readonly string[] {
    const ids: string[] = []
    for (const [id, { standing }] of this.#known) if (standing === 'waiting') ids.push(id)
    return ids
  }

  #noteGrant({ key, id, standing }: Exclude<News, { gap: true }>): void {
    const known = this.#known.get(id)
    if (known === undefined || standing?.state !== 'held') return
    known.token ??= standing.token as bigint
    if (known.standing === 'entering') this.world.coverage.earlyNews += 1
    if (known.standing === 'waiting' && this.world.now - known.answeredSend > this.world.climate.ttlMs / 2)
      this.world.coverage.tardyNews += 1
    if (known.doubtful) this.#rumour(key, standing.token as bigint, 'news after an enter of unknown outcome')
    else if (known.standing === 'waiting') known.standing = 'held'
  }
}
