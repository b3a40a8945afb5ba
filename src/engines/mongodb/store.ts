/**
 * The store: a record is a field of the document of its line, and a change of it one update of that document
 * (record-pipeline.ts). So is who holds: a record is changed only while that entry holds, by a majority.
 */
import type { MongodbCollection } from '../../clients/mongodb/collection.ts'
import { asEngineError } from '../../clients/mongodb/errors.ts'
import { type EngineCall, failingAs } from '../../core/failed-call.ts'
import {
  type Change,
  type Got,
  type Put,
  type Store,
  type StoredSummary,
  type StoreTraits,
  VALUE_LIMIT_BYTES,
  type When,
} from '../../core/store.ts'
import { NOW } from './expressions.ts'
import {
  gotNothing,
  gotOf,
  PUT_FIELDS,
  type PutDocument,
  putNowhere,
  putOf,
  recordSummaryOf,
  SHOWN_FIELDS,
  type ShownRecord,
} from './record-codec.ts'
import { putPipeline } from './record-pipeline.ts'

const traits: StoreTraits = {
  holding: true,
  valueLimitBytes: VALUE_LIMIT_BYTES,
  // Each change is a call of its own, all at once: as many as there are connections in a pool.
  batchLimit: 50,
  takesSignal: [],
  survives:
    'the death of any client and of any minority of the members of a replica set; on a stand-alone server, a crash ' +
    'with its journal',
}

const ANSWER_MS = 10_000
/** How many records of a listing are read at once. */
const PAGE = 500

export class MongodbStore implements Store {
  readonly traits: StoreTraits = traits
  readonly #collection: MongodbCollection
  readonly #tell: (answer: PutDocument) => void

  /** `tell` is given what a change has to tell to waiters: it settles the line. */
  constructor(collection: MongodbCollection, tell: (answer: PutDocument) => void) {
    this.#collection = collection
    this.#tell = tell
  }

  async get(keys: readonly string[]): Promise<readonly Got[]> {
    const found = await this.#look('get', [
      { $match: { _id: { $in: keys } } },
      { $project: { ...SHOWN_FIELDS, now: NOW } },
    ])
    const byKey = new Map(found.map((shown) => [shown._id, shown]))
    const timeMs = found[0]?.now.getTime() ?? (await this.#serverTimeMs('get'))
    return keys.map((key) => {
      const shown = byKey.get(key)
      if (shown === undefined) return gotNothing(key, timeMs)
      try {
        return gotOf(key, shown)
      } catch (error) {
        return { state: 'failed', error: asEngineError('get', error) }
      }
    })
  }

  /** All at once, and changes of one key one after the other. */
  async put(changes: readonly Change[]): Promise<readonly Put[]> {
    const before = new Map<string, Promise<unknown>>()
    const puts = changes.map((change) => {
      const earlier = before.get(change.key)
      const put = earlier === undefined ? this.#put(change) : earlier.then(() => this.#put(change))
      before.set(change.key, put)
      return put
    })
    return await Promise.all(puts)
  }

  async *list(prefix: string, onProgress?: () => void): AsyncGenerator<StoredSummary> {
    for (let after: object = { $gte: prefix }; ; ) {
      const page = await this.#look('list', [
        { $match: { _id: after, 'record.bytes': { $gte: 0 } } },
        { $sort: { _id: 1 } },
        { $limit: PAGE },
        {
          $project: {
            format: 1,
            'record.bytes': 1,
            'record.version': 1,
            'record.mark': 1,
            'record.expires_at': 1,
            now: NOW,
          },
        },
      ])
      for (const shown of page) {
        if (!shown._id.startsWith(prefix)) return
        const summary = recordSummaryOf(shown)
        if (summary !== undefined) yield summary
      }
      const last = page.at(-1)
      if (last === undefined || page.length < PAGE) return
      after = { $gt: last._id }
      onProgress?.()
    }
  }

  async #put(change: Change): Promise<Put> {
    const { key, when } = change
    try {
      const update = { filter: { _id: key }, pipeline: putPipeline(change), upsert: upsertsRecord(when) }
      const stored = await this.#collection.change(update, PUT_FIELDS, ANSWER_MS)
      if (stored === undefined) return putNowhere(key, when, await this.#serverTimeMs('put'))
      const answer = stored as unknown as PutDocument
      const put = putOf(key, answer)
      this.#tell(answer)
      return put
    } catch (error) {
      return { state: 'failed', error: asEngineError('put', error) }
    }
  }

  /** Asked for by itself, where there is no document whose answer has it. */
  #serverTimeMs(call: EngineCall): Promise<number> {
    const hello = this.#collection.command({ hello: 1 }, ANSWER_MS)
    const timeMs = hello.then(({ localTime }) => (localTime as Date).getTime())
    return failingAs(asEngineError, call, timeMs)
  }

  async #look(call: EngineCall, pipeline: readonly object[]): Promise<readonly ShownRecord[]> {
    const found = await failingAs(asEngineError, call, this.#collection.read(pipeline, ANSWER_MS))
    return found as readonly ShownRecord[]
  }
}

/** Whether the change makes a document where there is none. One that has to be refused then makes none. */
export function upsertsRecord({ holding, version = 0n }: When): boolean {
  return holding === undefined && version === 0n
}
