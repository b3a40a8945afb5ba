/** The store of a Redis engine: a record is a string in the slot of its line, changed by one script (lua/put.lua). */
import { type RedisNames, reservedKey } from '../../clients/redis/names.ts'
import type { ScriptCaller } from '../../clients/redis/script-caller.ts'
import { type RedisWire, scanPages } from '../../clients/redis/wire.ts'
import {
  type Change,
  type Got,
  type Put,
  type Store,
  type StoredSummary,
  type StoreFailure,
  type StoreTraits,
  VALUE_LIMIT_BYTES,
} from '../../core/store.ts'
import type { PoolAnswer, PoolStep } from '../../core/store-hold.ts'
import type { Draw, Drawn } from '../../core/store-take.ts'
import { type DrawItem, drawItem, inSeveralSlots, readDraws, takeWords } from './draw-codec.ts'
import { counterKey, lineOfRecord, recordPatterns } from './names.ts'
import { holdWords, readHolds } from './pool-codec.ts'
import { type ChangeItem, changeItem, getWords, putWords, readGets, readPuts } from './record-codec.ts'
import { get, hold, put, take } from './scripts.ts'
import type { SlotCalls } from './slots.ts'

/** Some megabytes of the largest values in one call: a server does nothing else meanwhile. */
const BATCH_LIMIT = 50

const traits: StoreTraits = {
  holding: true,
  valueLimitBytes: VALUE_LIMIT_BYTES,
  batchLimit: BATCH_LIMIT,
  takesSignal: false,
  survives:
    'the death of any client; with persistence, restarts of the server; a fail-over can lose records, since replication is asynchronous',
}

export interface RedisStoreSetup {
  readonly wire: RedisWire
  readonly names: RedisNames
  readonly caller: ScriptCaller
  readonly slots: SlotCalls
}

export class RedisStore implements Store {
  readonly traits: StoreTraits = traits
  readonly #wire: RedisWire
  readonly #names: RedisNames
  readonly #caller: ScriptCaller
  readonly #slots: SlotCalls

  constructor({ wire, names, caller, slots }: RedisStoreSetup) {
    this.#wire = wire
    this.#names = names
    this.#caller = caller
    this.#slots = slots
  }

  get(keys: readonly string[]): Promise<readonly Got[]> {
    if (this.#names.together) return this.#get(keys)
    const items = keys.map((key) => ({ key, id: '' }))
    return this.#slots.bySlot(items, {
      call: (some) => this.#get(some.map(({ key }) => key)),
      refused: ({ key }): Got => this.#reserved(key),
      failed: (error): Got => ({ state: 'failed', error }),
    })
  }

  put(changes: readonly Change[]): Promise<readonly Put[]> {
    const items = changes.map(changeItem)
    if (this.#names.together) return this.#put(items)
    return this.#slots.bySlot(items, {
      call: (some, slot) => this.#put(some, slot),
      refused: ({ key }): Put => this.#reserved(key),
      failed: (error): Put => ({ state: 'failed', error }),
    })
  }

  async take(draws: readonly Draw[]): Promise<readonly Drawn[]> {
    const items = draws.map(drawItem)
    if (this.#names.together) return await this.#take(items)
    const refusals = items.map(({ draw }) => this.#refusalOf(draw))
    const answers = await this.#slots.bySlot(
      items.filter((_, index) => refusals[index] === undefined),
      {
        call: (some) => this.#take(some),
        refused: ({ key }): Drawn => this.#reserved(key),
        failed: (error): Drawn => ({ state: 'failed', error }),
      },
    )
    let next = 0
    return refusals.map((refusal) => refusal ?? (answers[next++] as Drawn))
  }

  hold(steps: readonly PoolStep[]): Promise<readonly PoolAnswer[]> {
    if (this.#names.together) return this.#hold(steps)
    return this.#slots.bySlot(steps, {
      call: (some) => this.#hold(some),
      refused: ({ key }): PoolAnswer => this.#reserved(key),
      failed: (error): PoolAnswer => ({ state: 'failed', error }),
    })
  }

  /** By SCAN: on every server, page by page, so that no server is stopped for long. */
  async *list(prefix: string, onProgress: () => void = () => undefined): AsyncGenerator<StoredSummary> {
    await this.#caller.connected()
    const seen = new Set<string>()
    for (const server of await this.#wire.servers()) {
      for (const pattern of recordPatterns(this.#names.serverKey(prefix), this.#wire)) {
        for await (const names of scanPages(server, pattern, 'string')) {
          onProgress()
          yield* this.#summaries(names, prefix, seen)
        }
      }
    }
  }

  async *#summaries(names: readonly string[], prefix: string, seen: Set<string>): AsyncGenerator<StoredSummary> {
    const found = names
      .map((name) => lineOfRecord(name, this.#wire))
      .filter((serverKey) => serverKey !== undefined)
      .map((serverKey) => this.#names.userKey(serverKey))
      .filter((key) => key.startsWith(prefix) && !seen.has(key))
    const keys = [...new Set(found)]
    for (let from = 0; from < keys.length; from += BATCH_LIMIT) {
      for (const got of await this.get(keys.slice(from, from + BATCH_LIMIT))) {
        if (got.state === 'failed') throw got.error
        const { key, value, version, mark, livesForMs } = got.stored
        if (value === null) continue
        seen.add(key)
        yield { key, bytes: value.length, version, mark, livesForMs }
      }
    }
  }

  #get(keys: readonly string[]): Promise<readonly Got[]> {
    const words = getWords(this.#names, keys)
    return this.#caller.call(get, words, words[2] as string, (reply) => readGets(reply, keys))
  }

  #put(items: readonly ChangeItem[], slot?: number): Promise<readonly Put[]> {
    const words = putWords(this.#names, items, counterKey(slot))
    return this.#caller.call(put, words, words[2] as string, (reply) => readPuts(reply, items))
  }

  #take(items: readonly DrawItem[]): Promise<readonly Drawn[]> {
    const words = takeWords(this.#names, items)
    return this.#caller.call(take, words, words[2] as string, (reply) => readDraws(reply, items))
  }

  /** Of a draw from several keys that cannot be made. */
  #refusalOf({ parts }: Draw): StoreFailure | undefined {
    const [first, ...others] = parts.map(({ key }) => key)
    for (const key of others) {
      if (this.#names.refuses(key)) return this.#reserved(key)
      if (this.#names.slot(key) !== this.#names.slot(first as string))
        return { state: 'failed', error: inSeveralSlots(first as string, key) }
    }
    return undefined
  }

  #hold(steps: readonly PoolStep[]): Promise<readonly PoolAnswer[]> {
    const words = holdWords(this.#names, steps)
    return this.#caller.call(hold, words, words[2] as string, (reply) => readHolds(reply, steps.length))
  }

  #reserved(key: string): StoreFailure {
    return { state: 'failed', error: reservedKey(this.#names.serverKey(key)) }
  }
}
