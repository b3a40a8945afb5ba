/**
 * Options that no call knows: refused with a sentence that names the call, the option, and what was probably meant,
 * before anything is opened or asked.
 */
import { readFileSync } from 'node:fs'
import { type AddressInfo, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { describe, expect, test } from 'vitest'
import { connect } from '../../src/connect.ts'
import { checkOptions } from '../../src/core/options.ts'
import { etcd, openEtcd } from '../../src/engines/etcd/index.ts'
import { memory } from '../../src/engines/memory/index.ts'
import { mongodb, openMongodb } from '../../src/engines/mongodb/index.ts'
import { mysql, openMysql } from '../../src/engines/mysql/index.ts'
import { openPostgres, postgres } from '../../src/engines/postgres/index.ts'
import { openPostgresAdvisory, postgresAdvisory } from '../../src/engines/postgres-advisory/index.ts'
import { openRedis, redis } from '../../src/engines/redis/index.ts'
import { openRedlock, redlock } from '../../src/engines/redlock/index.ts'
import { openSqlite, sqlite } from '../../src/engines/sqlite/index.ts'
import { openZooKeeper, zookeeper } from '../../src/engines/zookeeper/index.ts'
import { keyed } from '../../src/frameworks/bullmq.ts'
import { HoldfastModule, Locked, Once, OncePerTick } from '../../src/frameworks/nest/index.ts'
import { guard as filesGuard } from '../../src/guards/files.ts'
import { admission } from '../../src/guards/http.ts'
import { guard as mongodbGuard } from '../../src/guards/mongodb.ts'
import { guard as mysqlGuard } from '../../src/guards/mysql.ts'
import { guard as postgresGuard } from '../../src/guards/postgres.ts'
import { guard as redisGuard } from '../../src/guards/redis.ts'
import { guard as sqliteGuard } from '../../src/guards/sqlite.ts'
import { createLocks, type Locks } from '../../src/locks.ts'
import { cron, tick } from '../../src/recipes/cron/index.ts'
import { idempotency } from '../../src/recipes/http/index.ts'
import { once } from '../../src/recipes/once/index.ts'
import { publishedUpload, removeRetired, replace } from '../../src/recipes/replace/index.ts'
import { ENGINE_NAMES } from '../engine-names.ts'
import { contextOf } from './nest-world.ts'
import { inMemory } from './world.ts'

const bothOf = (locks: Locks): ReturnType<Locks['all']> => locks.all([locks.mutex('a'), locks.mutex('b')])

const openedByNest = (options: object): unknown => contextOf({ imports: [HoldfastModule.forRoot(options)] })

/** What the first byte of a connection with TLS says. */
const TLS_HANDSHAKE = 0x16

/** Options as a JavaScript program may give them. */
const wrong = (options: object): never => options as never

describe('a check of options', () => {
  const known = { wait: true, signal: true } as const
  const check = (options: unknown): void => checkOptions('acquire()', options, known)

  test('lets known ones pass, also with no value', () => {
    check({})
    check({ wait: 5, signal: undefined })
    check(Object.create({ inherited: 1 }))
  })

  test('names the call, the option and the nearest known one', () => {
    expect(() => check({ wiat: 5 })).toThrow(
      new TypeError("unknown option 'wiat' in acquire(); did you mean 'wait'? (known there: wait, signal)"),
    )
    expect(() => check({ blue: 5 })).toThrow(
      new TypeError("unknown option 'blue' in acquire() (known there: wait, signal)"),
    )
  })

  test('says where an option of ours belongs, also a mistyped one', () => {
    expect(() => check({ ttl: '5s' })).toThrow(/unknown option 'ttl' in acquire\(\): it is an option of the lock/)
    expect(() => check({ tll: '5s' })).toThrow(/did you mean 'ttl'\? It is an option of the lock/)
  })

  test('names ours for the options of other libraries', () => {
    for (const name of ['timeout', 'acquireTimeout', 'retryCount', 'retryDelay', 'retries', 'retryAttempts'])
      expect(() => check({ [name]: 1 }), name).toThrow(/\{ wait: '5s' \} of acquire\(\)/)
    for (const name of ['lockTimeout', 'stale', 'defaultTTL'])
      expect(() => check({ [name]: 1 }), name).toThrow(/\{ ttl: '30s' \} of the lock/)
    for (const name of ['refreshInterval', 'update', 'automaticExtensionThreshold'])
      expect(() => check({ [name]: 1 }), name).toThrow(/renewed by themselves/)
    expect(() => check({ driftFactor: 0.01 })).toThrow(/margin that is built in/)
  })

  test('takes no name that every object inherits for a known one', () => {
    for (const name of ['constructor', 'toString', '__proto__'])
      expect(() => check(JSON.parse(`{"${name}": 1}`)), name).toThrow(`unknown option '${name}'`)
  })

  test('refuses what is no object', () => {
    expect(() => check(5000)).toThrow(
      new TypeError('acquire() takes its options as an object with wait, signal; got number'),
    )
    expect(() => check(null)).toThrow(/got null/)
    expect(() => check('5s')).toThrow(/got string/)
  })
})

describe('unknown options are refused by', () => {
  const client = {} as never
  const synchronous: Readonly<Record<string, () => unknown>> = {
    'memory()': () => memory(wrong({ sever: 1 })),
    'sqlite()': () => sqlite(wrong({ fiel: 'x' })),
    'redis()': () => redis(wrong({ client, prefx: '' })),
    durability: () => redis(wrong({ client, durability: { replica: 1 } })),
    'redlock()': () => redlock(wrong({ clients: [], retryCount: 10 })),
    'etcd()': () => etcd(wrong({ endpoints: [{ host: 'a', port: 1 }], prefx: '' })),
    'zookeeper()': () => zookeeper(wrong({ endpoints: [{ host: 'a', port: 1 }], pth: '/locks' })),
    'mongodb()': () => mongodb(wrong({ client, colection: 'x' })),
    'mysql()': () => mysql(wrong({ client, databse: 'x' })),
    'postgres()': () => postgres(wrong({ client, shema: 'x' })),
    'postgresAdvisory()': () => postgresAdvisory(wrong({ connect: async () => client, poler: 'session' })),
    'guard() of files': () => filesGuard(wrong({ folder: tmpdir(), wiat: '1s' })),
    'guard() of SQLite': () => sqliteGuard(wrong({ tabel: 'x' })),
    'guard() of PostgreSQL': () => postgresGuard(wrong({ tabel: 'x' })),
    'guard() of MySQL': () => mysqlGuard(wrong({ table: 'a.b', tabel: 'x' })),
    'guard() of MongoDB': () => mongodbGuard(wrong({ colection: 'x' })),
    'guard() of Redis': () => redisGuard(wrong({ client, prefix: 'x' })),
    'createLocks()': () => createLocks(memory(), wrong({ tttl: '5s' })),
    'mutex()': () => inMemory().locks.mutex('a', wrong({ tll: '5s' })),
    'semaphore()': () => inMemory().locks.semaphore('a', 2, wrong({ reentrant: true })),
    'rw()': () => inMemory().locks.rw('a', wrong({ stale: 5000 })),
    'election()': () => inMemory().locks.election('a', wrong({ reentrant: true })),
    'observe()': () =>
      inMemory()
        .locks.election('a')
        .observe(wrong({ every: '1s' })),
    'watch()': () => inMemory().locks.watch('a', wrong({ evry: '1s' })),
    'admission()': () => admission(wrong({ resource: () => undefined, remeber: 1 })),
  }
  for (const [call, make] of Object.entries(synchronous)) {
    test(call, () => {
      const name = call.split(' ')[0] as string
      expect(make).toThrow(TypeError)
      expect(make).toThrow(`' in ${name}`)
    })
  }

  const asynchronous: Readonly<Record<string, () => Promise<unknown>>> = {
    'acquire()': () =>
      inMemory()
        .locks.mutex('a')
        .acquire(wrong({ timeout: 5000 })),
    'tryAcquire()': () =>
      inMemory()
        .locks.mutex('a')
        .tryAcquire(wrong({ wait: '5s' })),
    'using()': () =>
      inMemory()
        .locks.mutex('a')
        .using(wrong({ tll: '5s' }), () => {}),
    'acquire() of several': () => bothOf(inMemory().locks).acquire(wrong({ weight: 2 })),
    'tryAcquire() of several': () => bothOf(inMemory().locks).tryAcquire(wrong({ within: 1 })),
    'using() of several': () => bothOf(inMemory().locks).using(wrong({ timeout: 1 }), () => {}),
    'release()': async () => (await inMemory().locks.mutex('a').acquire()).release(wrong({ afer: 5 })),
    'connect()': () => connect('memory:', wrong({ tttl: '5s' })),
    'lead()': () =>
      inMemory()
        .locks.election('a')
        .lead(wrong({ agian: true }), () => {}),
    'openSqlite()': () => openSqlite('sqlite:locks.db', wrong({ durabilty: 'full' })),
    'openSqlite() that is told of another file than that of its URL': () =>
      openSqlite('sqlite:locks.db', wrong({ file: 'other.db' })),
    'openRedis()': () => openRedis('redis://127.0.0.1:1', wrong({ prefx: '' })),
    'openRedlock()': () => openRedlock('redlock://a,b,c', wrong({ tiemout: 1 })),
    'openEtcd()': () => openEtcd('etcd://127.0.0.1:1', wrong({ prefx: '' })),
    'openZooKeeper()': () => openZooKeeper('zookeeper://127.0.0.1:1', wrong({ pth: '/locks' })),
    'openMongodb()': () => openMongodb('mongodb://127.0.0.1:1/x', wrong({ colection: '' })),
    'openRedlock() that is told of other servers than those of its URL': () =>
      openRedlock('redlock://a,b,c', wrong({ clients: [client] })),
    'openEtcd() that is told of other servers than those of its URL': () =>
      openEtcd('etcd://127.0.0.1:1', wrong({ endpoints: [{ host: 'a', port: 1 }] })),
    'openZooKeeper() that is told of other servers than those of its URL': () =>
      openZooKeeper('zookeeper://127.0.0.1:1', wrong({ endpoints: [{ host: 'a', port: 1 }] })),
    'openMysql()': () => openMysql('mysql://127.0.0.1:1/x', wrong({ nmae: '' })),
    'openPostgres()': () => openPostgres('postgres://127.0.0.1:1/x', wrong({ shema: '' })),
    'openPostgresAdvisory()': () => openPostgresAdvisory('postgres-advisory://127.0.0.1:1/x', wrong({ poler: '' })),
  }
  for (const [call, open] of Object.entries(asynchronous)) {
    test(call, async () => {
      await expect(open()).rejects.toThrow(TypeError)
      await expect(open()).rejects.toThrow(`' in ${call.split(' ')[0]}`)
    })
  }

  test.each(ENGINE_NAMES)('what makes an engine of %s: each such function is tried here', async (name) => {
    const exported = Object.keys((await import(`../../src/engines/${name}/index.ts`)) as object)
    const makes = exported.filter((each) => each.startsWith('open') || each.toLowerCase() === name.replace('-', ''))
    expect(makes).not.toEqual([])
    // That one takes a URL, and nothing else.
    const tried = ['openSqlite()', ...Object.keys(synchronous), ...Object.keys(asynchronous)]
    expect(makes.map((each) => `${each}()`).filter((call) => !tried.includes(call))).toEqual([])
  })
})

describe('an option that is undefined leaves what the URL says to', () => {
  // What the URL says is refused: so it is seen to count.
  const opened: Readonly<Record<string, readonly [open: () => Promise<unknown>, refusal: string]>> = {
    'openSqlite()': [() => openSqlite('sqlite:x?durability=no', wrong({ durability: undefined })), 'durability'],
    'openRedis()': [() => openRedis('redis://127.0.0.1:1?prefix=hf1:', wrong({ prefix: undefined })), 'prefix'],
    'openRedlock()': [() => openRedlock('redlock://a,b,c?timeout=0', wrong({ timeout: undefined })), 'timeout'],
    'openEtcd()': [() => openEtcd('etcd://127.0.0.1:1?prefix=%00', wrong({ prefix: undefined })), 'prefix'],
    'openZooKeeper()': [
      () => openZooKeeper('zookeeper://127.0.0.1:1?layout=no', wrong({ layout: undefined })),
      'layout',
    ],
    'openMongodb()': [
      () => openMongodb('mongodb://127.0.0.1:1/x?collection=$', wrong({ collection: undefined })),
      'collection',
    ],
    'openMysql()': [() => openMysql('mysql://127.0.0.1:1/x?name=a.b', wrong({ name: undefined })), 'name'],
    'openPostgres()': [
      () => openPostgres('postgres://127.0.0.1:1/x?schema=a.b', wrong({ schema: undefined })),
      'schema',
    ],
    'openPostgresAdvisory()': [
      () => openPostgresAdvisory('postgres-advisory://127.0.0.1:1/x?pooler=no', wrong({ pooler: undefined })),
      'pooler',
    ],
  }
  test.each(Object.entries(opened))('%s', async (_, [open, refusal]) => {
    await expect(open()).rejects.toThrow(refusal)
  })

  test.each(ENGINE_NAMES)('all that open an engine of %s: each is tried here', async (name) => {
    const exported = Object.keys((await import(`../../src/engines/${name}/index.ts`)) as object)
    const opens = exported.filter((each) => each.startsWith('open')).map((each) => `${each}()`)
    expect(opens.filter((call) => !(call in opened))).toEqual([])
  })

  test('openEtcd(), which goes on with TLS', async () => {
    const server = createServer()
    const firstByte = new Promise((resolve) => {
      server.once('connection', (socket) => {
        socket.once('data', ([byte]) => {
          resolve(byte)
          socket.destroy()
          server.close()
        })
      })
    })
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    const { port } = server.address() as AddressInfo
    const engine = await openEtcd(`etcd://127.0.0.1:${port}?tls=true`, wrong({ tls: undefined }))
    const asked = engine.inspect('k').catch(() => undefined)
    expect(await firstByte).toBe(TLS_HANDSHAKE)
    await engine[Symbol.asyncDispose]()
    await asked
  })
})

test('postgresAdvisory() vouches for a pooler in session mode, and for no other', () => {
  const make = (pooler: string): unknown => postgresAdvisory(wrong({ connect: async () => ({}), pooler }))
  expect(() => make('transaction')).toThrow(new TypeError("pooler can only be 'session'; got 'transaction'"))
  expect(() => make('session')).not.toThrow()
})

test('openPostgresAdvisory() goes by the option rather than by what the URL says', async () => {
  const url = 'postgres-advisory://127.0.0.1:1/x?pooler='
  const refused = openPostgresAdvisory(`${url}session`, wrong({ pooler: 'transaction' }))
  await expect(refused).rejects.toThrow("pooler can only be 'session'; got 'transaction'")
  await using engine = await openPostgresAdvisory(`${url}transaction`, { pooler: 'session' })
  expect(engine.name).toBe('postgres-advisory')
})

describe('the page of all options', () => {
  const sections = new Map(
    readFileSync('docs/options.md', 'utf8')
      .split('\n## ')
      .map((text) => [text.split('\n')[0] as string, text]),
  )
  const locks = createLocks(memory())
  const unknown = wrong({ unheardOf: true })
  const calls: readonly (readonly [string, () => unknown])[] = [
    ['connect(', () => createLocks(memory(), unknown)],
    ['locks.mutex(', () => locks.mutex('k', unknown)],
    ['locks.mutex(', () => locks.rw('k', unknown)],
    ['locks.mutex(', () => locks.semaphore('k', 2, unknown)],
    ['locks.mutex(', () => locks.election('k', unknown)],
    ['acquire(', () => locks.mutex('k').acquire(unknown)],
    ['acquire(', () => locks.mutex('k').tryAcquire(unknown)],
    ['acquire(', () => locks.mutex('k').using(unknown, () => undefined)],
    ['once(', () => once(locks, unknown)],
    ['once(', () => once(locks).run('k', unknown, () => undefined)],
    ['idempotency(', () => idempotency(locks, unknown)],
    ['replace(', () => replace(locks, 'k', unknown, () => undefined)],
    ['replace(', () => removeRetired(locks, 'k', unknown as never)],
    ['replace(', () => publishedUpload(locks, 'k', unknown)],
    ['The others', () => locks.drain(unknown)],
    ['The others', () => locks.watch('k', unknown)],
    ['The others', () => locks.sample(unknown)],
    ['The others', () => locks.election('k').lead(unknown, () => undefined)],
    ['The others', async () => (await locks.mutex('k').acquire()).release(unknown)],
    ['jobs.add(', () => cron(locks).add('job', { every: '1h' }, unknown, () => undefined)],
    ['The others', () => cron(locks, unknown)],
    ['The others', () => cron(locks).drain(unknown)],
    ['The others', () => tick(locks, 'job', 1, unknown, () => undefined)],
    ['@Locked(', () => OncePerTick(unknown)],
    ['@Locked(', () => Locked('k', unknown)],
    ['@Locked(', () => Once('k', unknown)],
    ['HoldfastModule.forRoot(', () => openedByNest(unknown)],
    [
      'The others',
      () =>
        keyed(
          locks,
          () => 'k',
          unknown,
          async () => undefined,
        ),
    ],
  ]

  test.each(calls)('has each one in the section %s', async (heading, call) => {
    const refusal = await Promise.resolve()
      .then(call)
      .catch((error: unknown) => error)
    const names = /\(known there: (.*)\)$/.exec(String(refusal))?.[1]?.split(', ') ?? []
    expect(names).not.toEqual([])
    const section = [...sections].find(([title]) => title.startsWith(heading))?.[1]
    for (const name of names) expect(section).toContain(`\`${name}\``)
  })
})
