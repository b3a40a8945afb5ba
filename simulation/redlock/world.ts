/**
 * One seed: servers, clients and the weather between them, for a few simulated seconds; then everything heals,
 * all clients leave, and nothing must be left.
 *
 * In every world tokens are unique and never go back, whatever clocks do and whatever is lost, as long as counts are
 * not. In worlds whose clocks are honest and whose servers forget nothing, there are never two holders. Where late
 * messages are out of the world, a lock that was given back is gone from every server at once.
 */
import { Random } from '../random.ts'
import { Client } from './client.ts'
import { drawRedlockConditions, type RedlockConditions } from './conditions.ts'
import { Link } from './link.ts'
import { GrantRecord, type Violation } from './record.ts'
import { SimulatedServer } from './server.ts'
import { VirtualTime } from './time.ts'

const TTL_MS = 400
const TIMEOUT_MS = 50
const START_MS = 1_000_000
/** Longer than answers take, shorter than the ttl. */
const GONE_MS = 300

export interface Run {
  readonly grants: number
  readonly violations: readonly Violation[]
}

export function runSeed(seed: number, given: Partial<RedlockConditions> = {}): Run {
  return new World(seed, given).run()
}

class World {
  readonly #conditions: RedlockConditions
  readonly #chance: Random
  readonly #time = new VirtualTime()
  readonly #record: GrantRecord
  readonly #servers: readonly SimulatedServer[]
  readonly #offsets: number[]
  readonly #links: readonly (readonly Link[])[]
  readonly #clients: readonly Client[]
  readonly #keys: readonly string[]

  constructor(seed: number, given: Partial<RedlockConditions>) {
    this.#chance = new Random(seed, 'w')
    const conditions = drawRedlockConditions(this.#chance, given)
    this.#conditions = conditions
    this.#record = new GrantRecord(!conditions.wild && !conditions.amnesia)
    this.#keys = Array.from({ length: conditions.keys }, (_, index) => `k${index}`)
    // The honest ones differ too: no two clocks show the same, unless they have to stand in for what was counted.
    const apart = conditions.amnesia ? 0 : 1
    this.#offsets = Array.from({ length: conditions.servers }, () => START_MS + apart * this.#chance.between(0, 5000))
    this.#servers = this.#offsets.map((_, index) => {
      const rate = 1 + apart * this.#chance.between(-0.004, 0.004)
      return new SimulatedServer(
        () => (this.#offsets[index] as number) + this.#time.now * rate,
        (key) => (conditions.shared ? 'all' : key),
      )
    })
    this.#links = Array.from({ length: conditions.clients }, () =>
      this.#servers.map((server) => new Link(this.#time, this.#chance, conditions, server)),
    )
    this.#clients = this.#links.map(
      (links, index) =>
        new Client({
          time: this.#time,
          chance: this.#chance.fork(`c${index}`),
          record: this.#record,
          links,
          keys: this.#keys,
          ttlMs: TTL_MS,
          timeoutMs: TIMEOUT_MS,
          left: (key, id) => this.#watch(key, id),
        }),
    )
  }

  run(): Run {
    const { breaks, holes, crashes, wild, amnesia, vanishing } = this.#conditions
    this.#often(breaks, () => this.#chance.pick(this.#chance.pick(this.#links)).break())
    this.#often(holes, () =>
      this.#chance
        .pick(this.#chance.pick(this.#links))
        .silence(this.#time.now + this.#chance.between(20, 1.5 * TTL_MS)),
    )
    this.#often(crashes, () => this.#crash())
    if (wild) {
      this.#often(vanishing, () => this.#chance.pick(this.#servers).keys.delete(this.#chance.pick(this.#keys)))
      this.#often(2, () => this.#jump())
    }
    if (amnesia) this.#often(vanishing, () => this.#chance.pick(this.#servers).forgetCounts())
    this.#time.runUntil(this.#conditions.seconds * 1000)
    this.#end()
    return { grants: this.#record.grants, violations: this.#record.violations }
  }

  /** So often in a second, on average, until the end. */
  #often(perSecond: number, happen: () => void): void {
    if (perSecond === 0) return
    const next = (): void => {
      this.#time.after((1000 / perSecond) * -Math.log(1 - this.#chance.fraction()), () => {
        if (this.#time.now > this.#conditions.seconds * 1000) return
        happen()
        next()
      })
    }
    next()
  }

  #crash(): void {
    const index = this.#chance.whole(0, this.#servers.length - 1)
    const downMs = this.#chance.between(50, 2 * TTL_MS)
    const { forgets, amnesia } = this.#conditions
    if ((forgets || amnesia) && this.#chance.happens(0.5)) {
      this.#servers[index]?.forget()
      if (amnesia) this.#servers[index]?.forgetCounts()
    }
    for (const links of this.#links) links[index]?.break(downMs)
  }

  /** Ahead or back, by anything from a moment to several ttls. */
  #jump(): void {
    const index = this.#chance.whole(0, this.#servers.length - 1)
    this.#offsets[index] = (this.#offsets[index] as number) + this.#chance.between(-3 * TTL_MS, 3 * TTL_MS)
  }

  /**
   * What was given back is on no server a moment later, long before its ttl is over, where all servers are there and
   * nothing is late.
   */
  #watch(key: string, id: string): void {
    const { wild, late, holes, crashes, delayMs } = this.#conditions
    if (wild || late || holes + crashes > 0 || delayMs > 3) return
    this.#time.after(GONE_MS, () => {
      for (const [index, server] of this.#servers.entries()) {
        if (server.holder(key) === id)
          this.#record.left(`${id} has ${key} on server ${index}, ${GONE_MS} ms after it was given back`)
      }
    })
  }

  #end(): void {
    for (const client of this.#clients) client.stop()
    // Time for the last entries and for what was late; then time for leaves.
    this.#time.runUntil(this.#time.now + 3 * TTL_MS + 2000)
    for (const client of this.#clients)
      if (client.memory > 0) this.#record.left(`a client keeps ${client.memory} entries in mind`)
    if (this.#conditions.late || this.#conditions.wild) return
    for (const key of this.#keys) this.#tryAlone(key)
  }

  #tryAlone(key: string): void {
    let had = false
    // On a slow network a try can fail for want of answers in time; not each of many.
    for (let tries = 0; tries < 10 && !had; tries += 1) {
      this.#clients[0]?.try(key, (held) => {
        had = held
      })
      this.#time.runUntil(this.#time.now + 1000)
    }
    if (!had) this.#record.notToBeHad(key)
  }
}
