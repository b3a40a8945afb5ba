/**
 * The knowledge of one process: what it was told about its own entries, as opposed to what the witness sees. From this
 * the history learns of the moments that are easily got wrong: a grant announced too early or too late, an answer
 * overtaken by a later one, another token, a gap.
 */
import type { News, Standing } from '../src/core/engine.ts'
import type { Call, UnconfirmedGrant } from './history.ts'
import type { World } from './world.ts'

interface Known {
  standing: 'entering' | 'waiting' | 'held' | 'gone'
  /** The send of the last request that was answered. */
  answeredSend: number
  token: bigint | undefined
  /** When it was first told of that token. */
  tokenKnownAt: number
  /** When a grant was announced that was faster than the answer to the enter. */
  announcedAt: number
  /** An enter of it had an unknown outcome. */
  doubtful: boolean
  /** The last enter, and the signal by which the core gives up on it. */
  enter: Call
  signal: AbortSignal | undefined
}

export class ProcessKnowledge {
  readonly #world: World
  readonly #process: number
  readonly #known = new Map<string, Known>()
  /** Calls that the process has no answer to. One that has vanished stays among them. */
  #unanswered = 0

  constructor(world: World, process: number) {
    this.#world = world
    this.#process = process
  }

  sends(call: Call, signal: AbortSignal | undefined): void {
    this.#unanswered += 1
    for (const { id } of call.items) {
      const known = this.#known.get(id)
      if (known !== undefined) this.#noteGivenUp(known)
      if (call.verb === 'leave') this.#known.delete(id)
      else if (call.verb === 'enter') this.#enters(id, call, signal)
    }
  }

  answered(call: Call, answers: readonly (Standing | boolean)[]): void {
    this.#unanswered -= 1
    call.items.forEach(({ key, id }, index) => {
      const answer = answers[index] as Standing | boolean
      const known = this.#known.get(id)
      if (known === undefined || typeof answer === 'boolean') return
      if (answer.state === 'gone') this.#gone(known, answer.why)
      else if (answer.state === 'failed') known.doubtful ||= call.verb === 'enter'
      else if (answer.state !== 'busy') this.#stands(call, key, known, answer)
    })
  }

  /** The call failed, and the process was told. */
  failed(call: Call, outcome: 'not applied' | 'unknown'): void {
    this.#unanswered -= 1
    if (call.verb !== 'enter' || outcome !== 'unknown') return
    this.#world.coverage.unknownEnters += 1
    for (const { id } of call.items) {
      const known = this.#known.get(id)
      if (known !== undefined) known.doubtful = true
    }
  }

  hears({ key, id, standing }: Exclude<News, { gap: true }>): void {
    const { coverage, conditions, now } = this.#world
    const known = this.#known.get(id)
    if (known !== undefined) known.announcedAt = Number.NEGATIVE_INFINITY
    if (known === undefined || standing?.state !== 'held') return
    const token = standing.token as bigint
    this.#learns(known, token)
    if (known.standing === 'entering') coverage.earlyNews += 1
    if (known.standing === 'waiting' && now - known.answeredSend > conditions.ttlMs / 2) coverage.tardyNews += 1
    if (known.doubtful) this.#unconfirmed(key, token, 'news after an enter of unknown outcome')
    else if (known.standing === 'waiting') known.standing = 'held'
    else known.announcedAt = now
  }

  hearsOfGap(): void {
    const { coverage, history, now } = this.#world
    coverage.gaps += 1
    for (const known of this.#known.values()) known.announcedAt = Number.NEGATIVE_INFINITY
    if (this.#unanswered > 0) return
    const waiting = [...this.#known].filter(([, { standing }]) => standing === 'waiting').map(([id]) => id)
    history.gaps.push({ at: now, process: this.#process, waiting })
  }

  #enters(id: string, enter: Call, signal: AbortSignal | undefined): void {
    const known = this.#known.get(id)
    if (known === undefined) {
      this.#known.set(id, {
        standing: 'entering',
        answeredSend: 0,
        token: undefined,
        tokenKnownAt: Number.POSITIVE_INFINITY,
        announcedAt: Number.NEGATIVE_INFINITY,
        doubtful: false,
        enter,
        signal,
      })
    } else {
      known.enter = enter
      known.signal = signal
    }
  }

  /** The core does not say when it gives up on a call; its signal does. */
  #noteGivenUp(known: Known): void {
    if (known.enter.overAt !== undefined || !known.signal?.aborted) return
    known.enter.overAt = this.#world.now
    known.doubtful = true
    this.#world.coverage.unknownEnters += 1
  }

  /** Still known, because an enter of it may be on its way. */
  #gone(known: Known, why: string): void {
    const { standing } = known
    known.standing = 'gone'
    if (standing !== 'waiting') return
    if (why === 'evicted') this.#world.coverage.evictedWaiters += 1
    else this.#world.coverage.reentries += 1
  }

  #stands(call: Call, key: string, known: Known, answer: Extract<Standing, { state: 'held' | 'waiting' }>): void {
    const { history, now } = this.#world
    const overtaken = call.sentAt < known.answeredSend
    known.answeredSend = Math.max(known.answeredSend, call.sentAt)
    if (answer.state === 'held') {
      const token = answer.token as bigint
      this.#learns(known, token)
      if (known.standing === 'waiting' && overtaken) this.#unconfirmed(key, token, 'overtaken by a later answer')
      // What was asked before the token was known may have been answered before it was given.
      if (
        call.verb === 'renew' &&
        known.token !== undefined &&
        known.token !== token &&
        call.sentAt > known.tokenKnownAt
      )
        history.replacements.push({ at: now, process: this.#process, key, token: known.token })
    }
    if (known.standing === 'held' || known.standing === 'gone') return
    known.standing = known.announcedAt >= call.sentAt && !known.doubtful ? 'held' : answer.state
  }

  #learns(known: Known, token: bigint): void {
    if (known.token !== undefined) return
    known.token = token
    known.tokenKnownAt = this.#world.now
  }

  #unconfirmed(key: string, token: bigint, why: UnconfirmedGrant['why']): void {
    this.#world.history.unconfirmedGrants.push({ at: this.#world.now, process: this.#process, key, token, why })
  }
}
