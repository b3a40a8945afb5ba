/** Commands that write: insert, update, delete, findAndModify. */
import { ObjectId } from 'bson'
import type { Call, Command } from './calls.ts'
import { stored } from './data.ts'
import { asCommandError, CommandError } from './errors.ts'
import { matching, projected } from './reads.ts'
import type { View } from './sessions.ts'
import { sorted } from './sorting.ts'
import { isReplacement, seedOf, type Update, updated } from './updates.ts'
import { type Document, isPlain, keyOf } from './values.ts'

const LARGEST_DOCUMENT_BYTES = 16 * 1024 * 1024

/** Where, and with which variables, a statement writes. */
interface Place {
  readonly db: string
  readonly collection: string
  readonly variables?: Document
}

interface Written {
  readonly before?: Document
  readonly after?: Document
}

function placeOf(call: Call): Place {
  const { let: variables } = call.command
  return { db: call.db, collection: call.collection, ...(isPlain(variables) ? { variables } : {}) }
}

function insertOne(view: View, { db, collection }: Place, document: Document): Document {
  const { _id: id = new ObjectId(), ...rest } = document
  view.claim(db, collection, id)
  const after = sized({ _id: id, ...rest })
  view.write({ kind: 'insert', db, collection, id, after })
  return after.document
}

function replaceOne(view: View, place: Place, document: Document, update: Update, options: Document): Written {
  const { db, collection } = place
  const id = document._id
  const before = view.records(db, collection).get(keyOf(id))
  const after = sized(updated(document, update, { ...place, ...options }))
  if (before === undefined || before.bytes.equals(after.bytes)) return { before: document, after: document }
  view.claim(db, collection, id)
  const kind = isReplacement(update) ? 'replace' : 'update'
  const paths = kind === 'update' && !Array.isArray(update) ? { paths: pathsOf(update as Document) } : {}
  view.write({ kind, db, collection, id, before, after, ...paths })
  return { before: document, after: after.document }
}

const pathsOf = (operators: Document): readonly string[] =>
  Object.values(operators).flatMap((fields) => Object.keys(fields as Document))

function upsertOne(view: View, place: Place, criteria: Document, update: Update, options: Document): Document {
  const seed = seedOf(criteria)
  const document = isReplacement(update)
    ? { ...('_id' in seed ? { _id: seed._id } : {}), ...(update as Document) }
    : updated(seed, update, { ...place, ...options, inserting: true })
  return insertOne(view, place, document)
}

function deleteOne(view: View, { db, collection }: Place, document: Document): void {
  const id = document._id
  const before = view.records(db, collection).get(keyOf(id))
  view.claim(db, collection, id)
  view.write({ kind: 'delete', db, collection, id, ...(before && { before }) })
}

/** A document of another transaction stops a statement before it has written anything. */
function claimAll(view: View, { db, collection }: Place, documents: readonly Document[]): void {
  for (const { _id } of documents) view.claim(db, collection, _id)
}

function sized(document: Document): ReturnType<typeof stored> {
  const made = stored(document)
  if (made.bytes.length > LARGEST_DOCUMENT_BYTES)
    throw new CommandError(
      10334,
      `BSONObj size: ${made.bytes.length} is invalid. Size must be between 0 and 16793600(16MB)`,
    )
  return made
}

/** Statement by statement. An ordered command ends with its first failure. */
async function eachStatement<Statement>(
  call: Call,
  statements: readonly Statement[],
  work: (view: View, statement: Statement, index: number) => Document,
  answer: (index: number, part: Document) => void,
): Promise<Document[]> {
  const writeErrors: Document[] = []
  for (const [index, statement] of statements.entries()) {
    try {
      answer(index, await call.statement(index, (view) => work(view, statement, index)))
    } catch (error) {
      const failure = asCommandError(error)
      // A conflict ends the transaction, and so the command.
      if (failure.labels.length > 0) throw failure
      const { code, message: errmsg, details } = failure
      writeErrors.push({ index, code, ...details, errmsg })
      call.transaction?.abort()
      if (call.command.ordered !== false) break
    }
  }
  return writeErrors
}

async function insert(call: Call): Promise<Document> {
  const place = placeOf(call)
  let n = 0
  const errors = await eachStatement(
    call,
    call.command.documents as Document[],
    (view, document) => {
      insertOne(view, place, document)
      return {}
    },
    () => {
      n += 1
    },
  )
  return { n, ...call.server.writeTime(), ...listed('writeErrors', errors) }
}

interface UpdateStatement {
  readonly q: Document
  readonly u: Update
  readonly multi?: boolean
  readonly upsert?: boolean
  readonly arrayFilters?: Document[]
  readonly c?: Document
}

async function update(call: Call): Promise<Document> {
  const place = placeOf(call)
  const upserted: Document[] = []
  let [n, nModified] = [0, 0]
  const errors = await eachStatement(
    call,
    call.command.updates as UpdateStatement[],
    (view, statement) => updateStatement(view, place, statement),
    (index, part) => {
      n += part.n as number
      nModified += part.nModified as number
      if ('upserted' in part) upserted.push({ index, _id: part.upserted })
    },
  )
  const { server } = call
  return { n, ...server.writeTime(), ...listed('upserted', upserted), nModified, ...listed('writeErrors', errors) }
}

function updateStatement(
  view: View,
  place: Place,
  { q, u, multi, upsert, arrayFilters, c }: UpdateStatement,
): Document {
  const at = { ...place, variables: { ...place.variables, ...c } }
  const found = matching(view, at.db, at.collection, q, at.variables)
  const chosen = multi === true ? found : found.slice(0, 1)
  if (chosen.length === 0 && upsert === true)
    return { n: 1, nModified: 0, upserted: upsertOne(view, at, q, u, { criteria: q })._id }
  claimAll(view, at, chosen)
  const options = { criteria: q, ...(arrayFilters && { arrayFilters }) }
  const written = chosen.map((document) => replaceOne(view, at, document, u, options))
  return { n: chosen.length, nModified: written.filter(({ before, after }) => before !== after).length }
}

async function remove(call: Call): Promise<Document> {
  const place = placeOf(call)
  let n = 0
  const errors = await eachStatement(
    call,
    call.command.deletes as { readonly q: Document; readonly limit: number }[],
    (view, { q, limit }) => {
      const found = matching(view, place.db, place.collection, q, place.variables)
      const chosen = Number(limit) === 0 ? found : found.slice(0, 1)
      claimAll(view, place, chosen)
      for (const document of chosen) deleteOne(view, place, document)
      return { n: chosen.length }
    },
    (_, part) => {
      n += part.n as number
    },
  )
  return { n, ...call.server.writeTime(), ...listed('writeErrors', errors) }
}

async function findAndModify(call: Call): Promise<Document> {
  const place = placeOf(call)
  try {
    return await call.statement(0, (view) => modifyOne(view, place, call.command))
  } catch (error) {
    const failure = asCommandError(error)
    throw failure.code === 50 ? failure : failure.within('Plan executor error during findAndModify')
  }
}

function modifyOne(view: View, place: Place, command: Document): Document {
  const { query = {}, sort, fields, remove: removes, upsert, new: wantsNew, update: change, arrayFilters } = command
  const [found] = sorted(matching(view, place.db, place.collection, query, place.variables), sort)
  const shown = (document: Document | undefined): Document | null =>
    document === undefined ? null : (projected([document], fields)[0] ?? null)
  if (removes === true) {
    if (found !== undefined) deleteOne(view, place, found)
    return { lastErrorObject: { n: found === undefined ? 0 : 1 }, value: shown(found) }
  }
  if (found === undefined) {
    if (upsert !== true) return { lastErrorObject: { n: 0, updatedExisting: false }, value: null }
    const made = upsertOne(view, place, query, change, { criteria: query })
    return {
      lastErrorObject: { n: 1, updatedExisting: false, upserted: made._id },
      value: wantsNew === true ? shown(made) : null,
    }
  }
  const { before, after } = replaceOne(view, place, found, change, {
    criteria: query,
    ...(arrayFilters && { arrayFilters }),
  })
  return { lastErrorObject: { n: 1, updatedExisting: true }, value: shown(wantsNew === true ? after : before) }
}

const listed = (name: string, items: readonly Document[]): Document => (items.length === 0 ? {} : { [name]: items })

export const WRITES: Readonly<Record<string, Command>> = {
  insert,
  update,
  delete: remove,
  findAndModify,
  findandmodify: findAndModify,
}
