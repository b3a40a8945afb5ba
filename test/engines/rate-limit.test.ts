/**
 * Eight processes, whose clocks are off by up to an hour, take from the same limits as fast as they can. By the times
 * that the server has decided at, no window of the run has more than the limit allows, and next to nothing is lost.
 *
 * HOLDFAST_ROUNDS makes it longer: 200 are ten minutes.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { dirname } from 'node:path'
import { createInterface } from 'node:readline'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { connect } from '../../src/connect.ts'
import { rateLimit } from '../../src/recipes/rate-limit/index.ts'
import { builtModule } from '../built.ts'
import { WrongClocks } from '../servers/clock.ts'
import { findPostgres, PostgresServer } from '../servers/postgres.ts'
import { findRedis, RedisServer } from '../servers/redis.ts'
import { describeServer, present } from '../servers/suite.ts'

const ROUNDS = Number(process.env.HOLDFAST_ROUNDS ?? 1)
const SECONDS = 3 * ROUNDS
const LIMIT_MS = 60_000 + 2000 * SECONDS
/** How often a caller comes back when it was told to: 34 rounds are ten thousand. */
const RETURNS = 300 * ROUNDS
const AHEAD_MS = [0, 1_500, -2_000, 60_000, -60_000, 3_600_000, -3_600_000, 600_000]
/** The bursts are as large as a busy machine may pause: a bucket that is full loses what does not fit. */
const LIMITS = {
  evenly: { limit: 200, per: 1000, burst: 100, cost: 1 },
  'in thirds': { limit: 299, per: 100, burst: 1500, cost: 29 },
  fast: { limit: 50_000, per: 1000, burst: 25_000, cost: 250 },
} as const

const NAMES = Object.keys(LIMITS) as (keyof typeof LIMITS)[]

/** When, on the server's clock, and how many were let through; 0 for a refusal. */
type Answers = readonly (readonly [atUs: number, cost: number])[]

/** What one process prints. */
class Flooder implements AsyncDisposable {
  readonly #child: ChildProcess
  readonly #lines: AsyncIterator<string>

  constructor(url: string, env: Record<string, string>) {
    const modules = dirname(builtModule('src/index.ts'))
    const args = ['test/engines/rate-limit.child.mjs', modules, url, JSON.stringify(LIMITS), String(SECONDS)]
    this.#child = spawn(process.execPath, args, {
      env: { ...process.env, ...env },
      stdio: ['pipe', 'pipe', 'inherit'],
    })
    this.#lines = createInterface({ input: this.#child.stdout as NodeJS.ReadableStream })[Symbol.asyncIterator]()
  }

  begin(): void {
    this.#child.stdin?.write('go')
  }

  async next(): Promise<Record<keyof typeof LIMITS, Answers>> {
    const { value } = await this.#lines.next()
    return JSON.parse(String(value ?? '"it has ended"'))
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return
    const ended = once(this.#child, 'exit')
    this.#child.kill('SIGKILL')
    await ended
  }
}

async function flood(url: string, clocks: WrongClocks): Promise<Map<keyof typeof LIMITS, Answers>> {
  const flooders = AHEAD_MS.map((aheadMs) => new Flooder(url, clocks.env(aheadMs)))
  try {
    for (const flooder of flooders) expect(await flooder.next()).toBe('ready')
    for (const flooder of flooders) flooder.begin()
    const told = await Promise.all(flooders.map((flooder) => flooder.next()))
    return new Map(NAMES.map((name) => [name, told.flatMap((one) => one[name] ?? []).toSorted(([a], [b]) => a - b)]))
  } finally {
    await Promise.all(flooders.map((flooder) => flooder[Symbol.asyncDispose]()))
  }
}

/** How many were let through in the worst window, beyond the share of the limit in it: the burst, at most. */
function worstWindow(answers: Answers, perUs: number): number {
  const start = answers[0]?.[0] ?? 0
  let [sum, least, worst] = [0, 0, 0]
  for (const [atUs, cost] of answers) {
    const share = (atUs - start) * perUs
    least = Math.min(least, sum - share)
    sum += cost
    worst = Math.max(worst, sum - share - least)
  }
  return worst
}

/**
 * While there was always one who wanted more: what the limit allowed, and what was let through. From one refusal to the
 * next the limit was used up, unless so much time was between them that all of the burst was there again.
 */
function saturated(answers: Answers, perUs: number, burst: number): { allowed: number; taken: number; spans: number } {
  const total = { allowed: 0, taken: 0, spans: 1 }
  let last: number | undefined
  let since = 0
  for (const [atUs, cost] of answers) {
    since += cost
    if (cost > 0) continue
    if (last !== undefined && (atUs - last) * perUs < burst / 2) {
      total.allowed += (atUs - last) * perUs
      total.taken += since
    } else {
      total.spans += 1
    }
    last = atUs
    since = 0
  }
  return total
}

async function expectRate(url: string, clocks: WrongClocks): Promise<void> {
  for (const [name, answers] of await flood(url, clocks)) {
    const { limit, per, burst, cost } = LIMITS[name]
    const perUs = limit / (per * 1000)
    const rounding = 1e-6
    expect(worstWindow(answers, perUs), name).toBeLessThanOrEqual(burst + rounding)
    const { allowed, taken, spans } = saturated(answers, perUs, burst)
    expect(allowed, `${name}: the limit was never used up`).toBeGreaterThan(0)
    expect(taken + cost * spans, name).toBeGreaterThanOrEqual(0.999 * allowed)
  }
}

async function expectPromisesKept(url: string): Promise<void> {
  await using locks = await connect(url)
  const api = rateLimit(locks, { limit: 1000, per: '1s', burst: 1 })
  for (let i = 0; i < RETURNS; i += 1) {
    const { allowed, retryAfterMs } = await api.take('one caller')
    if (allowed) continue
    const until = performance.now() + retryAfterMs
    while (performance.now() < until) await new Promise(setImmediate)
    expect(await api.take('one caller')).toMatchObject({ allowed: true })
  }
}

let clocks: WrongClocks | Awaited<ReturnType<typeof WrongClocks.make>>

beforeAll(async () => {
  clocks = await WrongClocks.make()
})

afterAll(() => {
  if (clocks instanceof WrongClocks) clocks[Symbol.dispose]()
})

await describeServer('rate limits on Redis', findRedis, (source) => {
  let server: RedisServer

  beforeAll(async () => {
    server = await RedisServer.start(source)
  })

  afterAll(() => server[Symbol.asyncDispose]())

  test(
    'eight processes with wrong clocks take what the limit allows, and all of it',
    { timeout: LIMIT_MS },
    async (context) => expectRate(server.url, present(clocks, context)),
  )

  test('a caller that waits for as long as it is told is not refused', { timeout: LIMIT_MS }, () =>
    expectPromisesKept(server.url),
  )
})

await describeServer('rate limits on PostgreSQL', findPostgres, (source) => {
  let server: PostgresServer

  beforeAll(async () => {
    server = await PostgresServer.start(source)
  })

  afterAll(() => server[Symbol.asyncDispose]())

  test(
    'eight processes with wrong clocks take what the limit allows, and all of it',
    { timeout: LIMIT_MS },
    async (context) => expectRate(server.url, present(clocks, context)),
  )

  test('a caller that waits for as long as it is told is not refused', { timeout: LIMIT_MS }, () =>
    expectPromisesKept(server.url),
  )
})
