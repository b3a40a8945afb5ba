/** The rows of a pool, read from each database itself: not by the code that keeps them. */
import { Redis } from 'ioredis'
import { createConnection } from 'mysql2/promise'
import pg from 'pg'
import { loadDriver } from '../../src/clients/sqlite/driver.ts'

export interface SeenItem {
  readonly stock: number
  readonly sold: number
  readonly held: number
}

export interface SeenHold {
  readonly id: string
  readonly state: 'held' | 'sold' | 'changed'
  readonly units: number
  /** On the clock of the database, in milliseconds. */
  readonly at: number
}

/** All rows of one instant, and what time it was a moment after it. */
export interface Seen {
  readonly now: number
  readonly item: SeenItem
  readonly holds: readonly SeenHold[]
}

export interface Observer extends AsyncDisposable {
  look(): Promise<Seen>
}

const STATES = ['held', 'sold', 'changed'] as const

function unitsOf(lines: string): number {
  return Number(lines.split('\n')[1])
}

export async function watchRedis(url: string): Promise<Observer> {
  const redis = new Redis(url)
  const [key = ''] = await redis.keys('hf1:pool:*')
  const suffix = key.slice('hf1:pool'.length)
  const script = `return {redis.call('HGETALL', KEYS[1]), redis.call('HGETALL', KEYS[2]), redis.call('TIME')}`
  const states: Record<string, SeenHold['state']> = { h: 'held', s: 'sold', c: 'changed' }
  return {
    async look() {
      const answer = await redis.eval(script, 2, `hf1:pool${suffix}`, `hf1:holds${suffix}`)
      const [items, rows, [s, us]] = answer as [string[], string[], [string, string]]
      const [stock = 0, sold = 0, held = 0] = items[1]?.split(' ').map(Number) ?? []
      const holds = rows.flatMap((id, index): SeenHold[] => {
        if (index % 2 === 1) return []
        const [, state = '', at, lines = ''] = /^(\w) (\d+) (.*)$/s.exec(rows[index + 1] ?? '') ?? []
        return [{ id, state: states[state] as SeenHold['state'], units: unitsOf(lines), at: Number(at) }]
      })
      return { now: Number(s) * 1000 + Number(us) / 1000, item: { stock, sold, held }, holds }
    },
    async [Symbol.asyncDispose]() {
      redis.disconnect()
    },
  }
}

export async function watchPostgres(url: string): Promise<Observer> {
  const client = new pg.Client(url)
  await client.connect()
  return {
    async look() {
      const { rows } = await client.query(
        `SELECT (SELECT to_json(i) FROM holdfast_pool_item i) AS item, coalesce((SELECT json_agg(json_build_array(
           h.id, h.state, h.lines, extract(epoch FROM h.at) * 1000)) FROM holdfast_pool_hold h), '[]') AS holds`,
      )
      const { rows: times } = await client.query('SELECT extract(epoch FROM clock_timestamp()) * 1000 AS now')
      const [{ item, holds }] = rows
      return {
        now: Number(times[0].now),
        item,
        holds: holds.map(([id, state, lines, at]: [string, SeenHold['state'], string, number]) => ({
          ...{ id, state, units: unitsOf(lines), at },
        })),
      }
    },
    [Symbol.asyncDispose]: () => client.end(),
  }
}

export async function watchMariadb(url: string): Promise<Observer> {
  const client = await createConnection({ uri: url, rowsAsArray: true })
  type Row = readonly [string, number, Buffer | string, string | number, string | number, string | number]
  return {
    async look() {
      const [rows] = await client.query(
        `SELECT id, state, units, due_at, 0, 0 FROM holdfast_pool_hold
         UNION ALL SELECT '', 9, '', stock, sold, held FROM holdfast_pool_item`,
      )
      const [times] = await client.query("SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))")
      const holds: SeenHold[] = []
      let item: SeenItem = { stock: 0, sold: 0, held: 0 }
      for (const [id, state, units, a, b, c] of rows as unknown as readonly Row[]) {
        if (state === 9) item = { stock: Number(a), sold: Number(b), held: Number(c) }
        else
          holds.push({
            ...{ id: String(id), state: STATES[state] as SeenHold['state'] },
            ...{ units: unitsOf(String(units)), at: Number(a) / 1000 },
          })
      }
      return { now: Number((times as unknown as [[string]])[0][0]) / 1000, item, holds }
    },
    [Symbol.asyncDispose]: () => client.end(),
  }
}

export async function watchSqlite(file: string): Promise<Observer> {
  const database = (await loadDriver()).open(file)
  const sql = `select id, state, lines, wall_ms as a, 0 as b, 0 as c from holdfast_pool_hold
    union all select '', 9, '', stock, sold, held from holdfast_pool_item`
  type Row = { id: string; state: number; lines: string; a: number; b: number; c: number }
  return {
    async look() {
      const rows = database.prepare(sql).all() as Row[]
      const holds = rows.flatMap(({ id, state, lines, a }): SeenHold[] =>
        state === 9 ? [] : [{ id, state: STATES[state] as SeenHold['state'], units: unitsOf(lines), at: a }],
      )
      const found = rows.find(({ state }) => state === 9)
      return { now: Date.now(), item: { stock: found?.a ?? 0, sold: found?.b ?? 0, held: found?.c ?? 0 }, holds }
    },
    async [Symbol.asyncDispose]() {
      database.close()
    },
  }
}
