/**
 * A seeded random trace of contract calls, run on the memory engine and on the engine under test, step by step, with
 * equal answers.
 *
 * The memory engine is the reference, on a clock that moves only when told. Time is kept out of the comparison: entries
 * have a ttl that outlasts the trace, except where a step is about expiry; that step gives one entry the shortest ttl
 * and waits until the engine under test has let it go. Tokens are compared by their order, not by their value.
 */
import assert from 'node:assert/strict'
import { type Claim, type Engine, type Line, type Standing, type Traits, UNLIMITED } from '../src/core/engine.ts'
import { fakeClock, MemoryServer, memory } from '../src/testing.ts'
import { type Dice, dice } from './chance.ts'
import type { Scene } from './scene.ts'

const CLIENTS = 3
const STEPS = 150
/** Each has to be waited for: fewer where that is long. */
const EXPIRIES = 4
const LONG_EXPIRIES = 2
const LONG_TTL_MS = 1_000

type Evicting = 'expire' | 'now'

/** One engine with several clients. */
interface Side {
  readonly engines: readonly Engine[]
  /** The highest token seen, by key. */
  readonly highest: Map<string, bigint>
}

export class Trace {
  readonly #scene: Scene
  readonly #chance: Dice
  readonly #clock: ReturnType<typeof fakeClock> = fakeClock()
  readonly #reference: Side
  readonly #tried: Side
  readonly #keys: readonly string[]
  readonly #claims: Claim[] = []
  readonly #log: string[] = []
  #expiries = 0

  private constructor(scene: Scene, seed: number, tried: readonly Engine[]) {
    const server = new MemoryServer({ clock: this.#clock })
    this.#scene = scene
    this.#chance = dice(seed)
    this.#reference = { engines: tried.map(() => memory({ server })), highest: new Map() }
    this.#tried = { engines: tried, highest: new Map() }
    this.#keys = ['a', 'A', 'b'].map((label) => scene.key(`trace ${label}`))
  }

  /** Run one trace. Throws at the first difference, with the seed and the steps that led to it. */
  static async run(scene: Scene, seed: number): Promise<void> {
    const trace = new Trace(scene, seed, await scene.times(CLIENTS, () => scene.engine()))
    try {
      for (let step = 0; step < STEPS; step += 1) await trace.#step()
    } catch (error) {
      const steps = trace.#log
        .slice(-12)
        .map((step, index, last) => `  ${trace.#log.length - last.length + index + 1}. ${step}`)
      throw new Error(
        `differs from memory with HOLDFAST_SEED=${seed}, after\n${steps.join('\n')}\n${messageOf(error)}`,
        { cause: error },
      )
    }
  }

  async #step(): Promise<void> {
    const roll = this.#chance.below(100)
    if (roll < 45) await this.#enter()
    else if (roll < 60) await this.#renew()
    else if (roll < 85) await this.#leave()
    else if (roll < 93) await this.#evict()
    else await this.#expire()
    await this.#compareLines()
  }

  async #enter(): Promise<void> {
    const claims = Array.from({ length: 1 + this.#chance.below(4) }, () =>
      this.#claims.length > 0 && this.#chance.oneIn(8) ? this.#chance.pick(this.#claims) : this.#newClaim(),
    )
    const client = this.#chance.below(CLIENTS)
    this.#note(`client ${client} enters ${claims.map(described).join(', ')}`)
    await this.#both('enter', claims, (side) => side.engines[client]?.enter(claims))
    // A try that was refused was never there; entering with its id again would be another try.
    for (const claim of claims) if (claim.wait && !this.#claims.includes(claim)) this.#claims.push(claim)
  }

  #newClaim(): Claim {
    const limit = this.#chance.pick(limitsOf(this.#scene.traits))
    const weight = limit === UNLIMITED || limit === 1 ? 1 : 1 + this.#chance.below(limit)
    const id = this.#chance.id()
    return this.#scene.claim(this.#chance.pick(this.#keys), {
      id,
      weight,
      limit,
      wait: !this.#chance.oneIn(4),
      holder: id.slice(0, 4),
    })
  }

  async #renew(): Promise<void> {
    if (this.#claims.length === 0) return
    const places = Array.from({ length: 1 + this.#chance.below(5) }, () => this.#chance.pick(this.#claims))
    const client = this.#chance.below(CLIENTS)
    this.#note(`client ${client} renews ${places.map(described).join(', ')}`)
    await this.#both('renew', places, (side) => side.engines[client]?.renew(places))
  }

  async #leave(): Promise<void> {
    if (this.#claims.length === 0) return
    const places = Array.from({ length: 1 + this.#chance.below(3) }, () => this.#chance.pick(this.#claims))
    const client = this.#chance.below(CLIENTS)
    this.#note(`client ${client} leaves ${places.map(described).join(', ')}`)
    const [expected, answers] = await this.#ask((side) => side.engines[client]?.leave(places))
    assert.deepEqual(answers, expected, 'whether they were in line')
  }

  async #evict(): Promise<void> {
    const key = this.#chance.pick(this.#keys)
    const how: Evicting = this.#chance.oneIn(2) ? 'now' : 'expire'
    const lines = await this.#ask((side) => side.engines[0]?.inspect(key))
    const place = this.#chance.below(Math.max(1, lines[0].entries.length))
    const tokens = lines.map(({ entries }) => entries[place]?.token ?? null)
    const [referenceToken, token] = tokens
    // No entry there, or an engine that gives a waiter its token with the grant: nothing to name it by.
    if (typeof referenceToken !== 'bigint' || typeof token !== 'bigint') return
    this.#note(`evict ${how}: number ${place} of ${key}`)
    const expected = await this.#reference.engines[0]?.evict(key, referenceToken, how)
    assert.equal(await this.#tried.engines[0]?.evict(key, token, how), expected, 'whether it was evicted')
  }

  /** Give one entry the shortest ttl, and wait until it is gone from both. */
  async #expire(): Promise<void> {
    const { ttl, minTtlMs } = this.#scene.traits
    const enough = minTtlMs < LONG_TTL_MS ? EXPIRIES : LONG_EXPIRIES
    if (this.#claims.length === 0 || this.#expiries === enough || ttl !== 'entry') return
    const claim = this.#chance.pick(this.#claims)
    const place = { ...claim, ttlMs: Math.max(100, minTtlMs) }
    this.#note(`expire ${described(claim)}`)
    const [standing] = await this.#both('renew', [place], (side) => side.engines[0]?.renew([place]))
    if (standing?.state === 'gone') return
    this.#expiries += 1
    this.#clock.stall(place.ttlMs)
    await this.#scene.gone(this.#tried.engines[0] as Engine, place)
  }

  /** The same verb on both; answers the standings, once they are found equal. */
  async #both(
    verb: string,
    places: readonly Claim[],
    call: (side: Side) => Promise<readonly Standing[]> | undefined,
  ): Promise<readonly Standing[]> {
    const [expected, answers] = await this.#ask(call)
    assert.equal(answers.length, places.length, `answers to ${verb}`)
    for (const [index, claim] of places.entries()) {
      assert.deepEqual(
        comparable(answers[index], expected[index]),
        comparable(expected[index], answers[index]),
        `${verb} of ${described(claim)}`,
      )
      this.#noteToken(claim.key, answers[index])
    }
    return answers
  }

  async #ask<Answer>(call: (side: Side) => Promise<Answer> | undefined): Promise<[Answer, Answer]> {
    const [expected, answer] = [await call(this.#reference), await call(this.#tried)]
    assert(expected !== undefined && answer !== undefined)
    return [expected, answer]
  }

  #noteToken(key: string, standing: Standing | undefined): void {
    if (standing?.state !== 'held' || standing.token === null) return
    const { highest } = this.#tried
    if (standing.token > (highest.get(key) ?? 0n)) highest.set(key, standing.token)
  }

  async #compareLines(): Promise<void> {
    for (const key of this.#keys) {
      const client = this.#chance.below(CLIENTS)
      const [expected, line] = await this.#ask((side) => side.engines[client]?.inspect(key))
      assert.deepEqual(shape(line), shape(expected), `the line of ${key}`)
      const tokens = line.entries.map(({ token }) => token).filter((token) => token !== null)
      for (const [index, token] of tokens.entries()) {
        assert(
          index === 0 || token > (tokens[index - 1] as bigint),
          `tokens ${tokens.join(', ')} in the line of ${key}`,
        )
      }
    }
  }

  #note(step: string): void {
    this.#log.push(step)
  }
}

function limitsOf({ sharing }: Traits): readonly number[] {
  if (sharing === 'full') return [1, 1, 2, 3, 5, UNLIMITED]
  return sharing === 'read-write' ? [1, UNLIMITED] : [1]
}

/**
 * What of an answer must be equal. `ahead` counts only where both sides count, and an engine may have forgotten that
 * something expired.
 */
function comparable(standing: Standing | undefined, other: Standing | undefined): object | undefined {
  if (standing?.state === 'held') return { state: 'held', fenced: standing.token !== null }
  if (standing?.state === 'gone') return { state: 'gone', evicted: standing.why === 'evicted' }
  if (standing?.state === 'failed') return { state: 'failed', error: standing.error.name }
  if (standing === undefined) return undefined
  const counted = standing.ahead !== null && other !== undefined && 'ahead' in other && other.ahead !== null
  return { state: standing.state, ahead: counted ? standing.ahead : undefined }
}

function shape(line: Line): readonly object[] {
  return line.entries.map(({ id, holder, state, weight, limit }) => ({ id, holder, state, weight, limit }))
}

function described({ key, id, weight, limit, wait }: Claim): string {
  return `${id.slice(0, 6)} (${key.slice(-1)}, ${weight} of ${limit}${wait ? '' : ', try'})`
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}
