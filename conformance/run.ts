/**
 * Running cases: with `runCases`, which needs no test runner and returns what came out, or with `conformance`, which
 * registers them with yours.
 *
 * Each case ends in one of three ways. *Not applicable* means that the engine or the world lacks what the case is
 * about; it comes with the reason, it is counted as skipped, and it is never called passed.
 */
import { randomBytes } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { type Duration, parseDuration } from '../src/core/duration.ts'
import { ActorPool } from './actor/actor-pool.ts'
import type { Case, Group } from './case.ts'
import { groups } from './cases/index.ts'
import { inapplicable } from './needs.ts'
import { DoesNotApply, Scene, type Stage } from './scene.ts'
import { UnhandledErrors } from './unhandled-errors.ts'
import type { World } from './world.ts'

/** Which cases to run, and how often. */
export interface ConformanceOptions {
  /** How much more than usual to try: 1, or the environment variable HOLDFAST_ROUNDS. */
  readonly rounds?: number
  /** Where chance begins: 1, or the environment variable HOLDFAST_SEED. A failure that chance found names its seed. */
  readonly seed?: number
  /** How long a case may take at most: 20 s, or as long as the case says. */
  readonly limit?: Duration
  /** How many cases that mostly wait are played at a time: 8. More where waiting is long. */
  readonly atOnce?: number
  /** Run only cases for which this answers true. */
  readonly only?: (name: string, property: string) => boolean
}

/** What became of all cases. */
export type Result = { readonly property: string; readonly name: string } & Outcome

/** What became of one case. */
export type Outcome =
  | { readonly outcome: 'passed' }
  | { readonly outcome: 'failed'; readonly error: Error }
  | { readonly outcome: 'not applicable'; readonly reason: string }

/** The part of a test runner that is used; vitest and node:test both have it (whose `after` is vitest's `afterAll`). */
export interface TestRunner {
  describe(name: string, body: () => void): unknown
  it(
    name: string,
    options: { readonly timeout: number },
    test: (context: { skip(reason?: string): void }) => Promise<void>,
  ): unknown
  afterAll(close: () => Promise<void>): unknown
}

const USUAL_LIMIT_MS = 20_000
const USUALLY_AT_ONCE = 8

/** Run the suite in one world, and close it. Never rejects for a case that failed. */
export async function runCases(
  makeWorld: () => World | Promise<World>,
  options: ConformanceOptions = {},
): Promise<readonly Result[]> {
  const results: Result[] = []
  const run = new Run(makeWorld, options)
  try {
    for (const group of chosen(options)) {
      for (const one of group.cases)
        results.push({ property: group.property, name: one.name, ...(await run.outcome(one)) })
    }
  } finally {
    await run.close()
  }
  return results
}

/** Register the suite with a test runner: `conformance({ describe, it, afterAll }, 'memory', makeWorld)`. */
export function conformance(
  runner: TestRunner,
  engine: string,
  makeWorld: () => World | Promise<World>,
  options: ConformanceOptions = {},
): void {
  const { describe, it, afterAll } = runner
  describe(`${engine} conforms`, () => {
    const run = new Run(makeWorld, options)
    for (const group of chosen(options)) {
      describe(group.property, () => {
        for (const one of group.cases) {
          // The case has a limit of its own, which says more; the runner's is only the last resort.
          it(one.name, { timeout: 3 * run.limitMs(one) }, async (context) => {
            const result = await run.outcome(one)
            if (result.outcome === 'failed') throw result.error
            if (result.outcome === 'not applicable') context.skip(result.reason)
          })
        }
      })
    }
    afterAll(() => run.close())
  })
}

function chosen({ only }: ConformanceOptions): readonly Group[] {
  if (only === undefined) return groups
  return groups
    .map((group) => ({ ...group, cases: group.cases.filter(({ name }) => only(name, group.property)) }))
    .filter(({ cases }) => cases.length > 0)
}

/**
 * One run of the suite. A runner asks for one outcome after the other, in the order of the groups. Cases that mostly
 * wait are begun before they are asked for, a few at a time; all others are played alone.
 */
class Run {
  readonly #limitMs: number | undefined
  readonly #rounds: number
  readonly #atOnce: number
  readonly #makeStage: () => Promise<Stage>
  readonly #order: readonly { readonly one: Case; readonly atOnce: boolean }[]
  readonly #outcomes = new Map<Case, Promise<Outcome>>()
  readonly #playing = new Set<Promise<Outcome>>()
  readonly #failed = new Set<Case>()
  /** Where in the order the next one stands that may be begun before it is asked for. */
  #ahead = 0
  #stage: Promise<Stage> | undefined

  constructor(makeWorld: () => World | Promise<World>, options: ConformanceOptions) {
    this.#limitMs = options.limit === undefined ? undefined : parseDuration(options.limit, 'limit')
    this.#rounds = options.rounds ?? wholeNumber('HOLDFAST_ROUNDS')
    this.#atOnce = options.atOnce ?? USUALLY_AT_ONCE
    const seed = options.seed ?? wholeNumber('HOLDFAST_SEED')
    this.#makeStage = async () => setStage(await makeWorld(), this.#rounds, seed)
    this.#order = chosen(options).flatMap(({ cases, atOnce = false }) => cases.map((one) => ({ one, atOnce })))
  }

  limitMs({ limitMs = USUAL_LIMIT_MS }: Case): number {
    return this.#limitMs ?? limitMs * this.#rounds
  }

  /** How the case came out. One that has failed, and is asked for again, is played again, alone. */
  async outcome(one: Case): Promise<Outcome> {
    const place = this.#order.findIndex((each) => each.one === one)
    const alone = this.#order[place]?.atOnce !== true || this.#failed.has(one)
    if (!this.#outcomes.has(one)) {
      this.#ahead = alone ? this.#order.length : place + 1
      if (alone) await Promise.all(this.#playing)
      this.#begin(one)
    }
    if (!alone) this.#beginOthers()
    const outcome = await (this.#outcomes.get(one) as Promise<Outcome>)
    if (outcome.outcome === 'failed') {
      this.#failed.add(one)
      this.#outcomes.delete(one)
    }
    return outcome
  }

  #begin(one: Case): void {
    const playing = this.#outcome(one).finally(() => {
      this.#playing.delete(playing)
      this.#beginOthers()
    })
    this.#outcomes.set(one, playing)
    this.#playing.add(playing)
  }

  /** As many as are to be played at a time, from where we are in the order to the next one that is played alone. */
  #beginOthers(): void {
    for (; this.#playing.size < this.#atOnce && this.#order[this.#ahead]?.atOnce === true; this.#ahead += 1) {
      const next = this.#order[this.#ahead]?.one
      if (next !== undefined && !this.#outcomes.has(next)) this.#begin(next)
    }
  }

  async close(): Promise<void> {
    this.#ahead = this.#order.length
    await Promise.all(this.#playing)
    // A world that could not be made needs no closing.
    const stage = await this.#stage?.catch(() => undefined)
    await stage?.actorPool.close()
    await stage?.world.close?.()
    stage?.unhandled[Symbol.dispose]()
  }

  /** Never rejects: a world that cannot be made fails every case. */
  async #outcome(one: Case): Promise<Outcome> {
    this.#stage ??= this.#makeStage()
    try {
      const stage = await this.#stage
      const reason = inapplicable(one.needs, stage)
      if (reason !== undefined) return { outcome: 'not applicable', reason }
      await this.#play(one, stage)
      return { outcome: 'passed' }
    } catch (error) {
      if (error instanceof DoesNotApply) return { outcome: 'not applicable', reason: error.message }
      return { outcome: 'failed', error: error instanceof Error ? error : new Error(String(error)) }
    }
  }

  /** What fails first is what is told: a mess left by a failed case is no news. */
  async #play(one: Case, stage: Stage): Promise<void> {
    const scene = new Scene(stage, this.limitMs(one))
    const { mark } = stage.unhandled
    let failure: { readonly error: unknown } | undefined
    const attempt = async (part: () => Promise<void>): Promise<void> => {
      try {
        await within(this.limitMs(one), part)
      } catch (error) {
        failure ??= { error }
      }
    }
    await attempt(() => one.run(scene))
    await attempt(() => scene[Symbol.asyncDispose]())
    await attempt(() => stage.unhandled.ask(mark))
    if (failure !== undefined) throw failure.error
  }
}

async function setStage(world: World, rounds: number, seed: number): Promise<Stage> {
  const sample = await world.engine()
  const { name: engine, traits, subscribe, watch, store } = sample
  await sample[Symbol.asyncDispose]()
  const prefix = `conformance:${randomBytes(4).toString('hex')}:`
  const unhandled = new UnhandledErrors()
  const actorPool = new ActorPool(world, (what) => unhandled.write(`in an actor: ${what}`))
  return {
    world,
    engine,
    traits,
    wakes: subscribe !== undefined,
    watches: watch !== undefined,
    store: store?.traits,
    rounds,
    seed,
    prefix,
    unhandled,
    actorPool,
  }
}

/** Reject if `part` takes longer. It goes on behind, as nothing can stop it. */
async function within(limitMs: number, part: () => Promise<void>): Promise<void> {
  const over = new AbortController()
  const limit = sleep(limitMs, undefined, { signal: over.signal }).then(
    () => {
      throw new Error(`not done after ${limitMs} ms`)
    },
    () => {},
  )
  try {
    await Promise.race([part(), limit])
  } finally {
    over.abort()
  }
}

function wholeNumber(variable: string): number {
  const text = process.env[variable] ?? '1'
  const number = Number(text)
  if (Number.isInteger(number) && number >= 1) return number
  throw new RangeError(`${variable} must be a whole number, 1 or more; got '${text}'`)
}
