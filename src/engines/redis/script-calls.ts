/**
 * What is asked of the server: each verb is one script call for a whole batch, and in Cluster one for each slot, all at
 * once. If the call for one slot fails, or is not answered long after that for another slot was, only the items of that
 * slot fail: a frozen server does not take the leases on the others with it. Only `leave` fails as a whole, because its
 * answer has no word for a failed item; the core repeats it.
 */

import { codeOf, ENGINE } from '../../clients/redis/errors.ts'
import { type RedisNames, reservedKey } from '../../clients/redis/names.ts'
import type { Script, ScriptCaller } from '../../clients/redis/script-caller.ts'
import type { Clock, Timer } from '../../core/clock.ts'
import type { Claim, Place, Standing } from '../../core/engine.ts'
import { EngineError } from '../../core/errors.ts'
import { EnterArguments, presences, renewArguments, type StandingReader, ttlArgument } from './codec.ts'
import { type InspectedLine, inspectedLine } from './inspect.ts'
import { counterKey, keyList } from './names.ts'
import { alone, enter, evict, inspect, leave, renew, watch } from './scripts.ts'

type LeavingPlace = Pick<Place, 'key' | 'id'>
type Item = LeavingPlace & { readonly ttlMs?: number }

/** How long a server may take after another one has answered the same batch, at most. */
const LAG_MS = 500

/** In the place of an id, for scripts that are about a line and no entry. */
const NO_ENTRY = '-'

export interface ScriptCallsSetup {
  readonly caller: ScriptCaller
  readonly clock: Clock
  readonly names: RedisNames
  readonly standings: StandingReader
  /** What scripts call this engine object: its channel is named so. */
  readonly engineId: string
}

export class ScriptCalls {
  readonly #caller: ScriptCaller
  readonly #clock: Clock
  readonly #names: RedisNames
  readonly #standings: StandingReader
  readonly #engineId: string
  readonly #enterArguments: EnterArguments

  constructor({ caller, clock, names, standings, engineId }: ScriptCallsSetup) {
    this.#caller = caller
    this.#clock = clock
    this.#names = names
    this.#standings = standings
    this.#engineId = engineId
    this.#enterArguments = new EnterArguments(engineId)
  }

  enter(claims: readonly Claim[]): Promise<readonly Standing[]> {
    if (this.#names.together) return this.#enter(claims)
    return this.#inParts(claims, {
      call: (some, slot) => this.#enter(some, slot),
      refused: ({ key }) => failed(reservedKey(this.#names.serverKey(key))),
      failed,
    })
  }

  renew(places: readonly Place[]): Promise<readonly Standing[]> {
    if (this.#names.together) return this.#renew(places)
    return this.#inParts(places, {
      call: (some) => this.#renew(some).catch((error) => this.#renewAlone(some, error)),
      refused: () => ({ state: 'gone', why: 'unknown' }),
      failed,
    })
  }

  leave(places: readonly LeavingPlace[]): Promise<readonly boolean[]> {
    if (this.#names.together) return this.#leave(places)
    return this.#inParts(places, {
      call: (some) => this.#leave(some).catch((error) => this.#leaveAlone(some, error)),
      refused: () => false,
    })
  }

  async evict(key: string, token: bigint, how: 'expire' | 'now'): Promise<boolean> {
    if (this.#names.refuses(key)) return false
    return await this.#call(evict, [{ key, id: NO_ENTRY }], [String(token), how], (reply) => Number(reply) === 1)
  }

  async inspect(key: string, what: 'all' | 'count'): Promise<InspectedLine> {
    if (this.#names.refuses(key)) throw reservedKey(this.#names.serverKey(key))
    return await this.#call(inspect, [{ key, id: NO_ENTRY }], [what], (reply) =>
      inspectedLine(reply, this.#names.serverKey(key)),
    )
  }

  /** Watch the lines of these keys, for so long; 0: no longer. Resolves with whether each was watched before. */
  watch(keys: readonly string[], ttlMs: number): Promise<readonly boolean[]> {
    const lines = keys.map((key) => ({ key, id: NO_ENTRY }))
    return this.#inParts(lines, {
      call: (some) =>
        this.#call(watch, some, [this.#engineId, String(ttlMs)], (reply) => presences('watch', reply, some.length)),
      refused: ({ key }) => {
        throw reservedKey(this.#names.serverKey(key))
      },
    })
  }

  #enter(claims: readonly Claim[], slot?: number): Promise<readonly Standing[]> {
    const args = this.#enterArguments.of(claims)
    if (args === undefined) return halves(claims, (half) => this.#enter(half, slot))
    return this.#call(enter, claims, args, (reply) => this.#standings.entered(reply, claims), counterKey(slot))
  }

  #renew(places: readonly Place[]): Promise<readonly Standing[]> {
    const args = renewArguments(places)
    if (args === undefined) return halves(places, (half) => this.#renew(half))
    return this.#call(renew, places, args, (reply) => this.#standings.renewed(reply, places))
  }

  #leave(places: readonly LeavingPlace[]): Promise<readonly boolean[]> {
    return this.#call(leave, places, [], (reply) => presences('leave', reply, places.length))
  }

  // ---- while Cluster moves a slot: see lua/alone.lua ----

  async #renewAlone(places: readonly Place[], error: unknown): Promise<readonly Standing[]> {
    const refusal = refusalOfMoved(error)
    return await Promise.all(
      places.map(async (place): Promise<Standing> => {
        const token = await this.#callAlone(place.key, place.id, ttlArgument(place))
        return token === '' ? failed(refusal) : { state: 'held', token: BigInt(token), heldForMs: place.ttlMs }
      }),
    )
  }

  async #leaveAlone(places: readonly LeavingPlace[], error: unknown): Promise<readonly boolean[]> {
    const refusal = refusalOfMoved(error)
    const tokens = await Promise.all(places.map(({ key, id }) => this.#callAlone(key, id, '')))
    if (tokens.includes('')) throw refusal
    return places.map(() => true)
  }

  #callAlone(key: string, id: string, ttl: string): Promise<string> {
    const declared = this.#names.declaredKey(key)
    return this.#caller.call(alone, ['', '1', declared, id, ttl], declared, String)
  }

  // ---- calling ----

  #call<Answer>(
    script: Script,
    items: readonly Item[],
    args: readonly string[],
    read: (reply: unknown) => Answer,
    counter?: string,
  ): Promise<Answer> {
    const words = counter === undefined ? ['', '0'] : ['', '1', counter]
    const list = keyList(this.#names, items, words)
    words.push(list, idsOf(items), String(items.length), ...args)
    // Of a short ttl, only a third is spent on waiting for a connection: a grant that comes later is of no use.
    return this.#caller.call(script, words, words[2] as string, read, (items[0]?.ttlMs ?? Number.POSITIVE_INFINITY) / 3)
  }

  /** One call for each slot, and none for keys that are refused. */
  async #inParts<One extends Item, Answer>(
    items: readonly One[],
    { call, refused, failed }: Parts<One, Answer>,
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
      const some = indices.map((index) => items[index] as One)
      return { indices, some, found: call(some, slot) }
    })
    const tooLate = this.#lagging(
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

  /** Rejects when the first of these calls was answered `lagMs` ago. If all of them are answered until then: never. */
  #lagging(calls: readonly Promise<unknown>[], lagMs: number): Promise<never> {
    let timer: Timer | undefined
    let open = calls.length
    const tooLate = new Promise<never>((_, reject) => {
      const answered = (): void => {
        open -= 1
        if (open === 0) timer?.cancel()
        else timer ??= this.#clock.timer(lagMs, () => reject(laggard(lagMs)))
      }
      for (const call of calls) call.then(answered, answered)
    })
    tooLate.catch(() => undefined)
    return tooLate
  }
}

function laggard(lagMs: number): EngineError {
  const message = `a server of the Cluster has not answered ${Math.round(lagMs)} ms after another one`
  return new EngineError(ENGINE, message, { outcome: 'unknown' })
}

function shortestTtlMs(items: readonly Item[]): number {
  let shortest = Number.POSITIVE_INFINITY
  for (const { ttlMs = Number.POSITIVE_INFINITY } of items) shortest = Math.min(shortest, ttlMs)
  return shortest
}

interface Parts<One, Answer> {
  call(items: readonly One[], slot: number | undefined): Promise<readonly Answer[]>
  /** The answer for a key that cannot be served. */
  refused(item: One): Answer
  /** The answer for an item whose call failed; without it, all fail. */
  readonly failed?: (error: EngineError) => Answer
}

function idsOf(items: readonly Item[]): string {
  let ids = items[0]?.id ?? ''
  for (let at = 1; at < items.length; at += 1) ids += ` ${items[at]?.id}`
  return ids
}

function failed(error: EngineError): Standing {
  return { state: 'failed', error }
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

/** Two calls instead of one; they are sent in order. */
async function halves<One, Answer>(
  items: readonly One[],
  call: (items: readonly One[]) => Promise<readonly Answer[]>,
): Promise<readonly Answer[]> {
  const middle = items.length >> 1
  const answers = await Promise.all([call(items.slice(0, middle)), call(items.slice(middle))])
  return answers.flat()
}
