/**
 * The user's client, by the few methods that are needed: a `MongoClient` of the package mongodb, 5, 6 or 7. Types only.
 */

/** A document, or a part of one. */
export type MongodbDocument = Readonly<Record<string, unknown>>

/** A `ClientSession`. */
export interface MongodbSession {
  endSession(): Promise<void>
}

/** A cursor of an aggregation. */
export interface MongodbCursor extends AsyncIterable<unknown> {
  toArray(): Promise<unknown[]>
}

/** A `Collection`. */
export interface MongodbCollectionHandle {
  findOneAndUpdate(filter: object, update: object[], options: object): Promise<unknown>
  bulkWrite(operations: never[], options: object): Promise<{ readonly matchedCount: number }>
  aggregate(pipeline: object[], options: object): MongodbCursor
  createIndex(fields: Record<string, 1>, options: object): Promise<string>
}

/** A `Db`. */
export interface MongodbDatabaseHandle {
  readonly databaseName: string
  collection(name: string, options?: object): MongodbCollectionHandle
  command(command: object, options?: object): Promise<MongodbDocument>
}

/** A `MongoClient` of the package mongodb. */
export interface MongodbClient {
  db(name?: string): MongodbDatabaseHandle
  startSession(options?: { causalConsistency?: boolean }): MongodbSession
  on(event: 'error', listener: () => void): unknown
  close(): Promise<void>
}

/** The events of a client that are listened to. Each driver types the names of its own events, and ours not at all. */
export interface MongodbEvents {
  on(event: string, listener: (event: MongodbDocument) => void): unknown
  off(event: string, listener: (event: MongodbDocument) => void): unknown
}
