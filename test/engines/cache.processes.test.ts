/**
 * Four processes and a thousand callers, on real servers: a miss is filled once, also if fillers are killed with it in
 * their hands, and no process is given what was invalidated before it asked. Bentocache beside it, which fills once in
 * each process.
 *
 * HOLDFAST_ROUNDS makes it longer.
 */
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { dice } from '../../conformance/chance.ts'
import { connect } from '../../src/connect.ts'
import { builtModule } from '../built.ts'
import { findMariadb, MariadbServer } from '../servers/mariadb.ts'
import { findPostgres, PostgresServer } from '../servers/postgres.ts'
import { findRedis, RedisServer } from '../servers/redis.ts'
import { describeServer } from '../servers/suite.ts'

const PROCESSES = 4
const CALLERS = 250
/** So long that no process that lives loses a lease for want of a processor: fills are counted. */
const TTL_MS = 4_000
const ROUNDS = Number(process.env.HOLDFAST_ROUNDS ?? 1)
const SEED = Number(process.env.HOLDFAST_SEED ?? Date.now() % 1_000_000)
const LIMIT_MS = 60_000 + 20_000 * ROUNDS

type Said =
  | { readonly ready: true }
  | { readonly fill: number; readonly key: string }
  | { readonly id: number; readonly answers: readonly string[] }

/** A fill that has begun, and waits for its answer. */
interface BegunFill {
  readonly by: Worker
  readonly key: string
  answer(value: string): void
  fail(message: string): void
}

const fleets: Fleet[] = []

afterEach(async () => {
  await Promise.all(fleets.splice(0).map((fleet) => fleet.end()))
})

class Worker {
  readonly child: ChildProcess
  readonly #waiting = new Map<number, (answers: readonly string[]) => void>()
  #asked = 0

  constructor(args: readonly string[], onFill: (fill: BegunFill) => void) {
    this.child = fork('test/engines/cache.child.mjs', args)
    this.child.on('message', (said: Said) => {
      if ('answers' in said) this.#waiting.get(said.id)?.(said.answers)
      if (!('fill' in said)) return
      const open = (words: object): void => void this.child.send({ open: said.fill, ...words })
      onFill({ by: this, key: said.key, answer: (value) => open({ value }), fail: (failure) => open({ failure }) })
    })
  }

  /** What its callers were given: each answer once. */
  get(key: string, callers: number): Promise<readonly string[]> {
    return this.#ask({ key, callers })
  }

  async invalidate(key: string): Promise<void> {
    expect(await this.#ask({ invalidated: key })).toEqual(['done'])
  }

  #ask(words: object): Promise<readonly string[]> {
    this.#asked += 1
    const id = this.#asked
    const answered = new Promise<readonly string[]>((resolve) => this.#waiting.set(id, resolve))
    this.child.send({ id, ...words })
    return answered
  }

  async end(): Promise<void> {
    const { child } = this
    if (child.exitCode !== null || child.signalCode !== null) return
    const gone = once(child, 'exit')
    child.kill('SIGKILL')
    await gone
  }
}

/** The processes, and the fills that they have begun. */
class Fleet {
  readonly #args: readonly string[]
  readonly workers: Worker[] = []
  readonly fills: BegunFill[] = []
  onFill: (fill: BegunFill) => void = () => {}

  constructor(url: string, library: 'holdfast' | 'bentocache', options: object = {}) {
    this.#args = [url, library, JSON.stringify({ ttl: TTL_MS, ...options })]
    fleets.push(this)
  }

  async start(count: number): Promise<readonly Worker[]> {
    const started = Array.from({ length: count }, () => {
      return new Worker(this.#args, (fill) => {
        this.fills.push(fill)
        this.onFill(fill)
      })
    })
    this.workers.push(...started)
    await Promise.all(started.map(({ child }) => once(child, 'message')))
    return started
  }

  async end(): Promise<void> {
    await Promise.all(this.workers.map((worker) => worker.end()))
  }
}

/** The cache in the processes has its own ttl under this name; that of the locks is `ttl`. */
const OPTIONS = { cache: { ttl: '1m' } }

async function missTogether(url: string, library: 'holdfast' | 'bentocache'): Promise<number> {
  const fleet = new Fleet(url, library, OPTIONS)
  await fleet.start(PROCESSES)
  const asked = fleet.workers.map((worker) => worker.get('together', CALLERS))
  // The fill goes on until all of them have asked.
  if (library === 'bentocache') await expect.poll(() => fleet.fills.length, { timeout: 20_000 }).toBe(PROCESSES)
  else await untilAllWait(url)
  for (const fill of fleet.fills) fill.answer('rendered')
  fleet.onFill = (fill) => fill.answer('rendered again')
  for (const answers of await Promise.all(asked)) expect(answers).toEqual(['rendered'])
  return fleet.fills.length
}

/** Each process has one entry in the line: the filler, and those who wait for it. */
async function untilAllWait(url: string): Promise<void> {
  await using locks = await connect(url)
  const waiting = async (): Promise<number> => (await locks.inspect('cache:together')).entries.length
  await expect.poll(waiting, { timeout: 20_000 }).toBe(PROCESSES)
}

/** Kills `deaths` fillers in a row. Every one that lives is answered by the last fill. */
async function killFillers(url: string, deaths: number): Promise<void> {
  const fleet = new Fleet(url, 'holdfast', OPTIONS)
  const killed = new Set<Worker>()
  const died: number[] = []
  const waits: number[] = []
  fleet.onFill = ({ by, answer }) => {
    const at = died.at(-1)
    if (at !== undefined) waits.push(performance.now() - at)
    if (killed.size === deaths) return answer('rendered')
    killed.add(by)
    died.push(performance.now())
    by.child.kill('SIGKILL')
  }
  await fleet.start(PROCESSES)
  const asked = fleet.workers.map((worker) => ({ worker, answers: worker.get('killed', CALLERS) }))
  await expect.poll(() => killed.size, { timeout: 30_000 }).toBe(deaths)
  const living = asked.filter(({ worker }) => !killed.has(worker))
  expect(living).toHaveLength(PROCESSES - deaths)
  for (const { answers } of living) expect(await answers).toEqual(['rendered'])
  expect(fleet.fills.length, 'fills').toBe(1 + deaths)
  // A busy machine may be late by itself.
  for (const waitedMs of waits) expect(waitedMs, 'ms to the next fill').toBeLessThan(TTL_MS + 5_000)
}

/** A filler is stopped with a value in its hands, is replaced, and the page is changed: then it goes on. */
async function stopFiller(url: string): Promise<void> {
  const fleet = new Fleet(url, 'holdfast', OPTIONS)
  const [first, second] = (await fleet.start(2)) as [Worker, Worker]
  const before = first.get('stopped', 1)
  await expect.poll(() => fleet.fills.length, { timeout: 20_000 }).toBe(1)
  first.child.kill('SIGSTOP')
  fleet.fills[0]?.answer('old')
  await second.invalidate('stopped')
  fleet.onFill = (fill) => fill.answer('new')
  expect(await second.get('stopped', 10)).toEqual(['new'])
  first.child.kill('SIGCONT')
  expect(await before).toEqual(['old'])
  expect(await second.get('stopped', 1)).toEqual(['new'])
  expect(await first.get('stopped', 1)).toEqual(['new'])
  expect(fleet.fills.length).toBe(2)
}

async function failOnce(url: string): Promise<void> {
  const fleet = new Fleet(url, 'holdfast', { cache: { ttl: '1m', negative: '1m' } })
  fleet.onFill = (fill) => fill.fail('the database is down')
  await fleet.start(PROCESSES)
  for (let round = 0; round < 3; round += 1) {
    const answers = (await Promise.all(fleet.workers.map((worker) => worker.get('failing', CALLERS)))).flat()
    for (const answer of answers) expect(answer).toMatch(/the database is down/)
  }
  expect(fleet.fills.length, 'calls of the database').toBe(1)
}

/** The page counts up. It is asked for and invalidated at random, by all processes at once. */
async function changePages(url: string, steps: number): Promise<void> {
  const chance = dice(SEED)
  const fleet = new Fleet(url, 'holdfast', OPTIONS)
  let [truth, invalidated] = [0, 0]
  fleet.onFill = (fill) => {
    const read = String(truth)
    setTimeout(() => fill.answer(read), chance.below(10))
  }
  await fleet.start(PROCESSES)
  const act = async (): Promise<void> => {
    for (let step = 0; step < steps; step += 1) {
      const worker = chance.pick(fleet.workers)
      if (chance.oneIn(3)) {
        truth += 1
        const now = truth
        await worker.invalidate('page')
        invalidated = Math.max(invalidated, now)
      } else {
        const least = invalidated
        for (const given of await worker.get('page', 3))
          expect(Number(given), `with HOLDFAST_SEED=${SEED}`).toBeGreaterThanOrEqual(least)
      }
    }
  }
  await Promise.all(Array.from({ length: 8 }, act))
  expect(fleet.fills.length).toBeGreaterThan(steps / 4)
}

/** All of one server: each test has a key of its own. */
function suite(urlOf: () => string): void {
  test('a thousand callers in four processes miss, and one fill answers all', { timeout: LIMIT_MS }, async () => {
    expect(await missTogether(urlOf(), 'holdfast')).toBe(1)
  })

  test('a filler that was stopped stores nothing over what came after it', { timeout: LIMIT_MS }, async () => {
    await stopFiller(urlOf())
  })

  test('a fill that fails is called once in a while by all', { timeout: LIMIT_MS }, async () => {
    await failOnce(urlOf())
  })

  shortSuite(urlOf)
}

function shortSuite(urlOf: () => string): void {
  test('fillers are killed: one more fill for each', { timeout: LIMIT_MS }, async () => {
    await killFillers(urlOf(), 2)
  })

  test('no value is older than an invalidation that had returned', { timeout: LIMIT_MS }, async () => {
    await changePages(urlOf(), 30 * ROUNDS)
  })
}

beforeAll(() => void builtModule('src/index.ts'))

describe('caches on SQLite', () => {
  let folder: string
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'holdfast-cache-'))
  })
  afterAll(() => rmSync(folder, { recursive: true, force: true }))
  suite(() => `sqlite:${join(folder, 'locks.db')}`)
})

await describeServer('caches on Redis', findRedis, (source) => {
  let server: RedisServer
  beforeAll(async () => {
    server = await RedisServer.start(source)
  })
  afterAll(() => server[Symbol.asyncDispose]())
  suite(() => server.url)

  test('bentocache fills once in each process', { timeout: LIMIT_MS }, async () => {
    expect(await missTogether(server.url, 'bentocache')).toBe(PROCESSES)
  })
})

await describeServer('caches on PostgreSQL', findPostgres, (source) => {
  let server: PostgresServer
  let database: string
  beforeAll(async () => {
    server = await PostgresServer.start(source)
    database = await server.database()
  })
  afterAll(async () => {
    await server.drop(database)
    await server[Symbol.asyncDispose]()
  })
  shortSuite(() => database)
})

await describeServer('caches on MariaDB', findMariadb, (source) => {
  let server: MariadbServer
  beforeAll(async () => {
    server = await MariadbServer.start(source)
  })
  afterAll(() => server[Symbol.asyncDispose]())
  shortSuite(() => server.url)
})
