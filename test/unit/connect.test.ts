/** From a URL to locks: which engine, and what never appears in a message. */
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { connect, defaultUrl, openEngine } from '../../src/connect.ts'
import { redactUrl } from '../../src/core/redact.ts'
import { redis } from '../../src/engines/redis/index.ts'
import { redlock } from '../../src/engines/redlock/index.ts'

describe('a URL', () => {
  test('names the engine', async () => {
    const locks = await connect('memory:', { ttl: '1m', holder: 'me' })
    expect(locks.engine.name).toBe('memory')
    expect(locks.holder).toBe('me')
    await locks.close()
    expect((await openEngine('MEMORY:')).name).toBe('memory')
  })

  test('of an unknown scheme lists the known ones', async () => {
    for (const url of ['mongo://x', 'nonsense', 'constructor:x', 'toString:', '__proto__:x']) {
      await expect(openEngine(url)).rejects.toThrow(TypeError)
      await expect(openEngine(url)).rejects.toThrow(/^unknown engine URL '.*'; known schemes: memory:, /)
    }
  })

  test('of a mistyped scheme names the one that was meant', async () => {
    await expect(openEngine('reddis://x')).rejects.toThrow(/; did you mean 'redis:'\?$/)
    await expect(openEngine('postgress://x')).rejects.toThrow(/; did you mean 'postgres:'\?$/)
    await expect(openEngine('nothing-of-the-kind://x')).rejects.toThrow(/mongodb\+srv:$/)
  })

  test('that lacks its scheme is told how it is written', async () => {
    const meant = {
      'localhost:6379': 'redis://localhost:6379',
      'db.internal:5432': 'postgres://db.internal:5432',
      '10.0.0.7:2379': 'etcd://10.0.0.7:2379',
      'locks.db': 'sqlite:locks.db',
      './state/locks.sqlite3': 'sqlite:./state/locks.sqlite3',
      '/var/lib/app/locks': 'sqlite:/var/lib/app/locks',
    }
    for (const [url, better] of Object.entries(meant))
      await expect(openEngine(url)).rejects.toThrow(`; did you mean '${better}'?`)
    await expect(openEngine('user:s3cr3t@localhost:6379')).rejects.not.toThrow('s3cr3t')
  })

  test('that is empty, or undefined alone, is a variable that is not set: not the embedded default', async () => {
    await expect(connect('')).rejects.toThrow(/^the URL is empty: is the variable set/)
    // As in connect(process.env.REDIS_URL).
    await expect(connect(undefined)).rejects.toThrow(/^connect was given undefined as its URL.*connect\(\)/)
    vi.stubEnv('HOLDFAST_URL', 'memory:')
    await using locks = await connect(undefined, { ttl: '1m' })
    expect(locks.engine.name).toBe('memory')
    await using plain = await connect()
    expect(plain.engine.name).toBe('memory')
    vi.unstubAllEnvs()
  })

  test('is a text: what else is given is told what to do instead', async () => {
    const client = { call: () => undefined, defineCommand: () => undefined }
    for (const wrong of [client, null, 6379, new URL('memory:')])
      await expect(connect(wrong as unknown as string)).rejects.toThrow(/^connect takes a URL; .*redis\(\{ client \}\)/)
    for (const options of [{ ttl: '5s' }, { tttl: '5s' }, {}])
      await expect(connect(options as unknown as string)).rejects.toThrow(
        /^connect takes a URL first, and options second/,
      )
    expect(() => redis(undefined as never)).toThrow('redis({ client })')
    expect(() => redis('redis://127.0.0.1' as never)).toThrow('redis({ client })')
    expect(() => redis({} as never)).toThrow(/^client must be a client of ioredis/)
    expect(() => redlock(undefined as never)).toThrow('redlock({ clients })')
  })

  test('with options that are wrong leaves no engine open', async () => {
    const real = await vi.importActual<typeof import('../../src/engines/memory/index.ts')>(
      '../../src/engines/memory/index.ts',
    )
    let disposed = 0
    const counting = Object.assign(real.memory(), {
      [Symbol.asyncDispose]: async () => {
        disposed += 1
      },
    })
    vi.resetModules()
    vi.doMock('../../src/engines/memory/index.ts', () => ({ ...real, memory: () => counting }))
    const fresh = await import('../../src/connect.ts')
    await expect(fresh.connect('memory:', { ttl: 1 })).rejects.toThrow(RangeError)
    vi.doUnmock('../../src/engines/memory/index.ts')
    expect(disposed).toBe(1)
  })
})

describe('without a URL', () => {
  beforeEach(() => {
    vi.unstubAllEnvs()
  })
  afterEach(() => {
    vi.unstubAllEnvs()
  })

  test('the environment says, or else it is the embedded default', async () => {
    vi.stubEnv('HOLDFAST_URL', 'memory:')
    expect(defaultUrl()).toBe('memory:')
    expect((await openEngine()).name).toBe('memory')
    vi.stubEnv('HOLDFAST_URL', '')
    expect(defaultUrl()).toBe('sqlite:')
  })
})

describe('a password', () => {
  const secret = 's3cr3t'
  const urls = [
    `redis://user:${secret}@host:6379/0`,
    `redis://:${secret}@host`,
    `redis://user:${secret}@h1,user:${secret}@h2:6380`,
    `postgres://user:${secret}/with/slashes@host/db`,
    `postgres://user:${secret}?with=query@host/db`,
    `postgres://user:${secret}#with-hash@host/db`,
    `postgres://user:with@at${secret}@host/db`,
    `postgres://host/db?password=${secret}&x=1`,
    `postgres://host/db?x=1&sslPassword=${secret}`,
    `x://host?authToken=${secret}`,
    `x://host?client_secret=${secret}#f`,
    `x://host?pass=${secret}`,
    `x://host?pwd=${secret}`,
    `user:${secret}@host`,
    `redis:user:${secret}@host`,
  ]

  test('is not in the redacted URL', () => {
    for (const url of urls) expect(redactUrl(url)).not.toContain(secret)
  })

  test('is not in an error', async () => {
    for (const url of urls) {
      const error: unknown = await openEngine(url.replace(/^(?:redis|postgres)/, 'unknown')).catch(
        (reason: unknown) => reason,
      )
      expect(String(error)).not.toContain(secret)
    }
  })

  test('is all that is taken out', () => {
    expect(redactUrl('redis://user:pw@host:6379/0?a=1')).toBe('redis://user:***@host:6379/0?a=1')
    expect(redactUrl('sqlite:locks.db')).toBe('sqlite:locks.db')
    expect(redactUrl('sqlite:/var/lib/a@b/locks.db')).toBe('sqlite:/var/lib/a@b/locks.db')
    expect(redactUrl('etcd://h1:2379,h2:2379')).toBe('etcd://h1:2379,h2:2379')
  })
})
