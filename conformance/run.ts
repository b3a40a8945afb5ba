/**
 * Running cases: with `runCases`, which needs no test runner and returns what came out, or with `conformance`, which registers them with yours.
 *
 * Each case ends in one of three ways. *Not applicable* means that the engine or the world lacks what the case is about; it comes with the reason, it is counted as
 * skipped, and it is never called passed.
 */
import { randomBytes } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { Troupe } from './actor/troupe.ts'
import type { Case, Group } from './case.ts'
import { groups } from './cases/index.ts'
import { inapplicable } from './needs.ts'
import { DoesNotApply, Scene, type Stage } from './scene.ts'
import { Witness } from './witness.ts'
import type { World } from './world.ts'

export interface RunOptions {
  /** How much more than usual to try: 1, or the environment variable HOLDFAST_ROUNDS. */
  readonly rounds?: number
  /** Where chance begins: 1, or the environment variable HOLDFAST_SEED. A failure that chance found names its seed. */
  readonly seed?: number
  /** How long a case may take at most: 20 s, or as long as the case says. */
  readonly limitMs?: number
  /** Run only cases for which this answers true. */
  readonly only?: (name: string, property: string) => boolean
}

export type Result = { readonly property: string; readonly name: string } & Outcome

export type Outcome =
  | { readonly outcome: 'passed' }
  | { readonly outcome: 'failed'; readonly error: Error }
  | { readonly outcome: 'not applicable'; readonly reason: string }

/** The part of a test runner that is used; vitest and node:test both have it (whose `after` is vitest's `afterAll`). */
export interface TestRunner {
  describe(name: string, body: () => void): unknown
  it(name: string, options: { readonly timeout: number }, test: (context: { skip(reason?: string): void }) => Promise<void>): unknown
  afterAll(close: () => Promise<void>): unknown
}

const USUAL_LIMIT_MS = 20_000

/** Run the suite in one world, one group of cases after the other, and close it. Never rejects for a case that failed. */
export async function runCases(makeWorld: () => World | Promise<World>, options: RunOptions = {}): Promise<readonly Result[]> {
  const results: Result[] = []
  const run = new Run(makeWorld, options)
  try {
    for (const group of chosen(options)) {
      for (const one of group.cases) results.push({ property: group.property, name: one.name, ...(await run.outcome(one, group)) })
    }
  } finally {
    await run.close()
  }
  return results
}

/** Register the suite with a test runner: `conformance({ describe, it, afterAll }, 'memory', makeWorld)`. */
export function conformance(runner: TestRunner, engine: string, makeWorld: () => World | Promise<World>, options: RunOptions = {}): void {
  const { describe, it, afterAll } = runner
  describe(`${engine} conforms`, () => {
    const run = new Run(makeWorld, options)
    for (const group of chosen(options)) {
      describe(group.property, () => {
        for (const one of group.cases) {
          // The case has a limit of its own, which says more; the runner's is only the last resort.
          it(one.name, { timeout: 3 * run.limitMs(one) }, async (context) => {
            const result = await run.outcome(one, group)
            if (result.outcome === 'failed') throw result.error
            if (result.outcome === 'not applicable') context.skip(result.reason)
          })
        }
      })
    }
    afterAll(() => run.close())
  })
}

function chosen({ only }: RunOptions): readonly Group[] {
  if (only === undefined) return groups
  return groups
    .map((group) => ({ ...group, cases: group.cases.filter(({ name }) => only(name, group.property)) }))
    .filter(({ cases }) => cases.length > 0)
}

class Run {
  readonly #limitMs: number | undefined
  readonly #rounds: number
  readonly #makeStage: () => Promise<Stage>
  readonly #outcomes = new Map<Case, Promise<Outcome>>()
  #stage: Promise<Stage> | undefined

  constructor(makeWorld: () => World | Promise<World>, options: RunOptions) {
    this.#limitMs = options.limitMs
    this.#rounds = options.rounds ?? wholeNumber('HOLDFAST_ROUNDS')
    const seed = options.seed ?? wholeNumber('HOLDFAST_SEED')
    this.#makeStage = async () => setStage(await makeWorld(), this.#rounds, seed)
  }

  limitMs({ limitMs = USUAL_LIMIT_MS }: Case): number {
    return this.#limitMs ?? limitMs * this.#rounds
  }

  /** How the case came out. What is played at once with it begins now, too. */
  async outcome(one: Case, { cases, atOnce = false }: Group): Promise<Outcome> {
    for (const each of atOnce ? cases : [one]) {
      if (!this.#outcomes.has(each)) this.#outcomes.set(each, this.#outcome(each))
    }
    return this.#outcomes.get(one) as Promise<Outcome>
  }

  async close(): Promise<void> {
    await Promise.allSettled(this.#outcomes.values())
    // A world that could not be made has failed every case, and needs no closing.
    const stage = await this.#stage?.catch(() => undefined)
    await stage?.troupe.close()
    await stage?.world.close?.()
    stage?.witness[Symbol.dispose]()
  }

  async #outcome(one: Case): Promise<Outcome> {
    this.#stage ??= this.#makeStage()
    const stage = await this.#stage
    const reason = inapplicable(one.needs, stage)
    if (reason !== undefined) return { outcome: 'not applicable', reason }
    try {
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
    await attempt(() => stage.witness.ask())
    if (failure !== undefined) throw failure.error
  }
}

async function setStage(world: World, rounds: number, seed: number): Promise<Stage> {
  const sample = await world.engine()
  const { traits, subscribe, watch } = sample
  await sample[Symbol.asyncDispose]()
  const prefix = `conformance:${randomBytes(4).toString('hex')}:`
  const witness = new Witness()
  const troupe = new Troupe(world, (what) => witness.write(`in an actor: ${what}`))
  return { world, traits, wakes: subscribe !== undefined, watches: watch !== undefined, rounds, seed, prefix, witness, troupe }
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
