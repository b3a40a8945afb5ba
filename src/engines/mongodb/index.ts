/**
 * `holdfast/mongodb`: locks on the MongoDB you already run, as documents that you can read.
 *
 * Read in this order:
 *
 *     pipelines.ts, settling.ts                      what is stored and decided: one update pipeline for each verb
 *     expressions.ts                                 the words that pipelines are written in
 *     engine.ts, line-calls.ts                       the verbs, and which calls they are made of
 *     codec.ts, errors.ts                            how answers are read
 *     listen.ts, ../shared/recheck-timer.ts          how a waiter hears that it holds
 *     change-stream.ts, observers.ts                 how word of a change arrives, and how observers of a line are told
 *     store.ts, record-pipeline.ts, record-codec.ts  records beside the lines
 *     ../../clients/mongodb/                         your client
 *     names.ts, diagnose.ts                          names of the collection, and `holdfast doctor`
 */
import { MongodbCollection } from '../../clients/mongodb/collection.ts'
import { mongodbClientAt, splitMongodbUrl } from '../../clients/mongodb/connect.ts'
import { checkMongodbClient } from '../../clients/mongodb/detect.ts'
import type { MongodbClient } from '../../clients/mongodb/wire.ts'
import { type Clock, systemChance, systemClock } from '../../core/clock.ts'
import { checkOptions, type OptionNames, withoutUndefined } from '../../core/options.ts'
import { showEngine } from '../../core/show.ts'
import { MongodbEngine } from './engine.ts'
import { checkCollectionName, DEFAULT_COLLECTION } from './names.ts'

export type {
  MongodbClient,
  MongodbCollectionHandle,
  MongodbCursor,
  MongodbDatabaseHandle,
  MongodbDocument,
  MongodbSession,
} from '../../clients/mongodb/wire.ts'
export type { MongodbEngine } from './engine.ts'

/** What does not depend on how the client was had. */
export interface MongodbEngineOptions {
  /** The database of the collection; that of the client's URL unless given. */
  readonly database?: string
  /**
   * The collection of the locks, for nothing else; `holdfast` unless given. Made on first use. Processes that shall
   * exclude each other use the same.
   */
  readonly collection?: string
  /** `false`: have no change stream. Waiters poll, as on a stand-alone server. */
  readonly listen?: boolean
  /** For tests: where time comes from. */
  readonly clock?: Clock
}

/** Options of `mongodb()`. */
export interface MongodbOptions extends MongodbEngineOptions {
  /** Your client: a `MongoClient` of the package mongodb, 5, 6 or 7. You close it. */
  readonly client: MongodbClient
}

const ENGINE_OPTIONS: OptionNames<MongodbEngineOptions> = {
  database: true,
  collection: true,
  listen: true,
  clock: true,
}
const OPTIONS: OptionNames<MongodbOptions> = { client: true, ...ENGINE_OPTIONS }

/** An engine on a client of yours. For one by URL: `openMongodb(url)`, or `connect(url)`. */
export function mongodb(options: MongodbOptions): MongodbEngine {
  checkOptions('mongodb()', options, OPTIONS)
  return showEngine(engineOn(checkMongodbClient(options.client), options, false))
}

/**
 * The engine behind a URL:
 *
 *     mongodb://user:password@host1:27017,host2,host3/database?replicaSet=rs
 *
 * or `mongodb+srv://`, with what the driver takes as a query, and of our own `collection`. It connects by itself, and
 * closes its connections when it is closed.
 */
export async function openMongodb(url: string, options: MongodbEngineOptions = {}): Promise<MongodbEngine> {
  checkOptions('openMongodb()', options, ENGINE_OPTIONS)
  const { url: driverUrl, options: urlOptions } = splitMongodbUrl(url)
  const client = await mongodbClientAt(driverUrl)
  return showEngine(engineOn(client, { ...urlOptions, ...withoutUndefined(options) }, true), { url })
}

function engineOn(client: MongodbClient, options: MongodbEngineOptions, closesClient: boolean): MongodbEngine {
  const { database, collection: name = DEFAULT_COLLECTION, listen = true, clock = systemClock } = options
  const names = { database, collection: checkCollectionName(name) }
  const collection = new MongodbCollection(client, names, clock, closesClient)
  return new MongodbEngine({ collection, listens: listen, clock, engineId: systemChance.id() })
}
