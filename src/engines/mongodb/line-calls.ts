/**
 * Which calls a batch is made of. All items of one line go into one update. One line is one `findOneAndUpdate`, which
 * answers with the document; so are a few lines, at once. Many lines are one `bulkWrite`, which answers with no
 * document, and one read after it: two round trips instead of as many calls as there are lines.
 */
import type { DocumentChange, MongodbCollection } from '../../clients/mongodb/collection.ts'
import { asEngineError, MONGODB_CODE, mongodbCodeOf } from '../../clients/mongodb/errors.ts'
import type { MongodbDocument } from '../../clients/mongodb/wire.ts'
import type { Clock } from '../../core/clock.ts'
import { EngineError } from '../../core/errors.ts'
import type { EngineCall } from '../../core/failed-call.ts'
import { ANSWERED_FIELDS, type LineDocument, readable } from './codec.ts'
import { asDoubtful } from './errors.ts'
import { NOW } from './expressions.ts'
import type { UpdatePipeline } from './settling.ts'

/** Up to so many lines, a call for each is sooner done than a write and a read. */
const FEW_LINES = 3

/** A change of one line. */
export interface LineChange {
  readonly key: string
  readonly pipeline: UpdatePipeline
  /** Whether it makes a line that is not there. */
  readonly upsert: boolean
  /** What else has to be so, for it to be changed. */
  readonly filter?: MongodbDocument
}

/** The line after the change, or undefined if there was none to change; or why it failed. */
export type LineAnswer = LineDocument | undefined | EngineError

/** The items of one line, in their order, and where in the batch they were. */
export interface LineGroup<Item> {
  readonly key: string
  readonly items: Item[]
  readonly indexes: number[]
}

export function groupByLine<Item extends { readonly key: string }>(items: readonly Item[]): LineGroup<Item>[] {
  const groups = new Map<string, LineGroup<Item>>()
  for (const [index, item] of items.entries()) {
    const group = groups.get(item.key) ?? { key: item.key, items: [], indexes: [] }
    groups.set(item.key, group)
    group.items.push(item)
    group.indexes.push(index)
  }
  return [...groups.values()]
}

/** The answers of all groups, in the order of the batch. */
export function ungrouped<Item, Answer>(
  groups: readonly LineGroup<Item>[],
  answersOf: (group: LineGroup<Item>, index: number) => readonly Answer[],
): Answer[] {
  const answers: Answer[] = []
  for (const [index, group] of groups.entries()) {
    const some = answersOf(group, index)
    for (const [place, target] of group.indexes.entries()) answers[target] = some[place] as Answer
  }
  return answers
}

export class LineCalls {
  readonly #collection: MongodbCollection
  readonly #clock: Clock

  constructor(collection: MongodbCollection, clock: Clock) {
    this.#collection = collection
    this.#clock = clock
  }

  /** Rejects with an `EngineError` if nothing is known of all of them. */
  async change(call: EngineCall, changes: readonly LineChange[], limitMs: number): Promise<readonly LineAnswer[]> {
    const [only] = changes
    if (only !== undefined && changes.length === 1) return [await this.changeOne(call, only, limitMs)]
    if (changes.length > FEW_LINES) return await this.#changeMany(call, changes, limitMs)
    return await Promise.all(
      changes.map((one) => this.changeOne(call, one, limitMs).catch((error: EngineError) => error)),
    )
  }

  async changeOne(call: EngineCall, change: LineChange, limitMs: number): Promise<LineDocument | undefined> {
    try {
      const stored = await this.#collection.change(documentChange(change), ANSWERED_FIELDS, limitMs)
      return stored === undefined ? undefined : readable(stored as unknown as LineDocument)
    } catch (error) {
      throw asEngineError(call, error)
    }
  }

  /**
   * Several leaves, each of one entry whose line no other entry of this process is in, which fail if that is not there:
   * whether each was. The lines tell nothing of that afterwards: others may have entered and left them since.
   */
  async leaveMany(changes: readonly LineChange[], limitMs: number): Promise<boolean[]> {
    try {
      return await this.#collection.inSession(async (session) => {
        const until = this.#clock.now() + limitMs
        const { matched, failed } = await this.#collection.changeMany(changes.map(documentChange), limitMs, session)
        // The others were done.
        for (const error of failed.values())
          if (mongodbCodeOf(error) !== MONGODB_CODE.conversionFailure) throw asDoubtful('leave', error)
        const left = changes.map((_, index) => !failed.has(index))
        if (matched + failed.size === changes.length) return left
        // Some lines are not there at all.
        const stored = await this.#read('leave', changes, until - this.#clock.now(), session)
        const found = left.map((wasThere, index) => wasThere && stored[index] !== undefined)
        if (found.filter(Boolean).length === matched) return found
        throw asDoubtful('leave', new Error('some lines were not there, and have been made since'))
      })
    } catch (error) {
      throw asEngineError('leave', error)
    }
  }

  async #changeMany(call: EngineCall, changes: readonly LineChange[], limitMs: number): Promise<readonly LineAnswer[]> {
    try {
      // In one session: the read sees what was written, also if another server has become primary in between.
      return await this.#collection.inSession(async (session) => {
        const until = this.#clock.now() + limitMs
        const { failed } = await this.#collection.changeMany(changes.map(documentChange), limitMs, session)
        const stored = await this.#read(call, changes, until - this.#clock.now(), session)
        return await Promise.all(
          changes.map(async (change, index) => {
            const error = failed.get(index)
            if (error === undefined) return readOr(call, stored[index])
            if (mongodbCodeOf(error) !== MONGODB_CODE.duplicateKey) return asEngineError(call, error)
            // Another process has made the line at the same moment: this change was not, and is made now.
            const leftMs = Math.max(1, until - this.#clock.now())
            return await this.changeOne(call, change, leftMs).catch((again: EngineError) => again)
          }),
        )
      })
    } catch (error) {
      throw asEngineError(call, error)
    }
  }

  async #read(
    call: EngineCall,
    changes: readonly LineChange[],
    limitMs: number,
    session: Parameters<MongodbCollection['changeMany']>[2],
  ): Promise<readonly (LineDocument | undefined)[]> {
    const keys = changes.map(({ key }) => key)
    const pipeline = [{ $match: { _id: { $in: keys } } }, { $project: { ...ANSWERED_FIELDS, at: NOW } }]
    try {
      const found = (await this.#collection.read(pipeline, Math.max(1, limitMs), session)) as readonly LineDocument[]
      const byKey = new Map(found.map((stored) => [stored._id, stored]))
      return keys.map((key) => byKey.get(key))
    } catch (error) {
      // Whatever became of the read, the write before it was done.
      throw asDoubtful(call, error)
    }
  }
}

function documentChange({ key, pipeline, upsert, filter }: LineChange): DocumentChange {
  return { filter: { _id: key, ...filter }, pipeline, upsert }
}

function readOr(call: EngineCall, stored: LineDocument | undefined): LineAnswer {
  try {
    return stored === undefined ? undefined : readable(stored)
  } catch (error) {
    return asEngineError(call, error)
  }
}

export function isFailed(answer: LineAnswer): answer is EngineError {
  return answer instanceof EngineError
}
