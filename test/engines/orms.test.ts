/**
 * The page about ORMs: the code of each section, in a program of its own, on a real PostgreSQL. A stale token is
 * refused inside of the ORM's transaction, a row is locked in it, and a result is stored with it or not at all.
 */
import pg from 'pg'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { guard } from '../../src/guards/postgres.ts'
import { blockWith, runProgramText } from '../documented.ts'
import { findPostgres, PostgresServer } from '../servers/postgres.ts'
import { describeServer } from '../servers/suite.ts'

const PAGE = 'docs/orms.md'
const LIMIT_MS = 60_000

/** Each ORM, by a part of its block; and how it is closed. */
const ORMS: Readonly<Record<string, { readonly part: string; readonly close: string }>> = {
  knex: { part: "from 'knex'", close: 'await db.destroy()' },
  Drizzle: { part: "from 'drizzle-orm'", close: 'await pool.end()' },
  Kysely: { part: "from 'kysely'", close: 'await db.destroy()' },
  TypeORM: { part: "from 'typeorm'", close: 'await dataSource.destroy()' },
  MikroORM: { part: '@mikro-orm', close: 'await orm.close()' },
}

/** What the code of the page is asked to do. It says one line of JSON. */
const QUESTIONS = `
const told = {}
await sell(1)
told.stale = await inTransaction(async (tx, client) => {
  await update(tx, 2)
  await guarded.write(client, { key: 'ticket:1', token: 0n, shared: false })
}).catch((error) => error.name)
told.locked = typeof (await sellLocked(3))
told.missing = await sellLocked(99)
told.paid = [await pay('key', 4), await pay('key', 4)]
told.thrown = await payments.run('other', (attempt) => inTransaction(async (tx, client) => {
  await update(tx, 5)
  await attempt.commit(client, 'stored')
  throw new Error('rolled back')
})).catch((error) => error.message)
told.again = (await payments.run('other', async () => 'run again')).value
console.log(JSON.stringify(told))
`

await describeServer('the page about ORMs', findPostgres, (source) => {
  let server: PostgresServer
  let url: string
  let pool: pg.Pool
  beforeAll(async () => {
    server = await PostgresServer.start(source)
  })
  afterAll(() => server[Symbol.asyncDispose]())
  beforeEach(async () => {
    url = await server.database()
    pool = new pg.Pool({ connectionString: url })
    await pool.query('CREATE TABLE tickets (id int PRIMARY KEY, "left" int NOT NULL)')
    await pool.query('INSERT INTO tickets SELECT id, 1 FROM generate_series(1, 5) AS id')
    await guard().setup(pool)
    return () => pool.end()
  })

  describe.each(Object.entries(ORMS))('%s', (name, { part, close }) => {
    test('guards, locks rows and stores results in its transactions', { timeout: LIMIT_MS }, async () => {
      const program = [
        `const url = ${JSON.stringify(url)}`,
        blockWith(PAGE, part).code,
        blockWith(PAGE, 'async function sell(id)').code,
        QUESTIONS,
        'await locks.close()',
        close,
      ].join('\n')
      const { exit, said } = await runProgramText(`orm-${name}`, program)
      expect(said).toMatch(/^\{/)
      expect(JSON.parse(said)).toEqual({
        stale: 'StaleTokenError',
        locked: expect.stringMatching(/object|number/),
        missing: 'missing',
        paid: [{ sold: 4 }, { sold: 4 }],
        thrown: 'rolled back',
        again: 'run again',
      })
      expect(exit).toBe(0)
      const { rows } = await pool.query<{ left: number }>('SELECT "left" FROM tickets ORDER BY id')
      expect(
        rows.map(({ left }) => left),
        'one of each but for what was refused',
      ).toEqual([0, 1, 0, 0, 1])
    })
  })
})
