/**
 * A process that takes locks, holds them, renews them, gives them back, gives up, and sometimes stalls. It does with
 * the quorum what the core does: it counts from the send, it repeats what failed, and it leaves again and again where
 * an outcome is unknown.
 */
import type { Clock } from '../../src/core/clock.ts'
import type { Standing } from '../../src/core/engine.ts'
import { marginMs } from '../../src/core/entry.ts'
import { Quorum } from '../../src/engines/redlock/quorum.ts'
import type { Random } from '../random.ts'
import type { Link } from './link.ts'
import type { GrantRecord } from './record.ts'
import type { VirtualTime } from './time.ts'

export interface Setting {
  readonly time: VirtualTime
  readonly chance: Random
  readonly record: GrantRecord
  readonly links: readonly Link[]
  readonly keys: readonly string[]
  readonly ttlMs: number
  readonly timeoutMs: number
  /** Called when an entry was given back. */
  readonly left: (key: string, id: string) => void
}

/** One entry, from the first enter to the last leave. */
interface SimulatedEntry {
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
  readonly #quorum: Quorum
  #stopped = false
  #unfinished = 0

  constructor(setting: Setting) {
    const { time, chance, links, timeoutMs } = setting
    this.#setting = setting
    this.#clock = time.clock(1 + chance.between(-0.004, 0.004))
    this.#quorum = new Quorum({ servers: links, clock: this.#clock, chance, timeoutMs, onWaiting: () => undefined })
    for (const [index, link] of links.entries()) link.onReturn = () => this.#quorum.serverReturned(index)
    this.#later(0, 20, () => this.#begin())
  }

  /** How many entries the quorum remembers. */
  get memory(): number {
    return this.#quorum.size
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
    this.#quorum.enter([claim], ([standing]) => {
      this.#quorum.leave([claim], () => answer(standing?.state === 'held'))
    })
  }

  #begin(): void {
    if (this.#stopped) return
    const { chance, keys } = this.#setting
    // Sometimes for all keys at once, in one call.
    const wanted = chance.happens(0.15) ? keys : [chance.pick(keys)]
    const entries = wanted.map((key): SimulatedEntry => {
      const wait = chance.happens(0.6)
      return { key, id: chance.id(), wait, floor: 0, deadline: 0, held: false, over: false, doubtful: false }
    })
    this.#unfinished = entries.length
    this.#enter(entries)
    // Some give up while they ask.
    for (const entry of entries) if (chance.happens(0.05)) this.#later(0, 40, () => this.#leave(entry))
  }

  #enter(entries: readonly SimulatedEntry[]): void {
    const { ttlMs, record } = this.#setting
    const sentAt = this.#clock.now()
    for (const entry of entries) entry.floor = record.highest(entry.key)
    const claims = entries.map(({ key, id, wait }) => ({ key, id, holder: '', weight: 1, limit: 1, ttlMs, wait }))
    this.#quorum.enter(claims, (standings) => {
      for (const [index, entry] of entries.entries())
        this.#received(entry, 'enter', standings[index] as Standing, sentAt)
    })
  }

  #ask(entry: SimulatedEntry, verb: 'enter' | 'renew'): void {
    if (entry.over) return
    if (verb === 'enter') {
      this.#enter([entry])
      return
    }
    const { key, id } = entry
    const { ttlMs, record } = this.#setting
    const sentAt = this.#clock.now()
    if (!entry.held) entry.floor = record.highest(key)
    this.#quorum.renew([{ key, id, ttlMs }], ([standing]) => this.#received(entry, verb, standing as Standing, sentAt))
  }

  #received(entry: SimulatedEntry, verb: 'enter' | 'renew', standing: Standing, sentAt: number): void {
    if (entry.over) return
    const { chance, ttlMs } = this.#setting
    if (standing.state === 'held') this.#hold(entry, standing, sentAt)
    else if (standing.state === 'waiting' && !entry.held) {
      if (chance.happens(0.1)) this.#leave(entry)
      else this.#later(1, ttlMs / 8, () => this.#ask(entry, 'renew'))
    } else if (standing.state === 'failed') {
      entry.doubtful ||= verb === 'enter'
      if (!entry.held && chance.happens(0.4)) this.#leave(entry)
      else this.#later(1, ttlMs / 10, () => this.#ask(entry, entry.held ? 'renew' : verb))
    } else if (entry.held) this.#leave(entry)
    else this.#end(entry)
  }

  #hold(entry: SimulatedEntry, { token, heldForMs }: Extract<Standing, { state: 'held' }>, sentAt: number): void {
    const { record, ttlMs, chance } = this.#setting
    const deadline = sentAt + heldForMs - marginMs(ttlMs)
    if (this.#clock.now() >= deadline || (entry.held && Number(token) !== record.tokenOf(entry.id))) {
      this.#leave(entry)
      return
    }
    if (!entry.held) record.granted(entry.key, entry.id, Number(token), entry.floor)
    entry.held = true
    entry.deadline = deadline
    this.#believe(entry)
    if (chance.happens(0.35)) this.#later(1, ttlMs / 2, () => this.#ask(entry, 'renew'))
    else this.#later(0, chance.happens(0.3) ? ttlMs : 5, () => this.#leave(entry))
  }

  /** It believes that it holds until its deadline, by its own clock. */
  #believe(entry: SimulatedEntry): void {
    const { record } = this.#setting
    record.believes(entry.id, entry.key)
    const look = (): void => {
      if (!entry.held || entry.over) return
      if (this.#clock.now() < entry.deadline) this.#clock.timer(entry.deadline - this.#clock.now(), look)
      else this.#leave(entry)
    }
    this.#clock.timer(entry.deadline - this.#clock.now(), look)
  }

  #leave(entry: SimulatedEntry): void {
    if (entry.over) return
    const { record, ttlMs, chance } = this.#setting
    entry.over = true
    entry.held = false
    record.believesNoMore(entry.id)
    // A renewal may be on its way when it leaves.
    if (chance.happens(0.2)) this.#quorum.renew([{ key: entry.key, id: entry.id, ttlMs }], () => undefined)
    const until = this.#clock.now() + ttlMs
    const again = (): void => {
      this.#quorum.leave([entry], (were) => {
        // Later than that it has expired by itself.
        if ((were === undefined || entry.doubtful) && this.#clock.now() < until)
          this.#later(ttlMs / 6, ttlMs / 3, again)
      })
    }
    again()
    this.#setting.left(entry.key, entry.id)
    this.#next()
  }

  #end(entry: SimulatedEntry): void {
    entry.over = true
    if (entry.doubtful) {
      this.#leave({ ...entry, over: false })
      return
    }
    this.#setting.left(entry.key, entry.id)
    this.#next()
  }

  #next(): void {
    this.#unfinished -= 1
    if (this.#unfinished === 0) this.#later(0, 4, () => this.#begin())
  }

  #later(leastMs: number, mostMs: number, go: () => void): void {
    this.#setting.time.after(this.#setting.chance.between(leastMs, mostMs), go)
  }
}
