/**
 * The tables: made on first use, by many at once, or by a user who may; under names of their own; refused where they
 * cannot be used.
 */
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { openMysql } from '../../src/engines/mysql/index.ts'
import { migration } from '../../src/engines/mysql/migration.ts'
import { PROCEDURES } from '../../src/engines/mysql/names.ts'
import { createLocks, type Locks } from '../../src/index.ts'
import { findOwnMariadb, MariadbServer } from '../servers/mariadb.ts'
import { describeServer } from '../servers/suite.ts'

const LIMIT = { timeout: 30_000, interval: 20 }

/** As the client of MySQL takes a text apart. */
function statements(text: string): string[] {
  let delimiter = ';'
  const found: string[] = []
  let part: string[] = []
  for (const line of text.split('\n')) {
    const [, changed] = /^DELIMITER (\S+)$/.exec(line) ?? []
    if (changed !== undefined) delimiter = changed
    else if (line.startsWith('--')) continue
    else if (line.endsWith(delimiter)) {
      found.push([...part, line.slice(0, -delimiter.length)].join('\n'))
      part = []
    } else part.push(line)
  }
  expect(part.join('').trim(), 'what is left at the end').toBe('')
  return found
}

await describeServer('the tables in MariaDB', findOwnMariadb, (source) => {
  let server: MariadbServer
  let databases = 0

  beforeAll(async () => {
    server = await MariadbServer.start(source, { args: ['--max-connections=300'] })
  })

  afterAll(() => server[Symbol.asyncDispose]())

  /** A new database, and its URL for a user with these rights on it. */
  async function database(rights: string): Promise<{ readonly name: string; readonly url: string }> {
    databases += 1
    const [name, user] = [`database_${databases}`, `user_${databases}`]
    await server.asRoot(`create database ${name}`)
    await server.asRoot(`create user ${user}@'%' identified by 'secret'`)
    await server.asRoot(`grant ${rights} on ${name}.* to ${user}@'%'`)
    return { name, url: `mysql://${user}:secret@${server.host}:${server.port}/${name}` }
  }

  async function tell(name: string, ...sql: readonly string[]): Promise<readonly unknown[]> {
    const connection = await server.connect((server.rootUrl as string).replace(/\/mysql$/, `/${name}`))
    try {
      let rows: unknown = []
      for (const statement of sql) [rows] = await connection.query(statement)
      return rows as readonly unknown[]
    } finally {
      connection.destroy()
    }
  }

  async function using<Value>(url: string, use: (locks: Locks) => Promise<Value>, options = {}): Promise<Value> {
    const locks = createLocks(await openMysql(url, options), { ttl: '60s' })
    try {
      return await use(locks)
    } finally {
      await locks.close()
    }
  }

  const take = async (locks: Locks): Promise<bigint | null> =>
    await locks.mutex('key').using({ wait: '20s' }, (lease) => lease.token)

  test('fifty who come to an empty database at once all get the lock, one after the other', async () => {
    const { name, url } = await database('all')
    const clients = await Promise.all(
      Array.from({ length: 50 }, async () => createLocks(await openMysql(url), { ttl: '60s' })),
    )
    const tokens = await Promise.all(clients.map(take))
    expect(new Set(tokens).size).toBe(50)
    await Promise.all(clients.map((locks) => locks.close()))
    expect(await tell(name, 'select count(*) as metas from holdfast_meta')).toEqual([{ metas: 1 }])
    expect(
      await tell(name, `select count(*) as n from information_schema.routines where routine_schema = '${name}'`),
    ).toEqual([{ n: PROCEDURES.length }])
  })

  test('a user who may not create them is told what to do; done that, all works', async () => {
    const { name, url } = await database('usage')
    await server.asRoot(`grant select on ${name}.* to ${new URL(url).username}@'%'`)
    await expect(using(url, take)).rejects.toMatchObject({
      outcome: 'not-applied',
      transient: false,
      message: expect.stringContaining('holdfast migrate --print'),
    })
    const text = migration({ database: undefined, name: 'holdfast' })
    await tell(name, ...statements(text))
    await expect(using(url, take)).rejects.toMatchObject({
      transient: false,
      message: expect.stringContaining('GRANT'),
    })
    const grants = text.split('\n').filter((line) => /^--\s+GRANT/.test(line))
    expect(grants).toHaveLength(8)
    await tell(
      name,
      ...grants.map((line) =>
        line
          .replace(/^--\s+/, '')
          .replace(';', '')
          .replace('your_database', name)
          .replace('your_user', `${new URL(url).username}@'%'`),
      ),
    )
    const token = await using(url, take)
    expect(await using(url, take)).toBeGreaterThan(token as bigint)
    await using(url, async (locks) => {
      const lease = await locks.mutex('key').acquire()
      const waiting = locks.mutex('key').acquire()
      await vi.waitFor(async () => expect((await locks.inspect('key')).entries).toHaveLength(2), LIMIT)
      await lease.release()
      await (await waiting).release()
    })
  })

  test('the printed text can be run again, also while locks are held, and changes nothing', async () => {
    const { name, url } = await database('all')
    const text = migration({ database: undefined, name: 'app' })
    await tell(name, ...statements(text))
    await using(
      url,
      async (locks) => {
        const lease = await locks.mutex('key').acquire()
        await tell(name, ...statements(text))
        expect((await locks.inspect('key')).entries).toHaveLength(1)
        expect(await lease.release()).toBe(true)
      },
      { name: 'app' },
    )
  })

  test('names of one’s own are lines of one’s own, also in another database', async () => {
    const { name, url } = await database('all')
    const { name: elsewhere } = await database('all')
    await server.asRoot(`grant all on ${elsewhere}.* to ${new URL(url).username}@'%'`)
    await using(`${url}?name=Team_1`, async (ours) => {
      await using(url, async (theirs) => {
        await using(
          url,
          async (others) => {
            for (const locks of [ours, theirs, others]) {
              const lease = await locks.mutex('key').acquire({ wait: 0 })
              const waiting = locks.mutex('key').acquire()
              await vi.waitFor(async () => expect((await locks.inspect('key')).entries).toHaveLength(2), LIMIT)
              await lease.release()
              expect((await waiting).held).toBe(true)
            }
          },
          { database: elsewhere },
        )
      })
    })
    const tables = async (schema: string): Promise<unknown[]> => {
      const rows = await tell(
        schema,
        `select table_name as name from information_schema.tables where table_schema = '${schema}' order by 1`,
      )
      return rows.map((row) => (row as { name: string }).name)
    }
    const endings = ['entry', 'line', 'meta', 'pool', 'pool_hold', 'pool_item', 'record']
    const named = ['holdfast', 'Team_1'].flatMap((one) => endings.map((table) => `${one}_${table}`))
    expect(await tables(name)).toEqual(named)
    expect(await tables(elsewhere)).toEqual(endings.map((table) => `holdfast_${table}`))
    await expect(openMysql(url, { name: 'a`b' })).rejects.toThrow(TypeError)
    await expect(openMysql(url, { name: 'x'.repeat(60) })).rejects.toThrow(TypeError)
    await expect(openMysql(url, { database: '' })).rejects.toThrow(TypeError)
  })

  test('tables and procedures that are dropped are made again, and tokens go on', async () => {
    const { name, url } = await database('all')
    await using(url, async (locks) => {
      const before = (await take(locks)) as bigint
      await tell(name, 'drop table holdfast_line, holdfast_entry, holdfast_meta')
      const after = (await take(locks)) as bigint
      expect(after).toBeGreaterThan(before)
      await tell(name, 'drop table holdfast_line')
      const [procedure] = await tell(
        name,
        `select routine_name as n from information_schema.routines where routine_schema = '${name}' and routine_name like '%enter%'`,
      )
      await tell(name, `drop procedure ${(procedure as { n: string }).n}`)
      expect(await take(locks)).toBeGreaterThan(after)
    })
  })

  test.each(['ROW', 'MIXED'])(
    'a server that logs what is done, %s: locks exclude, wait and are woken, alone and in batches',
    async (format) => {
      await using logging = await MariadbServer.start(source, { args: ['--log-bin=log', `--binlog-format=${format}`] })
      const clients = await Promise.all(
        [1, 2].map(async () => createLocks(await openMysql(logging.url), { ttl: '600s' })),
      )
      let [counter, together] = [0, 0]
      const count = async (): Promise<void> => {
        const before = counter
        await new Promise((resolve) => setImmediate(resolve))
        counter = before + 1
      }
      await Promise.all(clients.flatMap((locks) => Array.from({ length: 20 }, () => locks.mutex('key').using(count))))
      for (const locks of clients) {
        await Promise.all(
          Array.from({ length: 20 }, (_, index) => locks.mutex(`key ${index}`).using(() => (together += 1))),
        )
      }
      expect([counter, together]).toEqual([40, 40])
      await Promise.all(clients.map((locks) => locks.close()))
    },
  )

  test('a format of the future is refused, and left alone', async () => {
    const { name, url } = await database('all')
    await using(url, take)
    await tell(name, 'update holdfast_meta set format = 2', 'drop table holdfast_line, holdfast_entry')
    await tell(name, `create table holdfast_line (of_the_future int)`)
    const procedures = await tell(
      name,
      `select routine_name as n from information_schema.routines where routine_schema = '${name}'`,
    )
    for (const row of procedures) await tell(name, `drop procedure ${(row as { n: string }).n}`)
    await expect(using(url, take)).rejects.toMatchObject({
      transient: false,
      message: expect.stringContaining('a newer one made them'),
    })
    expect(
      await tell(name, `select routine_name from information_schema.routines where routine_schema = '${name}'`),
    ).toEqual([])
  })

  test('nothing is left of lines whose processes died, once any other process comes by', async () => {
    const { name, url } = await database('all')
    const dead = await openMysql(url)
    const claim = (key: string, id: number) => {
      return { key, id: id.toString(16).padStart(32, '0'), holder: 'h', weight: 1, limit: 1, ttlMs: 100, wait: true }
    }
    await dead.enter([claim('alone', 1), claim('crowd', 2), claim('crowd', 3)])
    const rows = async (): Promise<unknown> =>
      (await tell(name, 'select (select count(*) from holdfast_line) + (select count(*) from holdfast_entry) as n'))[0]
    expect(await rows()).toEqual({ n: 4 })
    await vi.waitFor(async () => {
      await using(url, take)
      expect(await rows()).toEqual({ n: 0 })
    }, LIMIT)
  })
})
