/**
 * MariaDB conforms: one server, with clients of ours, and with processes that are killed, stopped and cut off from it.
 */
import { afterAll, describe, it } from 'vitest'
import { conformance } from '../../conformance/index.ts'
import { findMariadb, MariadbServer } from '../servers/mariadb.ts'
import { describeServer } from '../servers/suite.ts'
import { mysqlWorld } from './mysql-world.ts'

await describeServer('MariaDB', findMariadb, (source) => {
  conformance({ describe, it, afterAll }, 'mysql', async () => await mysqlWorld(await MariadbServer.start(source)))
})
