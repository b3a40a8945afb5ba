/**
 * The way between one process and the server, and everything that can go wrong on it.
 *
 *     process ── request ──► server ── reply ──► process   delayed, lost, overtaken; a request also doubled, refused
 *     process ◄────────────── news ── server                    delayed, lost, doubled; after an outage, a gap
 *
 * A call that vanishes is never answered, or answered by "connection lost": both mean that the caller
 * cannot know. Only `refused` promises that nothing was applied.
 */
import type { Standing } from '../src/core/engine.ts'
import { EngineError } from '../src/core/errors.ts'
import type { Call, FaultKind } from './history.ts'
import { NewsDelivery } from './news-delivery.ts'
import type { SimulatedProcess } from './process.ts'
import { ProcessKnowledge } from './process-knowledge.ts'
import type { World } from './world.ts'

type Answer = Standing | boolean

type Way = 'there' | 'back'

type Fate = 'arrives' | 'lost' | 'refused'

interface Flight {
  readonly call: Call
  readonly signal: AbortSignal | undefined
  readonly apply: () => Answer[]
  readonly resolve: (answers: Answer[]) => void
  readonly reject: (error: unknown) => void
  /** It waits in the client's own queue, and is dropped there if the core gives up first. */
  readonly unsent: boolean
}

/** What comes right behind another, on one connection. */
const APART_MS = 1e-6

export class Link {
  readonly knowledge: ProcessKnowledge
  readonly news: NewsDelivery
  /** Its process has closed it, or died. */
  closed = false
  readonly #world: World
  readonly #process: SimulatedProcess
  /** Where messages do not overtake: when the last one of each way arrives. */
  readonly #lastArrival: Record<Way, number> = { there: 0, back: 0 }
  readonly #lastSend: Partial<Record<Call['verb'], number>> = {}
  #darkUntil = 0

  constructor(world: World, process: SimulatedProcess) {
    this.#world = world
    this.#process = process
    this.knowledge = new ProcessKnowledge(world, process.number)
    this.news = new NewsDelivery(world, process, this)
  }

  /** Nothing gets through, in either direction. */
  get severed(): boolean {
    return this.closed || this.#world.now < this.#darkUntil
  }

  /** No way to the server for so long. */
  blackOut(durationMs: number): void {
    this.#darkUntil = Math.max(this.#darkUntil, this.#world.now + durationMs)
    this.news.interrupt(durationMs)
  }

  close(): void {
    this.closed = true
    this.news.close()
  }

  call<Given extends Answer>(
    verb: Call['verb'],
    items: Call['items'],
    signal: AbortSignal | undefined,
    apply: () => Given[],
  ): Promise<Given[]> {
    const { number } = this.#process
    const world = this.#world
    const call: Call = {
      process: number,
      verb,
      items,
      sentAt: world.now,
      subscribedFirst: verb === 'enter' && world.history.subscribedAt.get(number) === world.now,
      overAt: signal === undefined ? world.now : undefined,
      gone: [],
      goneAt: 0,
    }
    world.history.calls.push(call)
    if (items.length > 1) world.coverage.sharedCalls += 1
    if (this.#lastSend[verb] === world.now) world.coverage.halvedBatches += 1
    this.#lastSend[verb] = world.now
    signal?.addEventListener('abort', () => {
      call.givenUpAt = world.now
    })
    this.knowledge.sends(call, signal)
    if (world.logging)
      world.log(this.#process.name, `sends ${verb} ${items.map(({ key, id }) => `${key}/${id}`).join(' ')}`)
    return new Promise<Given[]>((resolve, reject) => {
      const unsent = world.random.happens(0.2)
      this.#depart({ call, signal, apply, resolve: resolve as Flight['resolve'], reject, unsent })
    })
  }

  /** A question that changes nothing: it can be lost too, without harm. */
  ask<Given>(look: () => Given): Promise<Given> {
    const { conditions, server, witness } = this.#world
    return new Promise((resolve, reject) => {
      if (this.severed || this.#befalls(conditions.loseRequest, 'lost request')) return
      server.schedule(this.#delayMs('there'), 'io', () => {
        if (server.down) return
        const answer = look()
        // It makes the server see what has expired.
        witness.looksAround()
        this.#process.schedule(this.#delayMs('back'), 'io', () =>
          this.closed ? reject(new Error('closed')) : resolve(answer),
        )
      })
    })
  }

  #depart(flight: Flight): void {
    const fate = this.#fateOfRequest()
    if (fate === 'refused') this.#refuse(flight)
    else if (fate === 'lost') this.#vanish(flight)
    else this.#travel(flight)
  }

  #fateOfRequest(): Fate {
    const { conditions } = this.#world
    if (this.closed || (!this.severed && this.#befalls(conditions.refuse, 'refused call'))) return 'refused'
    return this.severed || this.#befalls(conditions.loseRequest, 'lost request') ? 'lost' : 'arrives'
  }

  #travel(flight: Flight): void {
    const { server, witness, random, conditions } = this.#world
    server.schedule(this.#delayMs('there'), 'io', () => this.#arrive(flight))
    if (this.#world.calm || !random.happens(conditions.duplicate)) return
    const laterMs = this.#delayMs('there') + random.between(0, conditions.ttlMs * 1.5)
    this.#world.fault('duplicated request', this.#process.number, laterMs)
    server.schedule(laterMs, 'io', () => {
      witness.echo = true
      if (!server.down) flight.apply()
      witness.echo = false
    })
  }

  #arrive(flight: Flight): void {
    const { server, random, witness } = this.#world
    if (flight.unsent && flight.signal?.aborted) return
    if (server.down && !this.severed && random.happens(0.5)) this.#refuse(flight)
    else if (server.down || this.severed) this.#vanish(flight)
    else {
      witness.sentAt = this.#countedFrom(flight.call)
      this.#answer(flight, flight.apply())
      witness.sentAt = Number.POSITIVE_INFINITY
    }
  }

  #answer(flight: Flight, answers: Answer[]): void {
    const { conditions, random } = this.#world
    if (flight.call.verb !== 'leave' && this.#befalls(conditions.failItem, 'failed item')) {
      const error = new EngineError('simulated', 'a script error', { outcome: 'unknown' })
      answers[random.whole(0, answers.length - 1)] = { state: 'failed', error }
    }
    if (this.#befalls(conditions.loseReply, 'lost reply')) {
      this.#vanish(flight)
      return
    }
    this.#process.schedule(this.#delayMs('back'), 'io', () => {
      if (this.severed) this.#vanish(flight)
      else this.#deliver(flight, answers)
    })
  }

  #deliver(flight: Flight, answers: Answer[]): void {
    const { call, signal, resolve } = flight
    const world = this.#world
    const process = this.#process
    if (world.logging)
      world.log(
        process.name,
        `hears of ${call.verb}: ${answers.map((answer, i) => `${call.items[i]?.id} ${described(answer)}`).join(', ')}`,
      )
    if (call.overAt === undefined && signal?.aborted) world.coverage.lateAnswers += 1
    call.overAt ??= world.now
    call.heardAt = world.now
    call.answers = answers
    call.goneAt = world.now
    call.gone = call.items.filter((_, i) => isGone(answers[i] as Answer)).map(({ id }) => id)
    this.knowledge.answered(call, answers)
    resolve(answers)
  }

  #refuse({ call, reject }: Flight): void {
    const world = this.#world
    const process = this.#process
    process.schedule(this.#delayMs('back'), 'io', () => {
      if (world.logging) world.log(process.name, `hears that ${call.verb} was refused`)
      call.overAt ??= world.now
      call.heardAt = world.now
      this.knowledge.failed(call, 'not applied')
      reject(new EngineError('simulated', 'connection refused', { outcome: 'not-applied' }))
    })
  }

  /** Never answered; or the client notices that the connection is gone. */
  #vanish({ call, reject }: Flight): void {
    const world = this.#world
    const process = this.#process
    if (!world.random.happens(0.3)) return
    process.schedule(world.random.between(0, world.conditions.ttlMs / 2), 'io', () => {
      if (world.logging) world.log(process.name, `hears that the connection was lost during ${call.verb}`)
      call.overAt ??= world.now
      call.heardAt = world.now
      this.knowledge.failed(call, 'unknown')
      reject(new Error('connection lost'))
    })
  }

  /** From when on the core counts what it sent with `call`, at the earliest. */
  #countedFrom({ items, sentAt, subscribedFirst }: Call): number {
    if (!subscribedFirst) return sentAt
    const { askedAt } = this.#world.history
    return items.reduce((earliest, { id }) => Math.min(earliest, askedAt.get(id) ?? earliest), sentAt)
  }

  #befalls(probability: number, kind: FaultKind): boolean {
    if (this.#world.calm || !this.#world.random.happens(probability)) return false
    this.#world.fault(kind, this.#process.number)
    return true
  }

  #delayMs(way: Way): number {
    const { conditions, random, now, calm } = this.#world
    let delayMs = random.between(conditions.delayMs / 10, conditions.delayMs)
    if (!calm && random.happens(conditions.slow)) {
      delayMs = random.between(conditions.delayMs, conditions.ttlMs * random.pick([0.3, 1, 2.5]))
      this.#world.fault('slow message', this.#process.number, delayMs)
    }
    if (conditions.reorder) return delayMs
    // One connection: nothing overtakes.
    const at = Math.max(now + delayMs, this.#lastArrival[way] + APART_MS)
    this.#lastArrival[way] = at
    return at - now
  }
}

function isGone(answer: Answer): boolean {
  return typeof answer === 'object' && answer.state === 'gone'
}

function described(answer: Answer): string {
  if (typeof answer === 'boolean') return answer ? 'left' : 'was not there'
  if (answer.state === 'held') return `held, token ${answer.token}, ${answer.heldForMs.toFixed(1)} ms`
  return answer.state === 'gone' ? `gone (${answer.why})` : answer.state
}
