/**
 * Which client is it? Told by its methods, never by the name of its class: bundlers rename classes, and people wrap
 * clients.
 */
import { hasMethods } from '../shared/drivers.ts'
import { connectLike } from './connect.ts'
import { Mysql2ConnectionWire, Mysql2PoolWire } from './mysql2.ts'
import type { Mysql2Connection, Mysql2Pool } from './mysql2-client.ts'
import type { MysqlWire } from './wire.ts'

/** A client that you bring: a pool or a connection of mysql2; of `mysql2/promise`, or of `mysql2` with callbacks. */
export type MysqlClient = Mysql2Pool | Mysql2Connection | { promise(): Mysql2Pool | Mysql2Connection }

export function wireOf(client: MysqlClient): MysqlWire {
  const theirs = hasMethods(client, 'promise')
    ? (client as { promise(): Mysql2Pool | Mysql2Connection }).promise()
    : client
  const connect = connectLike(theirs)
  if (hasMethods(theirs, 'getConnection')) return new Mysql2PoolWire(theirs as Mysql2Pool, connect)
  if (hasMethods(theirs, 'query') && hasMethods(theirs, 'on'))
    return new Mysql2ConnectionWire(theirs as Mysql2Connection, connect)
  throw new TypeError('client must be a Pool or a Connection of mysql2')
}
