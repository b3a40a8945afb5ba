/**
 * A process that takes locks, holds them, renews them, gives them back, gives up, and sometimes stalls. It does with
 * the majority what the core does: it counts from the send, it repeats what failed, and it leaves again and again where
 * an outcome is unknown.
 */
import type { Clock } from '../../src/core/clock.ts'
import type { Standing } from '../../src/core/engine.ts'
import { marginMs } from '../../src/core/entry.ts'
import { Majority } from '../../src/engines/redlock/majority.ts'
import type { Random } from '../random.ts'
import type { Link } from './link.ts'
import type { Record } from './record.ts'
import type { Time } from './time.ts'

export interface Setting {
  readonly time: Time
  readonly chance: Random
  readonly record: Record
  readonly links: readonly Link[]
  readonly keys: readonly string[]
  readonly ttlMs: number
  readonly timeoutMs: number
  /** Hears what was given back. */
  readonly left: (key: string, id: string) => void
}

/** One asking, from the first enter to the last leave. */
interface Errand {
  readonly key: string
  readonly id: string
  readonly wait: boolean
  /** What every token granted before the last attempt was below. */
  floor: number
  deadline: number
  held: boolean
  over: boolean
  doubtful: boolean
}

export class Client {
  readonly #setting: Setting
  readonly #clock: Clock
  readonly #majority: Majority
  #stopped = false
  #errands = 0

  constructor(setting: Setting) {
    const { time, chance, links, timeoutMs } = setting
    this.#setting = setting
    this.#clock = time.clock(1 + chance.between(-0.004, 0.004))
    this.#majority = new Majority({ nodes: links, clock: this.#clock, chance, timeoutMs, waits: () => undefined })
    for (const [index, link] of links.entries()) link.returned = () => this.#majority.returned(index)
    this.#later(0, 20, () => this.#begin())
  }

  /** How much the majority keeps in mind. */
  get memory(): number {
    return this.#majority.size
  }

  /** Begin nothing new. */
  stop(): void {
    this.#stopped = true
  }

  /** Whether that key can be had right now. */
  try(key: string, answer: (held: boolean) => void): void {
    const claim = {
      key,
      id: this.#setting.chance.id(),
      holder: '',
      weight: 1,
      limit: 1,
      ttlMs: this.#setting.ttlMs,
      wait: false,
    }
    this.#majority.enter([claim], ([standing]) => {
      this.#majority.leave([claim], () => answer(standing?.state === 'held'))
    })
  }

  #begin(): void {
    if (this.#stopped) return
    const { chance, keys } = this.#setting
    // Sometimes for all keys at once, in one call.
    const wanted = chance.happens(0.15) ? keys : [chance.pick(keys)]
    const errands = wanted.map((key): Errand => {
      const wait = chance.happens(0.6)
      return { key, id: chance.id(), wait, floor: 0, deadline: 0, held: false, over: false, doubtful: false }
    })
    this.#errands = errands.length
    this.#enter(errands)
    // Some give up while they ask.
    for (const errand of errands) if (chance.happens(0.05)) this.#later(0, 40, () => this.#leave(errand))
  }

  #enter(errands: readonly Errand[]): void {
    const { ttlMs, record } = this.#setting
    const sentAt = this.#clock.now()
    for (const errand of errands) errand.floor = record.highest(errand.key)
    const claims = errands.map(({ key, id, wait }) => ({ key, id, holder: '', weight: 1, limit: 1, ttlMs, wait }))
    this.#majority.enter(claims, (standings) => {
      for (const [index, errand] of errands.entries())
        this.#heard(errand, 'enter', standings[index] as Standing, sentAt)
    })
  }

  #ask(errand: Errand, verb: 'enter' | 'renew'): void {
    if (errand.over) return
    if (verb === 'enter') {
      this.#enter([errand])
      return
    }
    const { key, id } = errand
    const { ttlMs, record } = this.#setting
    const sentAt = this.#clock.now()
    if (!errand.held) errand.floor = record.highest(key)
    this.#majority.renew([{ key, id, ttlMs }], ([standing]) => this.#heard(errand, verb, standing as Standing, sentAt))
  }

  #heard(errand: Errand, verb: 'enter' | 'renew', standing: Standing, sentAt: number): void {
    if (errand.over) return
    const { chance, ttlMs } = this.#setting
    if (standing.state === 'held') this.#hold(errand, standing, sentAt)
    else if (standing.state === 'waiting' && !errand.held) {
      if (chance.happens(0.1)) this.#leave(errand)
      else this.#later(1, ttlMs / 8, () => this.#ask(errand, 'renew'))
    } else if (standing.state === 'failed') {
      errand.doubtful ||= verb === 'enter'
      if (!errand.held && chance.happens(0.4)) this.#leave(errand)
      else this.#later(1, ttlMs / 10, () => this.#ask(errand, errand.held ? 'renew' : verb))
    } else if (errand.held) this.#leave(errand)
    else this.#end(errand)
  }

  #hold(errand: Errand, { token, heldForMs }: Extract<Standing, { state: 'held' }>, sentAt: number): void {
    const { record, ttlMs, chance } = this.#setting
    const deadline = sentAt + heldForMs - marginMs(ttlMs)
    if (this.#clock.now() >= deadline || (errand.held && Number(token) !== record.tokenOf(errand.id))) {
      this.#leave(errand)
      return
    }
    if (!errand.held) record.granted(errand.key, errand.id, Number(token), errand.floor)
    errand.held = true
    errand.deadline = deadline
    this.#believe(errand)
    if (chance.happens(0.35)) this.#later(1, ttlMs / 2, () => this.#ask(errand, 'renew'))
    else this.#later(0, chance.happens(0.3) ? ttlMs : 5, () => this.#leave(errand))
  }

  /** It believes that it holds until its deadline, by its own clock. */
  #believe(errand: Errand): void {
    const { record } = this.#setting
    record.believes(errand.id, errand.key)
    const look = (): void => {
      if (!errand.held || errand.over) return
      if (this.#clock.now() < errand.deadline) this.#clock.timer(errand.deadline - this.#clock.now(), look)
      else this.#leave(errand)
    }
    this.#clock.timer(errand.deadline - this.#clock.now(), look)
  }

  #leave(errand: Errand): void {
    if (errand.over) return
    const { record, ttlMs, chance } = this.#setting
    errand.over = true
    errand.held = false
    record.believesNoMore(errand.id)
    // A renewal may be on its way when it leaves.
    if (chance.happens(0.2)) this.#majority.renew([{ key: errand.key, id: errand.id, ttlMs }], () => undefined)
    const until = this.#clock.now() + ttlMs
    const again = (): void => {
      this.#majority.leave([errand], (were) => {
        // Later than that it has expired by itself.
        if ((were === undefined || errand.doubtful) && this.#clock.now() < until)
          this.#later(ttlMs / 6, ttlMs / 3, again)
      })
    }
    again()
    this.#setting.left(errand.key, errand.id)
    this.#next()
  }

  #end(errand: Errand): void {
    errand.over = true
    if (errand.doubtful) {
      this.#leave({ ...errand, over: false })
      return
    }
    this.#setting.left(errand.key, errand.id)
    this.#next()
  }

  #next(): void {
    this.#errands -= 1
    if (this.#errands === 0) this.#later(0, 4, () => this.#begin())
  }

  #later(leastMs: number, mostMs: number, go: () => void): void {
    this.#setting.time.after(this.#setting.chance.between(leastMs, mostMs), go)
  }
}
