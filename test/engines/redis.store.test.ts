/** Records on Redis, where the conformance suite does not look: what is stored, strange keys, loss of everything. */
import { GlideClient } from '@valkey/valkey-glide'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { putOne, putting, read, removing, textOf } from '../../conformance/records.ts'
import { openRedis, type RedisEngine, redis } from '../../src/engines/redis/index.ts'
import { newClaim } from '../claims.ts'
import { findOwnRedis, RedisServer } from '../servers/redis.ts'
import { describeServer } from '../servers/suite.ts'

const DAY_MS = 24 * 3_600_000
const RECORD = 'hf1:record:{lock:a}'

await describeServer('records on Redis', findOwnRedis, (source) => {
  let server: RedisServer
  const engines: RedisEngine[] = []

  async function open(options?: Parameters<typeof openRedis>[1]): Promise<RedisEngine> {
    const engine = await openRedis(server.url, options)
    engines.push(engine)
    return engine
  }

  async function tell(...command: readonly [string, ...string[]]): Promise<unknown> {
    await using client = await server.connect()
    return await client.command(...command)
  }

  beforeEach(async () => {
    server = await RedisServer.start(source)
  })

  afterEach(async () => {
    await Promise.all(engines.splice(0).map((engine) => engine[Symbol.asyncDispose]()))
    await server[Symbol.asyncDispose]()
  })

  test('text is stored as text, for people who look', async () => {
    const { store } = await open()
    await putOne(store, putting('a', '{"paid":true}', {}, { ttlMs: 60_000, mark: 7n }))
    expect(String(await tell('GET', RECORD))).toMatch(/^hf1=\d+ 7 t\{"paid":true\}$/)
    expect(Number(await tell('PTTL', RECORD))).toBeGreaterThan(50_000)
    // A client could take the mark of the byte order for no part of the text.
    await putOne(store, putting('a', '\ufeffx'))
    expect(String(await tell('GET', RECORD))).toMatch(/ b77u\/eA==$/)
    expect(await textOf(store, 'a')).toBe('\ufeffx')
    expect(await tell('PTTL', RECORD)).toBe(-1)
  })

  test('a client that may read from replicas reads no record there', async () => {
    await using replica = await RedisServer.start(source, { args: ['--replicaof', '127.0.0.1', `${server.port}`] })
    await using there = await replica.connect()
    const followed = async (): Promise<string> => String(await there.command('INFO', 'replication'))
    await expect.poll(followed, { timeout: 20_000 }).toContain('master_link_status:up')
    const addresses = [server, replica].map(({ port }) => ({ host: '127.0.0.1', port }))
    const client = await GlideClient.createClient({ addresses, requestTimeout: 5000, readFrom: 'preferReplica' })
    try {
      await using engine = redis({ client })
      const { store } = engine
      await putOne(store, putting('a', 'old', {}, { ttlMs: 60_000 }))
      expect(await textOf(store, 'a')).toBe('old')
      await expect.poll(() => there.command('EXISTS', RECORD), { timeout: 20_000 }).toBe(1)
      // It hears of nothing any more, and the client does not know.
      await there.command('REPLICAOF', 'NO', 'ONE')
      await putOne(store, putting('a', 'new', {}, { ttlMs: 60_000 }))
      expect(await textOf(store, 'a')).toBe('new')
    } finally {
      client.close()
    }
  })

  test('a removal is remembered for a day where the line is not empty, and leaves nothing where it is', async () => {
    const engine = await open()
    const { store } = engine
    await putOne(store, putting('a', 'x'))
    await putOne(store, removing('a'))
    expect(await tell('EXISTS', RECORD)).toBe(0)
    const claim = newClaim('a', { ttlMs: 30_000 })
    await engine.enter([claim])
    await putOne(store, removing('a'))
    expect(Number(await tell('PTTL', RECORD))).toBeGreaterThan(DAY_MS - 60_000)
    expect((await read(store, 'a')).version).toBeGreaterThan(0n)
    await engine.leave([claim])
    await putOne(store, removing('a'))
    expect(await tell('EXISTS', RECORD)).toBe(0)
  })

  test('what is no record, or a newer one, fails alone, in words that help', async () => {
    const { store } = await open()
    await tell('SET', RECORD, 'hf2=1 0 tnew')
    await tell('LPUSH', 'hf1:record:{lock:b}', 'x')
    const changes = ['a', 'b', 'c'].map((key) => putting(key, 'x'))
    for (const answers of [await store.put(changes), await store.get(['a', 'b', 'c'])]) {
      expect(answers[0]).toMatchObject({ state: 'failed', error: { transient: false, outcome: 'not-applied' } })
      expect(answers[1]).toMatchObject({
        state: 'failed',
        error: { message: expect.stringMatching(/the record of 'b' was written by a newer Holdfast, or is none/) },
      })
      expect(answers[2]?.state).not.toBe('failed')
    }
    expect(await tell('GET', RECORD)).toBe('hf2=1 0 tnew')
  })

  test('what was read a moment ago is read by a plain command, and tells how long it lives', async () => {
    const { store } = await open()
    await putOne(store, putting('a', 'x', {}, { ttlMs: 60_000 }))
    const inFull = await read(store, 'a')
    await tell('CONFIG', 'RESETSTAT')
    const plain = await read(store, 'a')
    expect(String(await tell('INFO', 'commandstats')), 'no script').not.toContain('cmdstat_evalsha')
    expect({ ...plain, livesForMs: 0 }).toEqual({ ...inFull, livesForMs: 0 })
    expect(plain.livesForMs).toBeLessThanOrEqual(inFull.livesForMs as number)
    expect(plain.livesForMs).toBeGreaterThan(50_000)
    const [got] = await store.get(['a'])
    const [seconds] = (await tell('TIME')) as readonly string[]
    expect(got?.state === 'read' && Math.abs((got.serverTimeMs as number) / 1000 - Number(seconds))).toBeLessThan(10)
  })

  test('a plain read sees at once what another process has changed, removed or put anew', async () => {
    const [{ store }, { store: others }] = [await open(), await open()]
    await putOne(store, putting('a', 'x', {}, { ttlMs: 60_000 }))
    await putOne(store, putting('b', 'y', {}, { ttlMs: 60_000 }))
    const texts = async (): Promise<readonly unknown[]> => [await textOf(store, 'a'), await textOf(store, 'b')]
    expect(await texts()).toEqual(['x', 'y'])
    await putOne(others, putting('a', 'new', {}, { ttlMs: 20_000 }))
    expect(await texts()).toEqual(['new', 'y'])
    expect((await read(store, 'a')).livesForMs, 'that of the change').toBeLessThanOrEqual(20_000)
    await putOne(others, removing('a'))
    expect(await read(store, 'a')).toMatchObject({ value: null, version: 0n, livesForMs: null })
    await putOne(others, putting('a', 'again'))
    expect(await read(store, 'a')).toMatchObject({ livesForMs: null })
    expect(await read(store, 'a'), 'known, and without an end').toMatchObject({ livesForMs: null })
    await tell('SET', RECORD, 'hf2=1 0 tnew')
    expect(await store.get(['a'])).toMatchObject([{ state: 'failed' }])
    await tell('DEL', RECORD)
    await tell('LPUSH', RECORD, 'x')
    expect(await store.get(['a'])).toMatchObject([{ state: 'failed' }])
  })

  test('versions go on when the server has lost everything', async () => {
    const { store } = await open()
    const before = await putOne(store, putting('a', 'x'))
    await tell('FLUSHALL')
    const after = await putOne(store, putting('a', 'x', { absent: true }))
    expect(after.state === 'stored' && before.state === 'stored' && after.version > before.version).toBe(true)
  })

  test('a key that looks like one of our own is refused', async () => {
    const { store } = await open({ prefix: '' })
    const change = putting('hf1:counter', 'x')
    for (const [answer] of [await store.put([change]), await store.get([change.key])])
      expect(answer).toMatchObject({ state: 'failed', error: { message: expect.stringContaining('use a prefix') } })
    await putOne(store, putting('plain', 'x'))
    const engine = await open({ prefix: '' })
    const lines: string[] = []
    for await (const { key } of engine.list('')) lines.push(key)
    expect(lines, 'a record is no line').toEqual([])
  })

  test('a listing finds records with any character in their keys', async () => {
    const { store } = await open()
    const keys = ['a*', 'a?', 'a[b]', 'a\\', 'a}b', '{a}']
    await store.put(keys.map((key) => putting(key, 'x')))
    const listed = async (prefix: string): Promise<readonly string[]> => {
      const found: string[] = []
      for await (const { key } of store.list(prefix)) found.push(key)
      return found.sort()
    }
    expect(await listed('')).toEqual(keys.toSorted())
    expect(await listed('a[')).toEqual(['a[b]'])
    expect(await listed('a*')).toEqual(['a*'])
  })
})
