/**
 * What is said of a Redis that could break its promises: by `diagnose`, by `holdfast doctor`, and as the event
 * `warning`.
 */
import { channel } from 'node:diagnostics_channel'
import { afterEach, expect, test, vi } from 'vitest'
import { openRedis } from '../../src/engines/redis/index.ts'
import { createLocks } from '../../src/index.ts'
import { World } from '../cli/holdfast.ts'
import { findOwnRedis, RedisServer } from '../servers/redis.ts'
import { describeServer } from '../servers/suite.ts'

const LIMIT = { timeout: 30_000, interval: 10 }

await describeServer('what is wrong with a Redis', findOwnRedis, (source) => {
  const servers: RedisServer[] = []

  async function start(...args: readonly string[]): Promise<RedisServer> {
    const server = await RedisServer.start(source, { args })
    servers.push(server)
    return server
  }

  async function startReplica(master: RedisServer): Promise<void> {
    await start('--replicaof', '127.0.0.1', `${master.port}`)
    await using client = await master.connect()
    await vi.waitFor(
      async () => expect(String(await client.command('INFO', 'replication'))).toContain('state=online'),
      LIMIT,
    )
  }

  afterEach(async () => {
    for (const server of servers.splice(0)) await server[Symbol.asyncDispose]()
  })

  test('is named, with what to do about it: eviction, durability, replicas, strangers', async () => {
    const server = await start('--maxmemory', '100mb', '--maxmemory-policy', 'allkeys-lru')
    await startReplica(server)
    await using client = await server.connect()
    await client.command('SET', 'lock:somebody:else', 'x')
    await client.command('SET', 'lock:for:a:while', 'x', 'PX', 60_000)
    await using engine = await openRedis(server.url)
    const findings = Object.fromEntries((await engine.diagnose()).map((finding) => [finding.name, finding]))
    expect(findings).toMatchObject({
      version: { status: 'ok' },
      eviction: {
        status: 'warn',
        finding: expect.stringContaining('allkeys-lru'),
        todo: expect.stringContaining('noeviction'),
      },
      durability: { status: 'warn', todo: expect.stringContaining('appendonly yes') },
      replicas: { status: 'warn', todo: expect.stringContaining('durability: { replicas: 1 }') },
      strangers: { status: 'warn', finding: expect.stringMatching(/: lock:somebody:else$/) },
    })
  })

  test('snapshots are told from no persistence at all', async () => {
    const server = await start()
    await using engine = await openRedis(server.url)
    const durability = async (): Promise<unknown> => (await engine.diagnose()).find(({ name }) => name === 'durability')
    expect(await durability()).toMatchObject({
      status: 'warn',
      finding: expect.stringContaining('not known to store anything'),
    })
    await using client = await server.connect()
    await client.command('CONFIG', 'SET', 'save', '900 1')
    expect(await durability()).toMatchObject({
      status: 'warn',
      finding: expect.stringContaining('snapshots only (900 1)'),
    })
  })

  test('nothing is, if it is set up well', async () => {
    const server = await start('--appendonly', 'yes', '--maxmemory', '100mb', '--maxmemory-policy', 'noeviction')
    await startReplica(server)
    await using engine = await openRedis(server.url, { durability: { replicas: 1 } })
    const findings = await engine.diagnose()
    expect(findings.map(({ name }) => name)).toEqual(['version', 'eviction', 'durability', 'replicas', 'strangers'])
    expect(findings.filter(({ status }) => status !== 'ok')).toEqual([])
  })

  test('a subscriber is warned once by each engine object, and of a stranger when it is met', async () => {
    const server = await start('--maxmemory', '100mb', '--maxmemory-policy', 'volatile-ttl')
    const heard: { engine: string; name: string; message: string }[] = []
    const listener = (warning: unknown): void => void heard.push(warning as (typeof heard)[number])
    const warnings = channel('holdfast:warning')
    warnings.subscribe(listener)
    try {
      await using locks = createLocks(await openRedis(server.url))
      for (let turn = 0; turn < 3; turn += 1) await (await locks.mutex('key').acquire()).release()
      await vi.waitFor(() => expect(heard).toHaveLength(2), LIMIT)
      await using client = await server.connect()
      await client.command('SET', 'lock:theirs', 'x')
      for (let turn = 0; turn < 3; turn += 1)
        await expect(locks.mutex('theirs').acquire()).rejects.toThrow('without expiry')
      expect(heard.map(({ engine, name }) => [engine, name])).toEqual([
        ['redis', 'eviction'],
        ['redis', 'durability'],
        ['redis', 'strangers'],
      ])
      expect(heard[2]?.message).toContain("'lock:theirs'")
    } finally {
      warnings.unsubscribe(listener)
    }
  })

  test('holdfast doctor tells it, and does not fail because of a warning', async () => {
    const server = await start('--maxmemory', '100mb', '--maxmemory-policy', 'allkeys-lfu')
    await using world = new World()
    const ended = await world.run('doctor', '--json', '--url', server.url)
    expect(JSON.parse(ended.stdout)).toMatchObject({
      engine: 'redis',
      ok: true,
      checks: expect.arrayContaining([
        expect.objectContaining({ name: 'eviction', status: 'warn', todo: expect.stringContaining('noeviction') }),
        expect.objectContaining({ name: 'hand-off', status: 'ok' }),
      ]),
    })
    expect(ended.exit).toBe(0)
  })
})
