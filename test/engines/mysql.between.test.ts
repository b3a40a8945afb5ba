/** What others do on a MariaDB server between two steps of ours: everybody is answered what is true of it. */
import { createPool, type Pool, type QueryOptions } from 'mysql2/promise'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { Claim } from '../../src/core/engine.ts'
import { type MysqlClient, mysql, openMysql } from '../../src/engines/mysql/index.ts'
import { findOwnMariadb, MariadbServer } from '../servers/mariadb.ts'
import { describeServer } from '../servers/suite.ts'

let made = 0

function claimOf(key: string, ttlMs = 60_000): Claim {
  made += 1
  return { key, id: made.toString(16).padStart(32, '0'), holder: 'test', weight: 1, limit: 1, ttlMs, wait: true }
}

/** A pool whose answers come late: `meanwhile` is what happens before, after each statement. */
function slowly(pool: Pool, meanwhile: (sql: string) => Promise<unknown>): MysqlClient {
  return {
    getConnection: async () => {
      const connection = await pool.getConnection()
      return {
        query: async (asked) => {
          const answer = await connection.query(asked as QueryOptions)
          await meanwhile(asked.sql)
          return answer
        },
        on: (event, listener) => connection.on(event, listener),
        release: () => connection.release(),
        destroy: () => connection.destroy(),
      }
    },
  }
}

await describeServer('between two steps on MariaDB', findOwnMariadb, (source) => {
  let server: MariadbServer

  beforeAll(async () => {
    server = await MariadbServer.start(source)
  })

  afterAll(() => server[Symbol.asyncDispose]())

  test.each(['a', 'b', 'c', 'd', 'ab', 'ac', 'bd', 'cd', 'abc', 'abcd', ''])(
    'of releases at once, those whose line was removed (%s) are told so, and the others have left, whoever comes to their lines before it is clear',
    async (removed) => {
      const name = `removed_${removed}`
      await using theirs = await openMysql(server.url, { name, listen: false })
      const claims = ['d', 'b', 'c', 'a'].map((key) => claimOf(key))
      const pool = createPool({ uri: server.url })
      let asked: string[] | undefined
      const client = slowly(pool, async (sql) => {
        if (asked?.push(sql) !== 1) return
        // One is taken by somebody else, and of another nothing is left.
        await theirs.enter(['b', 'removed', 'd'].map((key) => claimOf(key)))
        await server.asRoot(`delete from holdfast.${name}_line where k = 'c' and due_at = 0`)
      })
      const ours = mysql({ client, name, listen: false })
      await ours.enter(claims)
      await server.asRoot(`delete from holdfast.${name}_line where locate(k, '${removed}') > 0`)
      asked = []
      expect(await ours.leave(claims)).toEqual(claims.map(({ key }) => !removed.includes(key)))
      if (removed === '') expect(asked, 'one statement').toHaveLength(1)
      await ours[Symbol.asyncDispose]()
      await pool.end()
    },
  )
})
