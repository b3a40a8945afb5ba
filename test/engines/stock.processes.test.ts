/**
 * Many buyers and few units, sold by several processes of which some are killed all the time. What a killed one was
 * doing is given to another, under the same ids, as by a queue: so every call may have been made before. An observer
 * looks into the database itself, and at no instant more is sold and held than there is. In the end each id is sold
 * once that was told so, and what was left in carts is there again.
 *
 * HOLDFAST_ROUNDS makes it so many rounds of 500 units, 5,000 buyers and 8 processes.
 */
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { dice } from '../../conformance/chance.ts'
import { connect } from '../../src/connect.ts'
import { type Stock, stock } from '../../src/recipes/stock/index.ts'
import { builtModule } from '../built.ts'
import { findMariadb, MariadbServer } from '../servers/mariadb.ts'
import { findPostgres, PostgresServer } from '../servers/postgres.ts'
import { findRedis, RedisServer } from '../servers/redis.ts'
import { describeServer } from '../servers/suite.ts'
import { type Observer, type Seen, watchMariadb, watchPostgres, watchRedis, watchSqlite } from './stock.observers.ts'

const FULL = process.env.HOLDFAST_ROUNDS !== undefined
const ROUNDS = Number(process.env.HOLDFAST_ROUNDS ?? 1)
const SEED = Number(process.env.HOLDFAST_SEED ?? Date.now() % 1_000_000)
const UNITS = FULL ? 500 : 60
const BUYERS = FULL ? 5000 : 500
const PROCESSES = FULL ? 8 : 3
const KILLS = FULL ? 12 : 3
/** How many buyers a process has at once. */
const AT_ONCE = 25
const HOLD_MS = FULL ? 2000 : 700
/** Carts that are left at the end. */
const CARTS = 10
const LIMIT_MS = 60_000 + ROUNDS * 90_000

interface Buyer {
  readonly id: string
  readonly quantity: number
  readonly plan: string
}

type Outcome = 'sold' | 'lapsed' | 'cancelled' | 'left' | 'out'

/** The shops, and what is done to them. */
class Shops {
  readonly chance = dice(SEED)
  readonly #args: readonly string[]
  readonly #buyers: Buyer[]
  readonly #working = new Map<ChildProcess, Map<string, Buyer>>()
  readonly outcomes = new Map<string, Outcome>()
  #killsLeft = KILLS
  #total: number
  #finish: { resolve(): void; reject(error: Error): void } | undefined

  constructor(url: string, name: string, buyers: readonly Buyer[]) {
    this.#args = [url, name, String(HOLD_MS)]
    this.#buyers = [...buyers]
    this.#total = buyers.length
  }

  async run(): Promise<void> {
    const over = new Promise<void>((resolve, reject) => {
      this.#finish = { resolve, reject }
    })
    await Promise.race([over, Promise.all(Array.from({ length: PROCESSES }, () => this.#open()))])
    await over
  }

  async #open(taking: Iterable<Buyer> = []): Promise<void> {
    const child = fork('test/engines/stock.child.mjs', this.#args)
    await once(child, 'message')
    const working = new Map<string, Buyer>()
    this.#working.set(child, working)
    child.on('message', (said: { id: string; outcome?: Outcome; failed?: string }) => this.#hear(child, said))
    child.on('exit', (code) => {
      if (this.#working.has(child)) this.#finish?.reject(new Error(`a shop has ended with ${code}`))
    })
    for (const buyer of taking) this.#give(child, buyer)
    while (working.size < AT_ONCE && this.#buyers.length > 0) this.#next(child)
  }

  #give(child: ChildProcess, buyer: Buyer): void {
    this.#working.get(child)?.set(buyer.id, buyer)
    child.send(buyer)
  }

  #next(child: ChildProcess): void {
    const buyer = this.#buyers.pop()
    if (buyer !== undefined) this.#give(child, buyer)
  }

  #hear(child: ChildProcess, { id, outcome, failed }: { id: string; outcome?: Outcome; failed?: string }): void {
    if (failed !== undefined) this.#finish?.reject(new Error(failed))
    if (outcome === undefined || !this.#working.get(child)?.delete(id)) return
    if (this.outcomes.has(id)) this.#finish?.reject(new Error(`a second outcome of ${id}`))
    this.outcomes.set(id, outcome)
    if (this.outcomes.size === this.#total) this.#finish?.resolve()
    const killEvery = Math.ceil(this.#total / (KILLS + 1))
    if (this.#killsLeft > 0 && this.outcomes.size % killEvery === 0)
      void this.#kill(this.chance.pick([...this.#working.keys()]))
    if (this.#working.has(child)) this.#next(child)
  }

  async #kill(child: ChildProcess): Promise<void> {
    this.#killsLeft -= 1
    const buyers = this.#working.get(child) ?? new Map<string, Buyer>()
    this.#working.delete(child)
    const gone = once(child, 'exit')
    child.kill('SIGKILL')
    await gone
    await this.#open(buyers.values())
  }

  async end(): Promise<void> {
    const children = [...this.#working.keys()]
    this.#working.clear()
    await Promise.all(
      children.map(async (child) => {
        const gone = child.exitCode === null && child.signalCode === null ? once(child, 'exit') : undefined
        child.kill('SIGKILL')
        await gone
      }),
    )
  }
}

/** At this instant: by the rows of the holds, and by the counters. */
function expectNotOversold({ now, item, holds }: Seen): void {
  const units = (wanted: (hold: Seen['holds'][number]) => boolean): number =>
    holds.filter(wanted).reduce((sum, hold) => sum + hold.units, 0)
  const sold = units(({ state }) => state === 'sold')
  const live = units(({ state, at }) => state === 'held' && at > now)
  expect(sold + live, `sold ${sold}, held ${live}, HOLDFAST_SEED=${SEED}`).toBeLessThanOrEqual(item.stock)
  expect(item.sold, 'the counter of what is sold').toBe(sold)
  expect(item.held, 'the counter of what is held').toBe(units(({ state }) => state === 'held'))
}

async function watch(observer: Observer, over: Promise<unknown>): Promise<number> {
  let [looks, done] = [0, false]
  void over.finally(() => {
    done = true
  })
  while (!done) {
    expectNotOversold(await observer.look())
    looks += 1
    await new Promise((resolve) => setTimeout(resolve, 5))
  }
  return looks
}

function buyersOf(chance: Shops['chance'], round: number): readonly Buyer[] {
  const plans = ['buys', 'buys', 'buys', 'extends', 'is late', 'cancels', 'leaves', 'leaves', 'waits']
  return Array.from({ length: BUYERS }, (_, number) => ({
    id: `cart ${round} ${number}`,
    quantity: chance.oneIn(4) ? 2 : 1,
    plan: chance.pick(plans),
  }))
}

/** What is left in carts is there when the last hold lapses, and no process has to do anything for that. */
async function expectLapsing(seats: Stock, observer: Observer, unsold: number): Promise<void> {
  await seats.add({ A: CARTS })
  await expect.poll(() => leaveCarts(seats), { timeout: 30_000 }).toBe(CARTS)
  const { holds } = await observer.look()
  const lastAt = Math.max(...holds.filter(({ state }) => state === 'held').map(({ at }) => at))
  const now = async (): Promise<number> => (await observer.look()).now
  await expect.poll(now, { timeout: 30_000, interval: 20 }).toBeGreaterThan(lastAt)
  expect(await seats.reserve('the rest', { A: unsold + CARTS })).toMatchObject({ state: 'held' })
  const lateMs = (await now()) - lastAt
  expect(lateMs, 'how long after the last lapse all was there').toBeLessThan(FULL ? 1000 : 5000)
  expectNotOversold(await observer.look())
}

/** How many of them hold a unit that they will not buy. */
async function leaveCarts(seats: Stock): Promise<number> {
  const ids = Array.from({ length: CARTS }, (_, number) => `left ${number}`)
  const holds = await Promise.all(ids.map((id) => seats.reserve(id, { A: 1 })))
  return holds.filter((hold) => hold !== undefined).length
}

async function sell(url: string, round: number, observe: () => Promise<Observer>): Promise<void> {
  await using locks = await connect(url)
  const name = 'concert'
  const seats = stock(locks, name, { hold: HOLD_MS })
  await seats.set({ A: UNITS })
  await using observer = await observe()
  const shops = new Shops(url, name, buyersOf(dice(SEED + round), round))
  try {
    const selling = shops.run()
    const looks = await watch(observer, selling)
    await selling
    const told = [...shops.outcomes].filter(([, outcome]) => outcome === 'sold').map(([id]) => id)
    const { item, holds } = await observer.look()
    const sold = holds.filter(({ state }) => state === 'sold').map(({ id }) => id)
    expect(sold.toSorted(), `HOLDFAST_SEED=${SEED}`).toEqual(told.toSorted())
    await expectLapsing(seats, observer, item.stock - item.sold)
    expect(looks, 'how often the observer has looked').toBeGreaterThan(10)
    if (FULL) process.stdout.write(`${looks} looks, ${told.length} ids sold, HOLDFAST_SEED=${SEED}\n`)
  } finally {
    await shops.end()
  }
}

beforeEach(() => {
  builtModule('src/index.ts')
})

const selling = 'units are never sold twice, though processes are killed and their calls are made again'

await describeServer('stock on Redis', findRedis, (source) => {
  test(selling, { timeout: LIMIT_MS }, async () => {
    for (let round = 0; round < ROUNDS; round += 1) {
      await using server = await RedisServer.start(source)
      await sell(server.url, round, () => watchRedis(server.url))
    }
  })
})

await describeServer('stock on PostgreSQL', findPostgres, (source) => {
  test(selling, { timeout: LIMIT_MS }, async () => {
    await using server = await PostgresServer.start(source)
    for (let round = 0; round < ROUNDS; round += 1) {
      const url = await server.database()
      await sell(url, round, () => watchPostgres(url))
    }
  })
})

await describeServer('stock on MariaDB', findMariadb, (source) => {
  test(selling, { timeout: LIMIT_MS }, async () => {
    for (let round = 0; round < ROUNDS; round += 1) {
      await using server = await MariadbServer.start(source)
      await sell(server.url, round, () => watchMariadb(server.url))
    }
  })
})

describe('stock on SQLite', () => {
  let folder: string
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'holdfast-stock-'))
  })
  afterEach(() => {
    rmSync(folder, { recursive: true, force: true })
  })

  test(selling, { timeout: LIMIT_MS }, async () => {
    for (let round = 0; round < ROUNDS; round += 1) {
      const file = join(folder, `shop-${round}.db`)
      await sell(`sqlite:${file}`, round, () => watchSqlite(file))
    }
  })
})
