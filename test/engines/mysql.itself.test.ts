/**
 * MySQL itself conforms, where it differs from MariaDB: statements and procedures, how waiters are woken, what is left
 * after a crash of the server. The whole suite is for `npm run matrix server mysql`.
 */
import { afterAll, describe, expect, it, test } from 'vitest'
import { conformance } from '../../conformance/index.ts'
import { openMysql } from '../../src/engines/mysql/index.ts'
import { createLocks } from '../../src/locks.ts'
import { MariadbServer } from '../servers/mariadb.ts'
import { findOther } from '../servers/other-servers.ts'
import { describeServer } from '../servers/suite.ts'
import { mysqlWorld } from './mysql-world.ts'

const PROPERTIES = ['batches', 'waiting', 'sharing', 'eviction', 'the store and its lines']
/** One restart of MySQL takes seconds. */
const CRASH = 'a lease survives a restart of the server (killed) that is shorter than its ttl'

await describeServer(
  'MySQL itself',
  () => findOther('mysql@sid'),
  (program) => {
    const starting = MariadbServer.start({ program })

    test('is known to doctor, which has nothing against it', async () => {
      const server = await starting
      const engine = await openMysql(server.url)
      await using locks = createLocks(engine)
      const [version, ...others] = await engine.diagnose()
      expect(version).toMatchObject({ name: 'version', status: 'ok', finding: expect.stringMatching(/^MySQL \d+\./) })
      expect(others).toContainEqual(expect.objectContaining({ name: 'waking', finding: expect.stringMatching(/^no/) }))
      await locks.mutex('first').using(() => undefined)
      expect(await engine.diagnose()).toContainEqual({
        name: 'waking',
        status: 'ok',
        finding: 'a connection that sleeps can be woken',
      })
    })

    conformance({ describe, it, afterAll }, 'mysql', async () => await mysqlWorld(await starting), {
      only: (name, property) => PROPERTIES.includes(property) || name === CRASH,
    })
  },
)
