/** A change stream: a reader of the log, from a place on, through the client's pipeline. */
import { Timestamp } from 'bson'
import type { Data, Entry } from './data.ts'
import { describePaths, describeUpdate, type UpdateDescription } from './difference.ts'
import { CommandError } from './errors.ts'
import { atOneInstant, filter, optionsFor, runPipeline } from './evaluate.ts'
import { positionOf, type ResumeToken, tokenOfEvent, tokenOfTime } from './tokens.ts'
import { type Document, keyOf } from './values.ts'

/** What is watched: a collection, a database, or everything. */
export interface Scope {
  readonly db?: string
  readonly collection?: string
}

export class ChangeStream {
  /** Where a client goes on that loses this cursor. */
  token: ResumeToken
  closed = false
  readonly #data: Data
  readonly #scope: Scope
  readonly #options: Document
  /** The filter that the pipeline begins with: most events end there, and it is read once. */
  readonly #passes: (event: Document) => boolean
  /** The rest of the pipeline. */
  readonly #pipeline: readonly Document[]
  #at: Timestamp
  #index: number

  constructor(data: Data, scope: Scope, options: Document, pipeline: readonly Document[]) {
    this.#data = data
    this.#scope = scope
    this.#options = options
    const [first, ...rest] = pipeline
    const criteria = first?.$match as Document | undefined
    this.#passes = criteria === undefined ? () => true : filter(criteria)
    this.#pipeline = criteria === undefined ? pipeline : rest
    const begin = beginOf(data, options)
    this.#at = begin.at
    this.#index = begin.index
    this.token = options.resumeAfter ?? options.startAfter ?? tokenOfTime(following(data.last))
    if (data.forgotten.greaterThan(this.#at)) {
      const message = 'Resume of change stream was not possible, as the resume point may no longer be in the oplog.'
      throw new CommandError(286, message, {}, ['NonResumableChangeStreamError'])
    }
  }

  /** The events that there are, at most `limit`. */
  take(limit: number): Document[] {
    const events: Document[] = []
    for (const entry of this.#entries()) {
      if (events.length >= limit || this.closed) break
      this.#at = entry.at
      this.#index = entry.index
      const told = this.#told(entry)
      events.push(...told)
      this.token = (told.at(-1)?._id as ResumeToken | undefined) ?? tokenOfTime(entry.at)
    }
    return events
  }

  /** What comes after the place where this stream is. The newest are looked at first, since most streams are near. */
  #entries(): readonly Entry[] {
    const { log } = this.#data
    let from = log.length
    while (from > 0 && isAfter(log[from - 1] as Entry, this.#at, this.#index)) from -= 1
    return log.slice(from)
  }

  #told(entry: Entry): Document[] {
    const { db, collection } = this.#scope
    if ((db !== undefined && db !== entry.db) || (collection !== undefined && collection !== entry.collection))
      return []
    const events = [this.#event(entry)]
    if ((entry.kind === 'drop' || entry.kind === 'rename') && collection !== undefined) {
      this.closed = true
      const _id = tokenOfEvent(entry, true)
      events.push({ _id, operationType: 'invalidate', clusterTime: entry.at })
    }
    return atOneInstant(() => {
      const passed = events.filter((event) => this.#passes(event))
      return passed.length === 0 ? [] : runPipeline(passed, this.#pipeline, optionsFor())
    })
  }

  #event(entry: Entry): Document {
    const { kind, db, collection, id, after, at, to, transaction = {} } = entry
    const ns = { db, coll: collection }
    const begin = { _id: tokenOfEvent(entry), operationType: kind, clusterTime: at, ...transaction }
    const documentKey = { _id: id }
    if (kind === 'drop') return { ...begin, ns }
    // Not recorded: so the manual of change streams has it.
    if (kind === 'rename') return { ...begin, ns, to: { db, coll: to } }
    if (kind === 'delete') return { ...begin, ns, documentKey }
    const fullDocument = after?.document
    const description = kind === 'update' ? descriptionOf(entry) : undefined
    if (description === undefined)
      return { ...begin, operationType: kind === 'update' ? 'replace' : kind, fullDocument, ns, documentKey }
    if (this.#options.fullDocument === 'updateLookup') {
      const now = this.#data.find(db, collection)?.records.get(keyOf(id))?.document ?? null
      return { ...begin, fullDocument: now, ns, documentKey, updateDescription: description }
    }
    return { ...begin, ns, documentKey, updateDescription: description }
  }
}

/** By entry of the log: many streams tell the same difference. */
const descriptions = new WeakMap<Entry, { readonly description: UpdateDescription | undefined }>()

function descriptionOf(entry: Entry): UpdateDescription | undefined {
  const { before, after, paths } = entry
  if (before === undefined || after === undefined) return undefined
  const known = descriptions.get(entry)
  if (known !== undefined) return known.description
  const description =
    paths === undefined
      ? describeUpdate(before.document, after.document)
      : describePaths(before.document, after.document, paths)
  descriptions.set(entry, { description })
  return description
}

function isAfter(entry: Entry, at: Timestamp, index: number): boolean {
  return entry.at.greaterThan(at) || (entry.at.equals(at) && entry.index > index)
}

function beginOf(data: Data, options: Document): { readonly at: Timestamp; readonly index: number } {
  const { resumeAfter, startAfter, startAtOperationTime } = options
  if (startAtOperationTime !== undefined) return { at: startAtOperationTime, index: -1 }
  const token = resumeAfter ?? startAfter
  if (token === undefined) return { at: data.last, index: Number.MAX_SAFE_INTEGER }
  const { at, index, invalidated, seen } = positionOf(token)
  if (invalidated && resumeAfter !== undefined)
    throw new CommandError(
      260,
      'Attempting to resume a change stream using resumeAfter is not allowed from an invalidate notification.',
    )
  return { at, index: seen ? index : -1 }
}

function following({ t, i }: Timestamp): Timestamp {
  return new Timestamp({ t, i: i + 1 })
}
