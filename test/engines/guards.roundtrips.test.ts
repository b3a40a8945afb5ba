/**
 * What a guard costs in round trips: none where the server can do both at once, and one where it cannot. Counted on the
 * wire.
 */
import { Redis } from 'ioredis'
import { MongoClient } from 'mongodb'
import { createConnection } from 'mysql2/promise'
import { Client } from 'pg'
import postgres from 'postgres'
import { describe, expect, test } from 'vitest'
import { openMongodb } from '../../src/engines/mongodb/index.ts'
import { guard as mongodbGuard } from '../../src/guards/mongodb.ts'
import { guard as mysqlGuard } from '../../src/guards/mysql.ts'
import { guard as postgresGuard } from '../../src/guards/postgres.ts'
import { guard as redisGuard } from '../../src/guards/redis.ts'
import { newClaim } from '../claims.ts'
import { CountedWire } from '../servers/counted-wire.ts'
import { findMariadb, MariadbServer } from '../servers/mariadb.ts'
import { StandIn } from '../servers/mongodb-stand-in/stand-in.ts'
import { findPostgres, PostgresServer } from '../servers/postgres.ts'
import { findRedis, RedisServer } from '../servers/redis.ts'
import { describeServer } from '../servers/suite.ts'
import { leaseLike } from './guards.rule.ts'

const lease = leaseLike(17n, 'account')

await describeServer('a guard of PostgreSQL', findPostgres, (source) => {
  test('costs no round trip with writeStatement(), none when sent together by postgres.js, and one by itself', async () => {
    await using server = await PostgresServer.start(source)
    await using wire = await CountedWire.to(await server.database())
    const client = new Client({ connectionString: wire.url })
    await client.connect()
    const guarded = postgresGuard()
    await guarded.setup(client)
    await client.query('CREATE TABLE account (balance int NOT NULL)')
    await client.query('INSERT INTO account VALUES (0)')
    const statement = { text: 'UPDATE account SET balance = $1', values: [1] }
    expect(await wire.roundTrips(() => client.query(statement))).toBe(1)
    expect(await wire.roundTrips(() => guarded.writeStatement(client, lease, statement))).toBe(1)
    const inside = async (checked: boolean): Promise<void> => {
      await client.query('BEGIN')
      if (checked) await guarded.write(client, lease)
      await client.query(statement)
      await client.query('COMMIT')
    }
    expect(await wire.roundTrips(() => inside(false))).toBe(3)
    expect(await wire.roundTrips(() => inside(true))).toBe(4)
    await client.end()

    const sql = postgres(wire.url, { max: 1 })
    const bare = await wire.roundTrips(() => sql.begin((tx) => tx`UPDATE account SET balance = ${1}`))
    const together = (): Promise<unknown> =>
      sql.begin(async (tx) => {
        const checked = guarded.write(tx, lease)
        const written = tx`UPDATE account SET balance = ${1}`.execute()
        await checked
        await written
      })
    expect(await wire.roundTrips(together)).toBe(bare)
    await sql.end()
  })
})

await describeServer('a guard of MariaDB', findMariadb, (source) => {
  test('costs one round trip', async () => {
    await using server = await MariadbServer.start(source)
    await using wire = await CountedWire.to(server.url)
    const client = await createConnection(wire.url)
    const guarded = mysqlGuard({ table: [server.database, 'holdfast_marks'] })
    await guarded.setup(client)
    await client.beginTransaction()
    expect(await wire.roundTrips(() => guarded.read(client, lease))).toBe(1)
    expect(await wire.roundTrips(() => guarded.write(client, lease))).toBe(1)
    await client.rollback()
    await client.end()
  })
})

await describeServer('a guard of Redis', findRedis, (source) => {
  test('costs none', async () => {
    await using server = await RedisServer.start(source)
    await using wire = await CountedWire.to(server.url)
    const client = new Redis(wire.url)
    const guarded = redisGuard({ client })
    expect(await wire.roundTrips(() => client.set('account', 1))).toBe(1)
    expect(await wire.roundTrips(() => guarded.write(lease, [['SET', 'account', 1]]))).toBe(1)
    expect(await wire.roundTrips(() => guarded.read(lease, [['GET', 'account']]))).toBe(1)
    client.disconnect()
  })
})

describe('on a stand-in for MongoDB', () => {
  // The driver asks how its server is on connections of its own: here only once.
  const QUIET = 'serverMonitoringMode=poll&heartbeatFrequencyMS=600000'

  test('a guard costs none in a document, and one in a transaction', async () => {
    await using server = await StandIn.start({ replicaSet: true })
    await using wire = await CountedWire.to(server.urlThrough(server.port))
    const client = new MongoClient(`${wire.url}&${QUIET}`)
    try {
      const accounts = client.db().collection<{ _id: number; balance: number }>('account')
      const guarded = mongodbGuard({ client })
      await guarded.setup()
      await accounts.insertOne({ _id: 1, balance: 0 })
      const set = { $set: { balance: 1 } }
      expect(await wire.roundTrips(() => accounts.updateOne({ _id: 1 }, set))).toBe(1)
      expect(await wire.roundTrips(() => guarded.updateOne(accounts, lease, { _id: 1 }, set))).toBe(1)
      expect(await wire.roundTrips(() => guarded.findOne(accounts, lease, { _id: 1 }))).toBe(1)
      const inside = (checked: boolean): Promise<unknown> =>
        client.withSession((session) =>
          session.withTransaction(async () => {
            if (checked) await guarded.write(session, lease)
            await accounts.updateOne({ _id: 1 }, set, { session })
          }),
        )
      const bare = await wire.roundTrips(() => inside(false))
      expect(await wire.roundTrips(() => inside(true))).toBe(bare + 1)
    } finally {
      await client.close()
    }
  })

  test('a lock is had and given back with one round trip each, and so is a record', async () => {
    await using server = await StandIn.start({ replicaSet: false })
    await using wire = await CountedWire.to(server.urlThrough(server.port))
    await using engine = await openMongodb(`${wire.url}&${QUIET}`)
    const claim = newClaim('account')
    expect(await wire.roundTrips(() => engine.enter([claim]))).toBe(1)
    const change = { key: 'account', value: Buffer.from('a'), ttlMs: null, when: { holding: claim.id } }
    expect(await wire.roundTrips(() => engine.store.put([change]))).toBe(1)
    expect(await wire.roundTrips(() => engine.store.get(['account']))).toBe(1)
    expect(await wire.roundTrips(() => engine.renew([claim]))).toBe(1)
    expect(await wire.roundTrips(() => engine.leave([claim]))).toBe(1)
  })
})
