/** Commands that read: find, aggregate, count, distinct, and their cursors. */
import { randomBytes } from 'node:crypto'
import { Query } from 'mingo/query'
import type { Call, Command } from './calls.ts'
import { ChangeStream } from './change-streams.ts'
import { CommandError } from './errors.ts'
import { atOneInstant, filter, optionsFor, runPipeline } from './evaluate.ts'
import { valuesAt } from './paths.ts'
import type { View } from './sessions.ts'
import { sorted } from './sorting.ts'
import { compare, type Document, isPlain, keyOf } from './values.ts'

const FIRST_BATCH = 101
const AWAIT_DATA_MS = 1_000

/** What is left of a result, or a change stream. */
export interface Cursor {
  readonly ns: string
  readonly stream?: ChangeStream
  rest: Document[]
  readonly session: string | undefined
}

/** The documents that match, in the order of `_id` where the filter asks for a range of it. */
export function matching(
  view: View,
  db: string,
  collection: string,
  criteria: Document,
  variables?: Document,
): Document[] {
  const records = view.records(db, collection)
  const wanted = criteria._id
  const isCondition = isPlain(wanted) && Object.keys(wanted).some((name) => name.startsWith('$'))
  const ids = !('_id' in criteria) || wanted instanceof RegExp ? undefined : isCondition ? wanted.$in : [wanted]
  if (Array.isArray(ids) && !ids.some((id) => id instanceof RegExp)) {
    const found = ids.flatMap((id) => records.get(keyOf(id)) ?? [])
    // Nothing else is asked of the one document of this key: nearly every command is like that.
    if (!isCondition && Object.keys(criteria).length === 1 && !isPlain(wanted) && !Array.isArray(wanted))
      return found.map(({ document }) => document)
    return [...new Set(found)].map(({ document }) => document).filter(filter(criteria, variables))
  }
  const found = [...records.values()].map(({ document }) => document).filter(filter(criteria, variables))
  return isCondition ? found.sort((a, b) => compare(a._id, b._id)) : found
}

export function projected(documents: readonly Document[], fields: Document | undefined): Document[] {
  if (fields === undefined || Object.keys(fields).length === 0) return [...documents]
  const wanted = wantedFields(fields)
  if (wanted !== undefined) return documents.map((document) => onlyWanted(document, wanted) as Document)
  const chosen = new Query({}, optionsFor()).find<Document>([...documents], fields as never).all()
  return chosen.map((document, index) => inOrderOf(documents[index] as Document, document))
}

/** Names of fields that are wanted: all of each, or what is wanted inside of it. */
interface Wanted {
  readonly [name: string]: true | Wanted
}

/** What a projection that only names fields wants: the usual one, for which mingo takes long. Undefined for others. */
function wantedFields(fields: Document): Wanted | undefined {
  const wanted: Record<string, true | Wanted> = { _id: true }
  for (const [path, value] of Object.entries(fields)) {
    if ((value !== 1 && value !== true) || path.includes('$')) return undefined
    let at = wanted
    const names = path.split('.')
    for (const name of names.slice(0, -1)) {
      const inside = at[name] ?? {}
      // The same field, and a part of it: that is not usual.
      if (inside === true) return undefined
      at[name] = inside
      at = inside as Record<string, true | Wanted>
    }
    const last = names.at(-1) as string
    if (typeof at[last] === 'object') return undefined
    at[last] = true
  }
  return wanted
}

/** The fields stay in their order. Of an array the elements are looked at, and what has no fields is left out. */
function onlyWanted(value: unknown, wanted: Wanted): unknown {
  if (Array.isArray(value))
    return value.filter((each) => isPlain(each) || Array.isArray(each)).map((each) => onlyWanted(each, wanted))
  const chosen: Document = {}
  for (const [name, inside] of Object.entries(value as Document)) {
    const inner = wanted[name]
    if (inner === true) chosen[name] = inside
    else if (inner !== undefined && (isPlain(inside) || Array.isArray(inside))) chosen[name] = onlyWanted(inside, inner)
  }
  return chosen
}

/** A projection leaves fields where they were; mingo puts `_id` last. */
function inOrderOf(original: Document, chosen: Document): Document {
  const names = [...new Set([...Object.keys(original), ...Object.keys(chosen)])]
  return Object.fromEntries(names.filter((name) => name in chosen).map((name) => [name, chosen[name]]))
}

function find(call: Call): Document {
  const { filter: criteria = {}, sort, projection, skip = 0, limit = 0, batchSize = FIRST_BATCH } = call.command
  const found = sorted(matching(call.view, call.db, call.collection, criteria, call.command.let), sort)
  const count = Math.abs(Number(limit))
  const part = found.slice(Number(skip), count === 0 ? undefined : Number(skip) + count)
  const single = call.command.singleBatch === true || Number(limit) < 0
  return firstBatch(call, projected(part, projection), single ? part.length : Number(batchSize), call.collection)
}

function aggregate(call: Call): Document {
  const { pipeline, cursor = {} } = call.command as { pipeline: Document[]; cursor?: Document }
  const batchSize = Number(cursor.batchSize ?? FIRST_BATCH)
  const [first, ...others] = pipeline
  if (first !== undefined && '$changeStream' in first) return watch(call, first.$changeStream as Document, others)
  const { view } = call
  const all = (name: string): Document[] => [...view.records(call.db, name).values()].map(({ document }) => document)
  // A match in front looks documents up by their id.
  const matchesFirst = first !== undefined && '$match' in first
  const name = typeof call.collection === 'string' ? call.collection : '$cmd.aggregate'
  const input = matchesFirst ? matching(view, call.db, name, first.$match as Document, call.command.let) : all(name)
  const result = runPipeline(input, matchesFirst ? others : pipeline, optionsFor(call.command.let, all))
  return firstBatch(call, result, batchSize, name)
}

function watch(call: Call, options: Document, pipeline: readonly Document[]): Document {
  const { server } = call
  if (!server.isReplicaSet) throw new CommandError(40573, 'The $changeStream stage is only supported on replica sets')
  const isOne = typeof call.collection === 'string'
  const scope = isOne
    ? { db: call.db, collection: call.collection }
    : options.allChangesForCluster === true
      ? {}
      : { db: call.db }
  const stream = new ChangeStream(server.data, scope, options, pipeline)
  const ns = `${call.db}.${isOne ? call.collection : '$cmd.aggregate'}`
  const id = keep(call, { ns, stream, rest: [], session: call.session?.key })
  const events = stream.take(Number((call.command.cursor as Document | undefined)?.batchSize ?? FIRST_BATCH))
  return { cursor: { firstBatch: events, postBatchResumeToken: stream.token, id, ns } }
}

function firstBatch(call: Call, documents: Document[], size: number, name: string): Document {
  const ns = `${call.db}.${name}`
  const rest = documents.slice(size)
  const id = rest.length === 0 ? 0n : keep(call, { ns, rest, session: call.session?.key })
  return { cursor: { firstBatch: documents.slice(0, size), id, ns } }
}

function keep(call: Call, cursor: Cursor): bigint {
  const id = randomBytes(8).readBigUInt64LE() >> 1n
  call.server.cursors.set(id, cursor)
  return id
}

async function getMore(call: Call): Promise<Document> {
  const { server } = call
  const id = BigInt(call.command.getMore as bigint)
  const cursor = server.cursors.get(id)
  if (cursor === undefined) throw new CommandError(43, `cursor id ${id} not found`)
  const { ns, stream } = cursor
  const size = Number(call.command.batchSize ?? Number.MAX_SAFE_INTEGER)
  if (stream === undefined) {
    const batch = cursor.rest.splice(0, size)
    if (cursor.rest.length === 0) server.cursors.delete(id)
    return { cursor: { nextBatch: batch, id: cursor.rest.length === 0 ? 0n : id, ns } }
  }
  const giveUpAt = performance.now() + Number(call.command.maxTimeMS ?? AWAIT_DATA_MS)
  let events = stream.take(size)
  while (events.length === 0 && !stream.closed && performance.now() < giveUpAt) {
    await server.data.nextWrite(giveUpAt - performance.now())
    if (!server.cursors.has(id)) throw new CommandError(43, `cursor id ${id} not found`)
    events = stream.take(size)
  }
  if (stream.closed) server.cursors.delete(id)
  return { cursor: { nextBatch: events, postBatchResumeToken: stream.token, id: stream.closed ? 0n : id, ns } }
}

function killCursors(call: Call): Document {
  const ids = (call.command.cursors as bigint[]).map(BigInt)
  const killed = ids.filter((id) => call.server.cursors.delete(id))
  // A getMore that waits for data notices that its cursor is gone.
  call.server.data.wake()
  const cursorsNotFound = ids.filter((id) => !killed.includes(id))
  return { cursorsKilled: killed, cursorsNotFound, cursorsAlive: [], cursorsUnknown: [] }
}

function count(call: Call): Document {
  return { n: matching(call.view, call.db, call.collection, call.command.query ?? {}).length }
}

function distinct(call: Call): Document {
  const documents = matching(call.view, call.db, call.collection, call.command.query ?? {})
  const path = (call.command.key as string).split('.')
  const values = documents.flatMap((document) => valuesAt(document, path)).filter((value) => !Array.isArray(value))
  return { values: [...new Map(values.map((value) => [keyOf(value), value])).values()] }
}

const atNow =
  (work: Command): Command =>
  (call) =>
    atOneInstant(() => work(call))

export const READS: Readonly<Record<string, Command>> = {
  find: atNow(find),
  aggregate: atNow(aggregate),
  count: atNow(count),
  distinct: atNow(distinct),
  getMore,
  killCursors,
}
