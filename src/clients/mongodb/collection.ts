/**
 * One collection of the user's deployment, as locks need it: writes that a majority has confirmed, reads of what a
 * majority has, from the primary, and an end to every call. What the user's client is set to does not weaken that: it
 * is said with each call. Each call has the implicit session of the driver, or one of our own: a transaction of the
 * user's is another session.
 */
import type { Clock } from '../../core/clock.ts'
import { CallLimits } from '../shared/call-limits.ts'
import { NoAnswer, NotSent } from '../shared/driver-errors.ts'
import { neverCrash } from '../shared/drivers.ts'
import { BY_MAJORITY, PLAIN_VALUES } from './call-settings.ts'
import { isLasting, isUnconfirmed, MONGODB_CODE, mongodbCodeOf, PerhapsRepeated } from './errors.ts'
import type {
  MongodbClient,
  MongodbCollectionHandle,
  MongodbDatabaseHandle,
  MongodbDocument,
  MongodbEvents,
  MongodbSession,
} from './wire.ts'

export interface CollectionName {
  /** That of the client's URL unless given. */
  readonly database: string | undefined
  readonly collection: string
}

/** A change of one document, by an update pipeline. */
export interface DocumentChange {
  readonly filter: MongodbDocument
  readonly pipeline: readonly object[]
  readonly upsert: boolean
}

/** What became of several changes. */
export interface BulkAnswer {
  /** How many documents were found, those of changes that failed left out. */
  readonly matched: number
  /** By place: what the server said to the changes that failed. */
  readonly failed: ReadonlyMap<number, Error>
}

const CHECKED_OUT = 'connectionCheckedOut'
/** How often to try to change a document that another call makes at the same moment. */
const MOST_TRIES = 4

export class MongodbCollection {
  readonly client: MongodbClient
  readonly database: MongodbDatabaseHandle
  readonly name: string
  readonly limits: CallLimits
  readonly #collection: MongodbCollectionHandle
  readonly #closesClient: boolean
  /** How often a connection was used, for whatever call of this client. */
  #uses = 0
  readonly #count = (): void => {
    this.#uses += 1
  }

  constructor(client: MongodbClient, { database, collection }: CollectionName, clock: Clock, closesClient: boolean) {
    this.client = client
    this.database = client.db(database)
    this.name = collection
    this.limits = new CallLimits(clock)
    this.#collection = this.database.collection(collection, BY_MAJORITY)
    this.#closesClient = closesClient
    neverCrash(client)
    this.events.on(CHECKED_OUT, this.#count)
  }

  get events(): MongodbEvents {
    return this.client as unknown as MongodbEvents
  }

  /** The document as it is after the change; undefined if none was there to change. */
  change(
    { filter, pipeline, upsert }: DocumentChange,
    projection: MongodbDocument,
    limitMs: number,
  ): Promise<MongodbDocument | undefined> {
    // With metadata, all drivers answer alike: 5 does unless told, 6 and 7 only if told.
    const options = { upsert, returnDocument: 'after', projection, includeResultMetadata: true }
    return this.#within(limitMs, async (maxTimeMS) => {
      const update = pipeline as object[]
      const settings = { ...options, ...BY_MAJORITY, ...PLAIN_VALUES, maxTimeMS }
      const attempt = (): Promise<unknown> => this.#collection.findOneAndUpdate(filter, update, settings)
      const answer = upsert ? await withoutRival(attempt) : await attempt()
      return ((answer as { readonly value?: MongodbDocument | null } | null)?.value ?? undefined) as
        | MongodbDocument
        | undefined
    })
  }

  /** Several changes, in no order, as one write. Rejects if it is not certain that a majority has all of them. */
  changeMany(changes: readonly DocumentChange[], limitMs: number, session: MongodbSession): Promise<BulkAnswer> {
    const operations = changes.map(({ filter, pipeline, upsert }) => ({
      updateOne: { filter, update: pipeline, upsert },
    }))
    return this.#within(limitMs, async (maxTimeMS) => {
      try {
        const options = { ordered: false, session, ...BY_MAJORITY, ...PLAIN_VALUES, maxTimeMS }
        const { matchedCount } = await this.#collection.bulkWrite(operations as never[], options)
        return { matched: matchedCount, failed: new Map() }
      } catch (error) {
        const failed = writeErrorsOf(error)
        if (failed.size === 0 || isUnconfirmed(error)) throw error
        const { result } = error as { result?: { readonly matchedCount?: number } }
        return { matched: result?.matchedCount ?? 0, failed }
      }
    })
  }

  /** What an aggregation answers, all of it at once. */
  read(pipeline: readonly object[], limitMs: number, session?: MongodbSession): Promise<unknown[]> {
    return this.#within(limitMs, (maxTimeMS) => {
      const options = { ...BY_MAJORITY, ...PLAIN_VALUES, maxTimeMS, ...(session === undefined ? {} : { session }) }
      return this.#collection.aggregate(pipeline as object[], options).toArray()
    })
  }

  /** One command, to the primary. */
  command(command: MongodbDocument, limitMs: number, session?: MongodbSession): Promise<MongodbDocument> {
    // The number of a cursor has to be sent back as it came.
    const values = { ...PLAIN_VALUES, promoteLongs: false }
    const options = { readPreference: 'primary', ...values, ...(session === undefined ? {} : { session }) }
    return this.#within(limitMs, () => this.database.command(command, options))
  }

  createIndex(fields: Record<string, 1>, options: object, limitMs: number): Promise<unknown> {
    return this.#within(limitMs, () => this.#collection.createIndex(fields, options))
  }

  /** Call `work` with a session in which a read sees the writes before it. */
  async inSession<Answer>(work: (session: MongodbSession) => Promise<Answer>): Promise<Answer> {
    const session = this.client.startSession({ causalConsistency: true })
    try {
      return await work(session)
    } finally {
      void session.endSession().catch(() => undefined)
    }
  }

  async close(): Promise<void> {
    this.events.off(CHECKED_OUT, this.#count)
    if (this.#closesClient) await this.client.close()
  }

  /**
   * An end to every call: without one, the driver waits for a server that stands still for as long as that stands, also
   * if it is told not to. The server is told, too, so that it does not work on for a caller that has gone.
   */
  async #within<Answer>(limitMs: number, call: (maxTimeMS: number) => Promise<Answer>): Promise<Answer> {
    const uses = this.#uses
    try {
      return await this.limits.within(call(Math.max(1, Math.ceil(limitMs))), limitMs)
    } catch (error) {
      // What the driver still has may be sent later: only if it has given up is it certain that it was not.
      if (this.#uses === uses && !(error instanceof NoAnswer)) throw new NotSent(error)
      // More than one use since: by another call, or by the driver's own second attempt at this one.
      const isAnswer = mongodbCodeOf(error) !== undefined
      throw this.#uses > uses + 1 && isAnswer && isLasting(error) ? new PerhapsRepeated(error) : error
    }
  }
}

/**
 * Of two calls that make one document at the same moment, one is refused, and finds the document when it tries again.
 * Servers try again by themselves, under conditions that are theirs.
 */
async function withoutRival<Answer>(attempt: () => Promise<Answer>): Promise<Answer> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await attempt()
    } catch (error) {
      const isRefused = mongodbCodeOf(error) === MONGODB_CODE.duplicateKey && !isUnconfirmed(error)
      if (!isRefused || tries === MOST_TRIES) throw error
    }
  }
}

/** By place: the changes of a bulk write that failed. */
function writeErrorsOf(error: unknown): Map<number, Error> {
  const { writeErrors = [] } = (error ?? {}) as { writeErrors?: unknown }
  const list = (Array.isArray(writeErrors) ? writeErrors : [writeErrors]) as readonly WriteErrorLike[]
  const failed = new Map<number, Error>()
  for (const { index, code, errmsg } of list) failed.set(index, Object.assign(new Error(errmsg), { code }))
  return failed
}

interface WriteErrorLike {
  readonly index: number
  readonly code: number
  readonly errmsg: string
}
