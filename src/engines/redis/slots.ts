/**
 * Redis Cluster: one call can only concern keys of one slot. So a batch becomes one call for each slot, all at once. If
 * the call for one slot fails, or is not answered long after that for another slot was, only the items of that slot
 * fail: a frozen server does not take the leases on the others with it. Only `leave` fails as a whole, because its
 * answer has no word for a failed item; the core repeats it.
 *
 * Outside Cluster it is used only where the prefix lets some keys look like keys of our own: those are refused, and all
 * others go in one call.
 */

import { codeOf, ENGINE } from '../../clients/redis/errors.ts'
import type { RedisNames } from '../../clients/redis/names.ts'
import type { ScriptCaller } from '../../clients/redis/script-caller.ts'
import type { Clock, Timer } from '../../core/clock.ts'
import type { Place, Standing } from '../../core/engine.ts'
import { EngineError } from '../../core/errors.ts'
import type { EngineCall } from '../../core/failed-call.ts'
import { type CallItem, ttlArgument } from './codec.ts'
import { alone } from './scripts.ts'

/** How long a server may take after another one has answered the same batch, at most. */
const LAG_MS = 500

/** How a batch is called in parts. */
export interface SlotCall<Item, Answer> {
  /** What is called, for messages of errors. */
  readonly verb: EngineCall
  call(items: readonly Item[], slot: number | undefined): Promise<readonly Answer[]>
  /** The answer for a key that cannot be served. */
  refused(item: Item): Answer
  /** The answer for an item whose call failed; without it, all fail. */
  readonly failed?: (error: EngineError) => Answer
}

export class SlotCalls {
  readonly #caller: ScriptCaller
  readonly #names: RedisNames
  readonly #clock: Clock

  constructor(caller: ScriptCaller, names: RedisNames, clock: Clock) {
    this.#caller = caller
    this.#names = names
    this.#clock = clock
  }

  /** One call for each slot, and none for keys that are refused. */
  async bySlot<Item extends CallItem & { readonly ttlMs?: number }, Answer>(
    items: readonly Item[],
    { verb, call, refused, failed }: SlotCall<Item, Answer>,
  ): Promise<readonly Answer[]> {
    const answers: Answer[] = new Array(items.length)
    const bySlot = new Map<number | undefined, number[]>()
    for (const [index, item] of items.entries()) {
      const slot = this.#names.slot(item.key)
      const indices = bySlot.get(slot)
      if (this.#names.refuses(item.key)) answers[index] = refused(item)
      else if (indices === undefined) bySlot.set(slot, [index])
      else indices.push(index)
    }
    const parts = [...bySlot].map(([slot, indices]) => {
      const some = indices.map((index) => items[index] as Item)
      return { indices, some, found: call(some, slot) }
    })
    const tooLate = this.#lagging(
      verb,
      parts.map(({ found }) => found),
      Math.min(LAG_MS, shortestTtlMs(items) / 6),
    )
    const settled = parts.map(async ({ indices, some, found }) => {
      const known = await Promise.race([found, tooLate]).catch((error: unknown) => {
        if (failed === undefined || !(error instanceof EngineError)) throw error
        return some.map(() => failed(error))
      })
      for (const [at, index] of indices.entries()) answers[index] = known[at] as Answer
    })
    await Promise.all(settled)
    return answers
  }

  // ---- while a slot is being moved: see lua/alone.lua ----

  async renewAlone(places: readonly Place[], error: unknown): Promise<readonly Standing[]> {
    const refusal = refusalOfMoved(error)
    return await Promise.all(
      places.map(async (place): Promise<Standing> => {
        const token = await this.#callAlone('renew', place.key, place.id, ttlArgument(place))
        return token === ''
          ? { state: 'failed', error: refusal }
          : { state: 'held', token: BigInt(token), heldForMs: place.ttlMs }
      }),
    )
  }

  async leaveAlone(places: readonly CallItem[], error: unknown): Promise<readonly boolean[]> {
    const refusal = refusalOfMoved(error)
    const tokens = await Promise.all(places.map(({ key, id }) => this.#callAlone('leave', key, id, '')))
    if (tokens.includes('')) throw refusal
    return places.map(() => true)
  }

  #callAlone(verb: EngineCall, key: string, id: string, ttl: string): Promise<string> {
    const declared = this.#names.declaredKey(key)
    return this.#caller.call(verb, alone, ['', '1', declared, id, ttl], declared, String)
  }

  /** Rejects when the first of these calls was answered `lagMs` ago. If all of them are answered until then: never. */
  #lagging(verb: EngineCall, calls: readonly Promise<unknown>[], lagMs: number): Promise<never> {
    let timer: Timer | undefined
    let open = calls.length
    const tooLate = new Promise<never>((_, reject) => {
      const answered = (): void => {
        open -= 1
        if (open === 0) timer?.cancel()
        else timer ??= this.#clock.timer(lagMs, () => reject(laggard(verb, lagMs)))
      }
      for (const call of calls) call.then(answered, answered)
    })
    tooLate.catch(() => undefined)
    return tooLate
  }
}

function laggard(verb: EngineCall, lagMs: number): EngineError {
  const message = `${verb}: a server of the Cluster has not answered ${Math.round(lagMs)} ms after another one`
  return new EngineError(ENGINE, message, { outcome: 'unknown' })
}

function shortestTtlMs(items: readonly { readonly ttlMs?: number }[]): number {
  let shortest = Number.POSITIVE_INFINITY
  for (const { ttlMs = Number.POSITIVE_INFINITY } of items) shortest = Math.min(shortest, ttlMs)
  return shortest
}

/**
 * The codes of the errors that clients give up with while a slot is being moved. A client tries the old and the new
 * server by turns, and passes on the last error, of the one or of the other.
 */
const MOVING: ReadonlySet<string | undefined> = new Set(['TRYAGAIN', 'ASK', 'MOVED'])

/** The error of a slot that is being moved; any other is thrown on. */
function refusalOfMoved(error: unknown): EngineError {
  if (error instanceof EngineError && MOVING.has(codeOf(error.cause))) return error
  throw error
}
