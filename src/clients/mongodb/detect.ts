/** Is it a client of MongoDB? Told by its methods: names of classes do not survive bundlers and second copies. */
import { hasMethods } from '../shared/drivers.ts'
import type { MongodbClient } from './wire.ts'

/** Throws a `TypeError` for anything that is no `MongoClient`. */
export function checkMongodbClient(client: unknown): MongodbClient {
  if (hasMethods(client, 'db', 'startSession', 'on', 'close')) return client as MongodbClient
  const isDatabase = hasMethods(client, 'collection', 'command')
  const hint = isDatabase ? '; this is a Db: give its client, and its name as `database`' : ''
  throw new TypeError(`client must be a MongoClient of the package mongodb${hint}`)
}
