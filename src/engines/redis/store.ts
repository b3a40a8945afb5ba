/**
 * The store of a Redis engine: a record is a string in the slot of its line (lua/record.lua). It is changed by one
 * script: by itself (lua/put.lua), together with an entrance (lua/begin.lua), or before a departure (lua/finish.lua).
 */
import { asEngineError, ENGINE } from '../../clients/redis/errors.ts'
import { type RedisNames, reservedKey } from '../../clients/redis/names.ts'
import type { Script, ScriptCaller } from '../../clients/redis/script-caller.ts'
import { type RedisWire, scanPages } from '../../clients/redis/wire.ts'
import type { Clock } from '../../core/clock.ts'
import type { EngineError } from '../../core/errors.ts'
import {
  type Change,
  type Entered,
  type Entrance,
  type Got,
  type Leaving,
  type Put,
  type Store,
  type StoredSummary,
  type StoreFailure,
  type StoreTraits,
  VALUE_LIMIT_BYTES,
} from '../../core/store.ts'
import type { PoolAnswer, PoolStep } from '../../core/store-hold.ts'
import type { Draw, Drawn } from '../../core/store-take.ts'
import { drawItem, drawnsOf, inSeveralSlots, takeWords } from './draw-codec.ts'
import { counterKey, lineOfRecord, plainRecordKey, recordPatterns } from './names.ts'
import { holdAnswersOf, holdWords } from './pool-codec.ts'
import { RecentReads } from './recent-reads.ts'
import {
  type ChangeItem,
  changeItem,
  claimWords,
  type EntranceItem,
  enteredOf,
  entranceItem,
  getWords,
  gotsOf,
  leavingItem,
  putsOf,
  putWords,
} from './record-codec.ts'
import { begin, finish, get, hold, put, take } from './scripts.ts'
import type { SlotCalls } from './slots.ts'

/** Some megabytes of the largest values in one call: a server does nothing else meanwhile. */
const BATCH_LIMIT = 50

const traits: StoreTraits = {
  holding: true,
  valueLimitBytes: VALUE_LIMIT_BYTES,
  batchLimit: BATCH_LIMIT,
  holdsOverlap: true,
  takesSignal: [],
  survives:
    'the death of any client; with persistence, restarts of the server; a fail-over can lose records, since replication is asynchronous',
}

export interface RedisStoreSetup {
  readonly wire: RedisWire
  readonly names: RedisNames
  readonly caller: ScriptCaller
  readonly slots: SlotCalls
  /** What scripts call the engine object of this store. */
  readonly engineId: string
  readonly clock: Clock
}

export class RedisStore implements Store {
  readonly traits: StoreTraits = traits
  readonly #wire: RedisWire
  readonly #names: RedisNames
  readonly #caller: ScriptCaller
  readonly #slots: SlotCalls
  readonly #engineId: string
  readonly #clock: Clock
  /** Undefined where the client changes names, or reads from several servers: there, scripts read. */
  readonly #recent: RecentReads | undefined

  constructor({ wire, names, caller, slots, engineId, clock }: RedisStoreSetup) {
    this.#wire = wire
    this.#names = names
    this.#caller = caller
    this.#slots = slots
    this.#engineId = engineId
    this.#clock = clock
    const scriptsRead = wire.cluster || wire.keyPrefix !== '' || wire.readsReplicas === true
    if (!scriptsRead) this.#recent = new RecentReads(clock)
  }

  get(keys: readonly string[]): Promise<readonly Got[]> {
    if (this.#names.together) return this.#get(keys)
    const items = keys.map((key) => ({ key, id: '' }))
    return this.#slots.bySlot(items, {
      verb: 'get',
      call: (some) => this.#get(some.map(({ key }) => key)),
      refused: ({ key }): Got => this.#reserved(key),
      failed: (error): Got => ({ state: 'failed', error }),
    })
  }

  put(changes: readonly Change[]): Promise<readonly Put[]> {
    return this.#change(put, changes.map(changeItem))
  }

  putLeaving(leavings: readonly Leaving[]): Promise<readonly Put[]> {
    return this.#change(finish, leavings.map(leavingItem))
  }

  putEntering(entrances: readonly Entrance[]): Promise<readonly Entered[]> {
    const items = entrances.map(entranceItem)
    if (this.#names.together) return this.#begin(items)
    return this.#slots.bySlot(items, {
      verb: 'put',
      call: (some, slot) => this.#begin(some, slot),
      refused: ({ key }) => failedEntrance(this.#reserved(key)),
      failed: (error) => failedEntrance({ state: 'failed', error }),
    })
  }

  #change(script: Script, items: readonly ChangeItem[]): Promise<readonly Put[]> {
    if (this.#names.together) return this.#put(script, items)
    return this.#slots.bySlot(items, {
      verb: 'put',
      call: (some, slot) => this.#put(script, some, slot),
      refused: ({ key }): Put => this.#reserved(key),
      failed: (error): Put => ({ state: 'failed', error }),
    })
  }

  take(draws: readonly Draw[]): Promise<readonly Drawn[]> {
    return this.#names.together ? this.#take(draws) : this.#takeBySlot(draws)
  }

  async #takeBySlot(draws: readonly Draw[]): Promise<readonly Drawn[]> {
    const items = draws.map(drawItem)
    const refusals = items.map(({ draw }) => this.#refusalOf(draw))
    const answers = await this.#slots.bySlot(
      items.filter((_, index) => refusals[index] === undefined),
      {
        verb: 'take',
        call: (some) => this.#take(some.map(({ draw }) => draw)),
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
      verb: 'hold',
      call: (some) => this.#hold(some),
      refused: ({ key }): PoolAnswer => this.#reserved(key),
      failed: (error): PoolAnswer => ({ state: 'failed', error }),
    })
  }

  /** By SCAN: on every server, page by page, so that no server is stopped for long. */
  async *list(prefix: string, onProgress: () => void = () => undefined): AsyncGenerator<StoredSummary> {
    const seen = new Set<string>()
    try {
      await this.#caller.connected()
      for (const server of await this.#wire.servers()) {
        for (const pattern of recordPatterns(this.#names.serverKey(prefix), this.#wire)) {
          for await (const names of scanPages(server, pattern, 'string')) {
            onProgress()
            yield* this.#summaries(names, prefix, seen)
          }
        }
      }
    } catch (error) {
      throw asEngineError('list', error)
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
    return this.#recent?.allKnown(keys) === true ? this.#getPlainly(keys, this.#recent) : this.#getInFull(keys)
  }

  #getInFull(keys: readonly string[]): Promise<readonly Got[]> {
    const words = getWords(this.#names, keys)
    const sentAt = this.#clock.now()
    return this.#caller.call('get', get, words, words[2] as string, (reply) => {
      const gots = gotsOf(reply, keys)
      this.#recent?.remember(sentAt, gots)
      return gots
    })
  }

  /** By a plain command. What has changed, or is gone, is read in full after it. */
  #getPlainly(keys: readonly string[], recent: RecentReads): Promise<readonly Got[]> {
    const names = keys.map((key) => plainRecordKey(this.#names.serverKey(key)))
    return this.#caller.command('get', 'MGET', names, (reply) => {
      const gots = recent.readAnswers(reply, keys)
      return gots.includes(undefined) ? this.#getMissing(gots, keys) : (gots as readonly Got[])
    })
  }

  async #getMissing(gots: readonly (Got | undefined)[], keys: readonly string[]): Promise<readonly Got[]> {
    const again = await this.#getInFull(keys.filter((_, index) => gots[index] === undefined))
    let next = 0
    return gots.map((got) => got ?? (again[next++] as Got))
  }

  #put(script: Script, items: readonly ChangeItem[], slot?: number): Promise<readonly Put[]> {
    const words = putWords(this.#names, items, counterKey(slot))
    return this.#caller.call('put', script, words, words[2] as string, (reply) => putsOf(this.#names, reply, items))
  }

  /** Claims of one ttl and holder in one call. Others, which are rare, are asked for beside them. */
  #begin(items: readonly EntranceItem[], slot?: number): Promise<readonly Entered[]> {
    const [first] = items as readonly [EntranceItem]
    const { ttlMs, holder } = first.claim
    const isAlike = ({ claim }: EntranceItem): boolean => claim.ttlMs === ttlMs && claim.holder === holder
    if (!items.every(isAlike)) return this.#beginApart(items, items.filter(isAlike), slot)
    const words = putWords(this.#names, items, counterKey(slot), claimWords(first.claim, this.#engineId))
    const read = (reply: unknown): Entered[] => enteredOf(this.#names, reply, items)
    return this.#caller.call('put', begin, words, words[2] as string, read, ttlMs / 3)
  }

  async #beginApart(
    items: readonly EntranceItem[],
    some: readonly EntranceItem[],
    slot: number | undefined,
  ): Promise<readonly Entered[]> {
    const others = items.filter((item) => !some.includes(item))
    // One of the calls may fail, and not the other.
    const parts = [some, others].map((part) =>
      this.#begin(part, slot).catch((error: EngineError) => part.map(() => failedEntrance({ state: 'failed', error }))),
    )
    const entered = (await Promise.all(parts)).flat()
    const answers = new Map([...some, ...others].map((item, index) => [item, entered[index] as Entered]))
    return items.map((item) => answers.get(item) as Entered)
  }

  #take(draws: readonly Draw[]): Promise<readonly Drawn[]> {
    const words = takeWords(this.#names, draws)
    return this.#caller.call('take', take, words, words[2] as string, (reply) => drawnsOf(reply, draws))
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
    return this.#caller.call('hold', hold, words, words[2] as string, (reply) => holdAnswersOf(reply, steps.length))
  }

  #reserved(key: string): StoreFailure {
    return { state: 'failed', error: reservedKey(ENGINE, this.#names.serverKey(key)) }
  }
}

function failedEntrance(failure: StoreFailure): Entered {
  return { standing: failure, put: failure }
}
