/**
 * Who may come to a Redis server: passwords, certificates, permissions, and a client that is not installed. What time
 * does not mend is said at once.
 */
import { execFile } from 'node:child_process'
import { cpSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { inspect, promisify } from 'node:util'
import { Cluster, Redis } from 'ioredis'
import { createClient } from 'redis'
import { afterEach, expect, onTestFinished, test } from 'vitest'
import type { Engine } from '../../src/core/engine.ts'
import { openRedis, type RedisClient, redis } from '../../src/engines/redis/index.ts'
import { openRedlock, redlock } from '../../src/engines/redlock/index.ts'
import { connect, createLocks, EngineError, type Locks } from '../../src/index.ts'
import { builtModule } from '../built.ts'
import { freePort } from '../servers/ports.ts'
import { findOwnRedis, type RedisOptions, RedisServer } from '../servers/redis.ts'
import { describeServer, present } from '../servers/suite.ts'
import { Authority } from '../servers/tls.ts'

const run = promisify(execFile)
const PASSWORD = 'p@ss:w/ord?#%'

await describeServer('access to Redis', findOwnRedis, (source) => {
  let server: RedisServer
  let locks: Locks | undefined

  async function start(options: RedisOptions): Promise<void> {
    server = await RedisServer.start(source, options)
  }

  async function acquireAt(url: string): Promise<bigint | null> {
    locks = await connect(url, { ttl: '30s' })
    const lease = await locks.mutex('key').acquire()
    await lease.release()
    return lease.token
  }

  /** What an acquire that could wait for ever is told. */
  async function refusalAt(url: string): Promise<EngineError> {
    const error: unknown = await acquireAt(url).catch((refusal: unknown) => refusal)
    expect(error).toBeInstanceOf(EngineError)
    return error as EngineError
  }

  afterEach(async () => {
    await locks?.close()
    locks = undefined
    await server[Symbol.asyncDispose]()
  })

  test('with its password, whatever is in it', async () => {
    await start({ password: PASSWORD })
    expect(await acquireAt(server.url)).toBeTypeOf('bigint')
  })

  test.each([
    ['a wrong password', ':wrong@', /WRONGPASS/],
    ['no password', '', /NOAUTH/],
    ['an unknown user', 'nobody:wrong@', /WRONGPASS/],
  ])('%s is said at once, and is no matter of time', async (_, user, message) => {
    await start({ password: PASSWORD })
    const refusal = await refusalAt(`redis://${user}${server.host}:${server.port}`)
    expect(refusal).toMatchObject({ outcome: 'not-applied', transient: false, message: expect.stringMatching(message) })
    expect(JSON.stringify([refusal.message, refusal.stack])).not.toContain('wrong@')
  })

  const SECRET = 'open-sesame-4711'

  /** Every way to a server with a password that it refuses. */
  const refused: readonly (readonly [string, (port: number) => Promise<Engine>])[] = [
    ['a redis URL', (port) => openRedis(`redis://:${SECRET}@127.0.0.1:${port}`)],
    ['a redis-cluster URL', (port) => openRedis(`redis-cluster://:${SECRET}@127.0.0.1:${port}`)],
    [
      'a redlock URL',
      (port) => openRedlock(`redlock://:${SECRET}@127.0.0.1:${port},localhost:${port},127.0.0.2:${port}`),
    ],
    ['an ioredis', async (port) => redis({ client: ioredisAt(port) })],
    ['an ioredis with RESP2', async (port) => redis({ client: ioredisAt(port, { protocol: 2 }) })],
    ['three of ioredis', async (port) => redlock({ clients: [ioredisAt(port), ioredisAt(port), ioredisAt(port)] })],
    ['a Cluster of ioredis', async (port) => redis({ client: clusterAt(port) })],
    ['a node-redis', async (port) => redis({ client: nodeRedisAt(port) })],
  ]

  function ioredisAt(port: number, options: { readonly protocol?: 2 | 3 } = {}): Redis {
    const client = new Redis(port, { ...options, password: SECRET })
    onTestFinished(() => client.disconnect())
    return client
  }

  function clusterAt(port: number): RedisClient {
    const client = new Cluster([{ host: '127.0.0.1', port }], { redisOptions: { password: SECRET } })
    onTestFinished(() => client.disconnect())
    return client
  }

  function nodeRedisAt(port: number): RedisClient {
    const client = createClient({ url: `redis://:${SECRET}@127.0.0.1:${port}` })
    client.on('error', () => undefined)
    client.connect().catch(() => undefined)
    onTestFinished(() => {
      if (client.isOpen) client.destroy()
    })
    return client as RedisClient
  }

  test.each(refused)('a refused password is in no part of an error, with %s', async (_, open) => {
    await start({ password: PASSWORD })
    locks = createLocks(await open(server.port), { ttl: '2s' })
    const errors: unknown[] = [
      await locks
        .mutex('key')
        .acquire({ wait: '3s' })
        .catch((error: unknown) => error),
      await locks.engine.inspect('key').catch((error: unknown) => error),
      await locks.engine.diagnose?.().catch((error: unknown) => error),
    ]
    for (const error of errors) {
      expect(error).toBeInstanceOf(Error)
      expect(inspect(error, { depth: Number.POSITIVE_INFINITY, showHidden: true })).not.toContain(SECRET)
    }
  })

  test('a user who may not do what locks need is told so, and nothing is left behind', async () => {
    await start({ args: ['--user', 'weak', 'on', '>weak', '~*', '&*', '+@all', '-evalsha', '-eval'] })
    const refusal = await refusalAt(`redis://weak:weak@${server.host}:${server.port}`)
    expect(refusal).toMatchObject({ transient: false, message: expect.stringMatching(/NOPERM/) })
  })

  test('a user with just the rights that the page names', async () => {
    const page = readFileSync('docs/engines/redis.md', 'utf8')
    const [, rights = ''] = /ACL SETUSER \S+ on (.*)/.exec(page) ?? []
    await start({ args: ['--user', 'ours', 'on', ...rights.split(' ')] })
    const password = /(?<=>)\S+/.exec(rights)?.[0]
    expect(await acquireAt(`redis://ours:${password}@${server.host}:${server.port}`)).toBeTypeOf('bigint')
    const first = await locks?.mutex('key').acquire()
    const [second] = await Promise.all([locks?.mutex('key').acquire(), first?.release()])
    expect(await locks?.inspect('key')).toMatchObject({ entries: [{ state: 'held' }] })
    for await (const { key } of locks?.list() ?? []) expect(key).toBe('key')
    await using _watching = await locks?.engine.watch?.('key', () => undefined)
    expect(await second?.release()).toBe(true)
  })

  test('over TLS, when the authority is known, and not otherwise', async (context) => {
    using authority = present(await Authority.make(), context)
    const { caFile, certificateFile, keyFile } = authority
    const tls = [
      '--tls-cert-file',
      certificateFile,
      '--tls-key-file',
      keyFile,
      '--tls-ca-cert-file',
      caFile,
      '--tls-auth-clients',
      'no',
    ]
    await start({ args: ['--tls-port', '0', ...tls] })
    await using admin = await server.connect()
    const port = await freePort()
    await admin.command('CONFIG', 'SET', 'tls-port', port)
    const url = `rediss://127.0.0.1:${port}`
    expect(await acquireAt(`${url}?ca=${encodeURIComponent(caFile)}`)).toBeTypeOf('bigint')
    await locks?.close()
    expect(await refusalAt(url)).toMatchObject({
      outcome: 'not-applied',
      transient: false,
      message: expect.stringContaining('certificate'),
    })
  })
})

test('without ioredis, a redis URL says what to install, and the rest of the package works', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-bare-'))
  try {
    builtModule('src/connect.ts')
    cpSync('dist/src', join(folder, 'src'), { recursive: true })
    const script = `
      import { connect } from './src/connect.js'
      import './src/engines/redis/index.js'
      await connect('redis://127.0.0.1').catch((error) => console.log(error.code, error.transient, error.message))`
    const { stdout } = await run(process.execPath, ['--input-type=module', '--eval', script], { cwd: folder })
    expect(stdout.trim()).toBe('ENGINE false redis: its client is not installed: npm install ioredis')
  } finally {
    rmSync(folder, { recursive: true })
  }
})
