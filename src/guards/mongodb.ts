/**
 * `holdfast/guards/mongodb`: marks beside what is protected, in two ways.
 *
 * In the document itself, raised and compared by the very write that it guards. One round trip, no transaction, also on
 * a stand-alone server:
 *
 *     const guarded = guard({ client })
 *     const order = await guarded.findOne(orders, lease, { _id: 7 })              reads, and is seen to have read
 *     await guarded.updateOne(orders, lease, { _id: 7 }, { $set: { state: 'paid' } })
 *
 * Or in a collection of marks, inside of the caller's own transaction, for whatever is written in it:
 *
 *     await session.withTransaction(async () => {
 *       await guarded.read(session, lease)          before reading what will be written back
 *       await guarded.write(session, lease)         before writing
 *       ...
 *     })
 */

import { BY_MAJORITY, PLAIN_VALUES } from '../clients/mongodb/call-settings.ts'
import { checkMongodbClient } from '../clients/mongodb/detect.ts'
import { asEngineError, ENGINE, MONGODB_CODE, mongodbCodeOf } from '../clients/mongodb/errors.ts'
import type { MongodbClient } from '../clients/mongodb/wire.ts'
import { ConflictError } from '../core/errors.ts'
import type { CallFacts, EngineCall } from '../core/failed-call.ts'
import { checkOptions, type OptionNames } from '../core/options.ts'
import { type LeaseLike, newerFormat, resourceToken } from './lease-like.ts'
import {
  type Access,
  checkToken,
  FORMAT,
  type ForgetAfter,
  MARKS_TABLE,
  type Mark,
  type Marks,
  NO_MARKS,
  parseForget,
} from './marks.ts'

export type { MongodbClient } from '../clients/mongodb/wire.ts'
export type { LeaseLike } from './lease-like.ts'
export type { ForgetAfter, Mark, Marks } from './marks.ts'

/** Options of a guard on MongoDB. */
export interface MongodbGuardOptions {
  /** Your client: a `MongoClient` of the package mongodb, 5, 6 or 7. */
  readonly client: MongodbClient
  /** The database of the collection of marks; that of the client's URL unless given. */
  readonly database?: string
  /** The collection of marks, for `read` and `write`; `holdfast_marks` unless given. */
  readonly collection?: string
  /** The field of a document that has its mark, for `findOne` and `updateOne`; `holdfast` unless given. No path. */
  readonly field?: string
  /**
   * How long to keep the mark of a resource that no token uses, by the clock of the server: for ever unless given. An
   * older holder is let in again after that. `forget()` removes the marks whose time is over. A mark in a document
   * stays as long as the document.
   */
  readonly forget?: ForgetAfter
}

const OPTIONS: OptionNames<MongodbGuardOptions> = {
  client: true,
  database: true,
  collection: true,
  field: true,
  forget: true,
}

/** A `ClientSession` with an open transaction. */
export interface MongodbTransaction {
  inTransaction(): boolean
}

/** What an update has done, as far as the guard needs it. */
export interface MongodbUpdateResult {
  readonly matchedCount: number
  readonly upsertedCount: number
}

/** A `Collection` of yours. */
export interface MongodbGuardedCollection<Result extends MongodbUpdateResult = MongodbUpdateResult> {
  updateOne(filter: never, update: never, options?: never): Promise<Result>
  findOne(filter: never, options?: never): Promise<unknown>
  findOneAndUpdate(filter: never, update: never, options: never): Promise<unknown>
}

/** `resource` is the key of the lease unless given. */
export interface MongodbGuard {
  /** Make the collection of marks, if it is not there. `findOne` and `updateOne` do not need it. */
  setup(): Promise<void>
  /**
   * Before reading, inside of your transaction. Rejects with `StaleTokenError` if a higher token has written; let the
   * transaction end with it.
   */
  read(session: MongodbTransaction, lease: LeaseLike, resource?: string): Promise<void>
  /**
   * Before writing, inside of your transaction. Rejects with `StaleTokenError` if a higher token has read or written;
   * let the transaction end with it.
   */
  write(session: MongodbTransaction, lease: LeaseLike, resource?: string): Promise<void>
  /**
   * Read a document, and mark it as read, in one round trip. Rejects with `StaleTokenError` if a higher token has
   * written it. `options` are those of `findOneAndUpdate`: a projection, a session. The mark is confirmed by a majority
   * unless they have a write concern.
   */
  findOne<Document = Record<string, unknown>>(
    collection: MongodbGuardedCollection,
    lease: LeaseLike,
    filter: object,
    options?: object,
  ): Promise<Document | null>
  /**
   * Change a document, in one round trip, if no higher token has read or written it; else rejects with
   * `StaleTokenError`. `update` has operators (`$set`) or is a pipeline; `options` are those of `updateOne`. The change
   * is confirmed by a majority unless they have a write concern.
   */
  updateOne<Result extends MongodbUpdateResult>(
    collection: MongodbGuardedCollection<Result>,
    lease: LeaseLike,
    filter: object,
    update: object,
    options?: object,
  ): Promise<Result>
  /** The marks of all resources whose name begins so, by name. */
  list(prefix?: string): Promise<readonly Mark[]>
  /**
   * Forget a resource, if `seen` still is its mark. Only when no old holder can be left: all tokens are welcome then.
   */
  reset(resource: string, seen: bigint): Promise<boolean>
  /** Remove the marks whose time is over, now and then: see the option `forget`. Answers how many. */
  forget(): Promise<number>
}

/** Marks as they are stored: whole numbers come in several shapes, by what the client makes of them. */
interface StoredMarks {
  readonly format?: unknown
  readonly seen?: unknown
  readonly written?: unknown
}

interface MarksCollection {
  findOneAndUpdate(filter: object, update: object[], options: object): Promise<{ readonly value: unknown } | null>
  find(filter: object, options: object): { toArray(): Promise<({ _id: string } & StoredMarks)[]> }
  deleteOne(filter: object, options: object): Promise<{ readonly deletedCount: number }>
  deleteMany(filter: object, options: object): Promise<{ readonly deletedCount: number }>
}

/** What the primary has now. A mark that no majority has yet refuses as well: that is the cautious side. */
const ON_PRIMARY = { readConcern: { level: 'local' }, readPreference: 'primary' }
/**
 * A refusal says nothing of the first attempt where the driver made two (`retryWrites`), and nothing of the marks that
 * were removed before it.
 */
const IN_DOUBT: CallFacts = { outcome: 'unknown' }
/** How often to try again where a document has changed between a write that did not find it and the look at it. */
const MOST_TRIES = 5

/** A guard on a client of yours. */
export function guard(options: MongodbGuardOptions): MongodbGuard {
  checkOptions('guard()', options, OPTIONS)
  const { database, collection: name = MARKS_TABLE } = options
  const field = checkField(options.field)
  const client = checkMongodbClient(options.client)
  const forgetMs = parseForget(options.forget)
  const home = client.db(database)
  const marks = home.collection(name, BY_MAJORITY) as unknown as MarksCollection

  async function checkMarks(session: MongodbTransaction, access: Access, lease: LeaseLike, of?: string): Promise<void> {
    if (typeof session?.inTransaction !== 'function')
      throw new TypeError('a guard takes the ClientSession of your transaction first')
    const { resource, token } = resourceToken(lease, access, of)
    if (!session.inTransaction())
      throw new TypeError(
        'a guard needs an open transaction, and there is none: call it inside of session.withTransaction(), or use its findOne and updateOne',
      )
    const found = await marks.findOneAndUpdate({ _id: resource }, raising(token, access, forgetMs), {
      ...{ upsert: true, returnDocument: 'after', includeResultMetadata: true, session },
      ...PLAIN_VALUES,
    })
    checkToken(resource, token, access, marksIn(found?.value, resource))
  }

  /** The marks of the document that `filter` finds; undefined if there is none. */
  async function marksOf(
    collection: MongodbGuardedCollection,
    filter: object,
    given: object,
    resource: string,
  ): Promise<Marks | undefined> {
    const { session } = given as { session?: MongodbTransaction }
    const from = session === undefined ? {} : { session }
    // In a transaction the driver takes no concern with a call.
    const where = isInTransaction(session) ? from : { ...from, ...ON_PRIMARY }
    const look = { projection: { [field]: 1 }, ...PLAIN_VALUES, ...where }
    const found = await collection.findOne(filter as never, look as never)
    return found === null ? undefined : marksIn((found as Record<string, unknown>)[field], resource)
  }

  /**
   * Do it under a filter that lets no stale token in. Where it found nothing, there is no such document, or its mark is
   * higher; or it has changed since, and then it is done again.
   */
  async function guarded<Result>(
    { collection, lease, filter, given, access }: GuardedCall,
    attempt: (filter: object, token: bigint) => Promise<Result>,
    hasFound: (result: Result) => boolean,
  ): Promise<Result> {
    const { resource, token } = resourceToken(lease, access)
    const mark = access === 'write' ? 'seen' : 'written'
    const isFresh = { [`${field}.${mark}`]: { $not: { $gt: token } }, [`${field}.format`]: { $not: { $gt: FORMAT } } }
    for (let tries = 1; tries <= MOST_TRIES; tries += 1) {
      let failure: unknown
      let result: Result | undefined
      try {
        result = await attempt({ $and: [filter, isFresh] }, token)
        if (hasFound(result)) return result
      } catch (error) {
        // An upsert that did not find a document whose mark is higher makes another one under the same key.
        if (mongodbCodeOf(error) !== MONGODB_CODE.duplicateKey) throw error
        failure = error
      }
      // An error ends the transaction that it happens in: what is there now is seen only from outside of it.
      const hasEnded = failure !== undefined && isInTransaction((given as { session?: MongodbTransaction }).session)
      const found = await marksOf(collection, filter, hasEnded ? {} : given, resource)
      if (found !== undefined) checkToken(resource, token, access, found)
      if (failure !== undefined && (found === undefined || hasEnded)) throw failure
      if (found === undefined) return result as Result
    }
    throw new ConflictError(`the document of '${resource}'`, MOST_TRIES, 'it is being changed all the time')
  }

  return {
    setup: async () => {
      try {
        await home.command({ create: name, writeConcern: { w: 'majority' } })
      } catch (error) {
        if (mongodbCodeOf(error) !== MONGODB_CODE.namespaceExists) throw asEngineError('guard setup', error)
      }
    },
    read: (session, lease, resource) => checkMarks(session, 'read', lease, resource),
    write: (session, lease, resource) => checkMarks(session, 'write', lease, resource),
    findOne: async <Document>(
      collection: MongodbGuardedCollection,
      lease: LeaseLike,
      filter: object,
      given: object = {},
    ): Promise<Document | null> => {
      const call = { collection, lease, filter, given, access: 'read' } as const
      const settings = { ...confirmed(given), upsert: false, returnDocument: 'after', includeResultMetadata: true }
      const attempt = async (fresh: object, token: bigint): Promise<unknown> => {
        const seen = { $max: [{ $ifNull: [`$${field}.seen`, 0] }, token] }
        const written = { $ifNull: [`$${field}.written`, 0] }
        const update = [{ $set: { [field]: { format: FORMAT, seen, written } } }]
        const answer = await collection.findOneAndUpdate(fresh as never, update as never, settings as never)
        return (answer as { readonly value?: unknown } | null)?.value ?? null
      }
      return (await guarded(call, attempt, (document) => document !== null)) as Document | null
    },
    updateOne: async <Result extends MongodbUpdateResult>(
      collection: MongodbGuardedCollection<Result>,
      lease: LeaseLike,
      filter: object,
      update: object,
      given: object = {},
    ): Promise<Result> => {
      const settings = confirmed(given)
      return await guarded(
        { collection, lease, filter, given, access: 'write' },
        (fresh, token) =>
          collection.updateOne(fresh as never, withMark(update, field, token) as never, settings as never),
        ({ matchedCount, upsertedCount }) => matchedCount + upsertedCount > 0,
      )
    },
    list: async (prefix = '') => {
      const found = await asked('guard list', () =>
        marks.find({ _id: { $gte: prefix } }, { sort: { _id: 1 }, ...PLAIN_VALUES }).toArray(),
      )
      return found
        .filter(({ _id }) => _id.startsWith(prefix))
        .map(({ _id, seen, written }) => ({ resource: _id, seen: numberOf(seen), written: numberOf(written) }))
    },
    reset: async (resource, seen) => {
      const answer = await asked('guard reset', () => marks.deleteOne({ _id: resource, seen }, BY_MAJORITY), IN_DOUBT)
      return answer.deletedCount === 1
    },
    forget: async () => {
      const isOver = { $expr: { $lt: ['$kept_until', '$$NOW'] } }
      const over = { format: FORMAT, kept_until: { $type: 'date' }, ...isOver }
      return (await asked('guard forget', () => marks.deleteMany(over, BY_MAJORITY), IN_DOUBT)).deletedCount
    },
  }
}

/** A call that is no part of a transaction of the caller, and whose errors are ours to tell. */
async function asked<Answer>(call: EngineCall, ask: () => Promise<Answer>, facts?: CallFacts): Promise<Answer> {
  try {
    return await ask()
  } catch (error) {
    throw asEngineError(call, error, facts)
  }
}

interface GuardedCall {
  readonly collection: MongodbGuardedCollection
  readonly lease: LeaseLike
  readonly filter: object
  readonly given: object
  readonly access: Access
}

/** One that a filter, a projection and an update all call alike: so no path, and nothing that is an operator. */
function checkField(field: unknown = 'holdfast'): string {
  const isName = typeof field === 'string' && field !== '' && field !== '_id' && !/[.\0]|^\$/.test(field)
  if (isName) return field
  throw new TypeError(`field must be the name of a field of the document, such as 'mark'; got '${String(field)}'`)
}

function isInTransaction(session: MongodbTransaction | undefined): boolean {
  return session?.inTransaction() === true
}

/**
 * By a majority, whatever the client and the collection are set to: a mark that is rolled back lets an older token in
 * again. In a transaction, the transaction says how it is confirmed.
 */
function confirmed(given: object): object {
  const { session, writeConcern } = given as { session?: MongodbTransaction; writeConcern?: { readonly w?: unknown } }
  if (isInTransaction(session)) return given
  // Without an answer it would not be known whether the token was stale.
  if (writeConcern?.w === 0) throw new TypeError('a guard needs an answer to its write: writeConcern must not be w: 0')
  return writeConcern === undefined ? { ...given, writeConcern: BY_MAJORITY.writeConcern } : given
}

/** The caller's own change, and the mark with it. */
function withMark(update: object, field: string, token: bigint): object {
  if (Array.isArray(update)) return [...update, { $set: { [field]: { format: FORMAT, seen: token, written: token } } }]
  const names = Object.keys(update)
  if (names.length === 0 || names.some((name) => !name.startsWith('$')))
    throw new TypeError(
      'updateOne of a guard takes operators such as { $set }, or a pipeline: else the mark is replaced',
    )
  const { $set } = update as { $set?: object }
  const mark = { [`${field}.format`]: FORMAT, [`${field}.seen`]: token, [`${field}.written`]: token }
  return { ...update, $set: { ...$set, ...mark } }
}

/** The marks of a resource, raised if the token may: as `raiseMarks` does, in one update. */
function raising(token: bigint, access: Access, forgetMs: number | undefined): object[] {
  const [seen, written] = ['$seen', '$written'].map((mark) => ({ $ifNull: [mark, { $toLong: 0 }] }))
  const isFresh = { $gte: [token, access === 'write' ? seen : written] }
  const raised = (value: unknown, before: unknown): object => ({ $cond: [isFresh, value, before] })
  // Null is for ever. Where guards of one resource do not agree, the longest time counts.
  const until = forgetMs === undefined ? null : { $add: ['$$NOW', forgetMs] }
  const isEndless = { $and: [{ $gt: ['$format', null] }, { $eq: ['$kept_until', null] }] }
  const later = until === null ? null : { $cond: [isEndless, null, { $max: ['$kept_until', until] }] }
  const marks = {
    _id: '$_id',
    format: FORMAT,
    seen: raised({ $max: [seen, token] }, seen),
    written: access === 'write' ? raised(token, written) : written,
    kept_until: raised(later, '$kept_until'),
  }
  return [{ $replaceWith: { $cond: [{ $gt: ['$format', FORMAT] }, '$$ROOT', marks] } }]
}

function marksIn(value: unknown, resource: string): Marks {
  if (typeof value !== 'object' || value === null) return NO_MARKS
  const { format, seen, written } = value as StoredMarks
  if (Number(format ?? FORMAT) > FORMAT) throw newerFormat(ENGINE, resource)
  return { seen: numberOf(seen), written: numberOf(written) }
}

function numberOf(value: unknown): bigint {
  return BigInt((value ?? 0) as bigint | number | string)
}
