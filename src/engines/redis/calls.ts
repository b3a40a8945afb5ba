/**
 * What is asked of the server: each verb one script call for a whole batch. In Cluster one for each slot, all at once; a slot that fails leaves the others alone.
 */
import type { Claim, Place, Standing } from '../../core/engine.ts'
import { EngineError } from '../../core/errors.ts'
import type { Caller } from './caller.ts'
import { codeOf } from './faults.ts'
import { counterKey, type Names, slotOf } from './names.ts'
import { departures, type Inspected, inspected, type Standings } from './replies.ts'
import { enterArguments, renewArguments } from './requests.ts'
import { alone, enter, evict, inspect, leave, renew, type Script } from './scripts.ts'

export type Departing = Pick<Place, 'key' | 'id'>
type Keyed = Pick<Place, 'key'> & { readonly ttlMs?: number }

export interface CallsSetup {
  readonly caller: Caller
  readonly names: Names
  readonly standings: Standings
  readonly cluster: boolean
  /** What scripts call us: the name of our channel. */
  readonly client: string
}

export class Calls {
  readonly #caller: Caller
  readonly #names: Names
  readonly #standings: Standings
  readonly #cluster: boolean
  readonly #client: string

  constructor(setup: CallsSetup) {
    this.#caller = setup.caller
    this.#names = setup.names
    this.#standings = setup.standings
    this.#cluster = setup.cluster
    this.#client = setup.client
  }

  enter(claims: readonly Claim[]): Promise<readonly Standing[]> {
    if (!this.#cluster) return this.#enter(claims)
    return this.#eachSlot(claims, (some, slot) => this.#enter(some, slot), failed)
  }

  renew(places: readonly Place[]): Promise<readonly Standing[]> {
    if (!this.#cluster) return this.#renew(places)
    return this.#eachSlot(places, (some) => this.#renew(some).catch((error) => this.#renewAlone(some, error)), failed)
  }

  leave(places: readonly Departing[]): Promise<readonly boolean[]> {
    if (!this.#cluster) return this.#leave(places)
    return this.#eachSlot(places, (some) => this.#leave(some).catch((error) => this.#leaveAlone(some, error)))
  }

  async evict(key: string, token: bigint, how: 'expire' | 'now'): Promise<boolean> {
    return Number(await this.#call(evict, [{ key }], [String(token), how])) === 1
  }

  async inspect(key: string, what: 'all' | 'count'): Promise<Inspected> {
    return inspected(await this.#call(inspect, [{ key }], [what]), this.#names.K(key))
  }

  async #enter(claims: readonly Claim[], slot?: number): Promise<readonly Standing[]> {
    const args = enterArguments(claims, this.#client)
    if (args === undefined) return await halves(claims, (half) => this.#enter(half, slot))
    const reply = await this.#call(enter, claims, args, counterKey(slot))
    return this.#standings.entered(reply, claims)
  }

  async #renew(places: readonly Place[]): Promise<readonly Standing[]> {
    const args = renewArguments(places)
    if (args === undefined) return await halves(places, (half) => this.#renew(half))
    return this.#standings.renewed(await this.#call(renew, places, args), places)
  }

  async #leave(places: readonly Departing[]): Promise<readonly boolean[]> {
    const ids = places.map(({ id }) => id)
    return departures(await this.#call(leave, places, ids), places.length)
  }

  // ---- while Cluster moves a slot: see lua/alone.lua ----

  async #renewAlone(places: readonly Place[], error: unknown): Promise<readonly Standing[]> {
    const refusal = refusalOfMoved(error)
    return await Promise.all(
      places.map(async ({ key, id, ttlMs }): Promise<Standing> => {
        const token = String(await this.#callAlone(key, id, String(ttlMs)))
        return token === '' ? failed(refusal) : { state: 'held', token: BigInt(token), heldForMs: ttlMs }
      }),
    )
  }

  async #leaveAlone(places: readonly Departing[], error: unknown): Promise<readonly boolean[]> {
    const refusal = refusalOfMoved(error)
    const tokens = await Promise.all(places.map(({ key, id }) => this.#callAlone(key, id, '')))
    if (tokens.some((token) => String(token) === '')) throw refusal
    return places.map(() => true)
  }

  #callAlone(key: string, id: string, ttl: string): Promise<unknown> {
    const K = this.#names.sentAlone(key)
    return this.#caller.call(alone, ['', '1', K, id, ttl], K)
  }

  // ---- calling ----

  #call(script: Script, items: readonly Keyed[], args: readonly string[], counter?: string): Promise<unknown> {
    const words = ['', '']
    if (counter !== undefined) words.push(counter)
    for (const { key } of items) this.#names.sent(key, words)
    words[1] = String(words.length - 2)
    for (const arg of args) words.push(arg)
    // A lease that is soon over is not helped by what comes too late.
    return this.#caller.call(script, words, words[2] as string, (items[0]?.ttlMs ?? Number.POSITIVE_INFINITY) / 3)
  }

  async #eachSlot<One extends Keyed, Answer>(
    items: readonly One[],
    call: (items: readonly One[], slot: number) => Promise<readonly Answer[]>,
    failed?: (error: EngineError) => Answer,
  ): Promise<readonly Answer[]> {
    const bySlot = new Map<number, number[]>()
    for (const [index, { key }] of items.entries()) {
      const slot = slotOf(this.#names.K(key))
      const indices = bySlot.get(slot)
      if (indices === undefined) bySlot.set(slot, [index])
      else indices.push(index)
    }
    const answers: Answer[] = new Array(items.length)
    const calls = [...bySlot].map(async ([slot, indices]) => {
      const some = indices.map((index) => items[index] as One)
      const found = await call(some, slot).catch((error: unknown) => {
        if (failed === undefined || !(error instanceof EngineError)) throw error
        return some.map(() => failed(error))
      })
      for (const [at, index] of indices.entries()) answers[index] = found[at] as Answer
    })
    await Promise.all(calls)
    return answers
  }
}

function failed(error: EngineError): Standing {
  return { state: 'failed', error }
}

/** The error of a slot that is being moved; any other is thrown on. */
function refusalOfMoved(error: unknown): EngineError {
  if (error instanceof EngineError && codeOf(error.cause) === 'TRYAGAIN') return error
  throw error
}

/** Two calls instead of one; they are sent in order. */
async function halves<One, Answer>(
  items: readonly One[],
  call: (items: readonly One[]) => Promise<readonly Answer[]>,
): Promise<readonly Answer[]> {
  const middle = items.length >> 1
  const answers = await Promise.all([call(items.slice(0, middle)), call(items.slice(middle))])
  return answers.flat()
}
