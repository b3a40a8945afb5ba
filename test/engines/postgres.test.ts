/**
 * PostgreSQL conforms: one server, with clients of ours, and with processes that are killed, stopped and cut off from
 * it.
 */
import { afterAll, describe, it } from 'vitest'
import { conformance } from '../../conformance/index.ts'
import { findPostgres, PostgresServer } from '../servers/postgres.ts'
import { describeServer } from '../servers/suite.ts'
import { postgresWorld } from './postgres-world.ts'

await describeServer('PostgreSQL', findPostgres, (source) => {
  conformance(
    { describe, it, afterAll },
    'postgres',
    async () => await postgresWorld(await PostgresServer.start(source)),
  )
})
