/** `holdfast/fastify` in applications of Fastify, in memory: where the locks are seen, how they end, what is told. */
import fastify, { type FastifyInstance } from 'fastify'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { memory } from '../../src/engines/memory/index.ts'
import holdfast from '../../src/frameworks/fastify.ts'
import { createLocks, type Locks } from '../../src/locks.ts'

let app: FastifyInstance
beforeEach(() => {
  app = fastify()
})
afterEach(() => app.close())

describe('the plugin', () => {
  test('decorates the application, and those inside of it, by its name', async () => {
    await app.register(holdfast, { url: 'memory:', holder: 'shop-1' })
    let inner: Locks | undefined
    await app.register(async (inside) => {
      inner = inside.locks
    })
    expect(app.locks.holder).toBe('shop-1')
    expect(inner).toBe(app.locks)
    expect(app.hasPlugin('holdfast')).toBe(true)
  })

  test('stays inside of the plugin that registers it', async () => {
    await app.register(async (inside) => {
      await inside.register(holdfast, { url: 'memory:' })
      expect(inside.hasDecorator('locks')).toBe(true)
    })
    expect(app.hasDecorator('locks')).toBe(false)
  })

  test('gives a second engine a name of its own, and refuses the same one twice', async () => {
    await app.register(holdfast, { url: 'memory:' })
    await app.register(holdfast, { url: 'memory:', decorator: 'reportLocks' })
    expect((app as unknown as { reportLocks: Locks }).reportLocks).not.toBe(app.locks)
    await expect(app.register(holdfast, { url: 'memory:' })).rejects.toThrow("has 'locks' already")
  })

  test('refuses options that it does not know', async () => {
    await expect(app.register(holdfast, { uri: 'memory:' } as object)).rejects.toThrow(
      "unknown option 'uri' in holdfast/fastify; did you mean 'url'?",
    )
  })

  test('lets a request that is in flight end, and drains and closes then', async () => {
    await app.register(holdfast, { url: 'memory:', grace: '20s' })
    const { locks } = app
    let open = (): void => {}
    const gate = new Promise<void>((resolve) => {
      open = resolve
    })
    app.get('/', async () =>
      locks.mutex('a').using(async () => {
        await gate
        return locks.mutex('b').using(async () => 'both')
      }),
    )
    const url = await app.listen({ host: '127.0.0.1', port: 0 })
    // Fastify waits for connections that clients keep open, for as long as its keepAliveTimeout.
    const asked = fetch(url, { headers: { connection: 'close' } }).then((response) => response.text())
    await vi.waitFor(async () => expect((await locks.inspect('a')).entries.length).toBe(1), { timeout: 20_000 })
    const closing = app.close()
    expect(locks.draining.aborted, 'what is in flight may still ask').toBe(false)
    open()
    expect(await asked).toBe('both')
    await closing
    await expect(locks.mutex('a').acquire()).rejects.toThrow('the locks were closed')
  })

  test('leaves locks that it was given to their giver', async () => {
    await using locks = createLocks(memory())
    await app.register(holdfast, { locks })
    await app.close()
    expect(await locks.ping()).toBeGreaterThanOrEqual(0)
  })
})

describe('problems', () => {
  async function statuses(options: object): Promise<readonly number[]> {
    await app.register(holdfast, { url: 'memory:', ...options })
    app.get('/busy', async () => app.locks.mutex('a').using({ wait: 0 }, async () => 'free'))
    app.get('/other', async () => {
      throw Object.assign(new Error('no tea'), { statusCode: 418 })
    })
    const lease = await app.locks.mutex('a').acquire()
    const busy = await app.inject('/busy')
    const other = await app.inject('/other')
    await lease.release()
    return [busy.statusCode, other.statusCode]
  }

  test('are answered if that is asked for, and other errors are left alone', async () => {
    expect(await statuses({ problems: true })).toEqual([409, 418])
  })

  test('are errors like any other unless asked for', async () => {
    expect(await statuses({})).toEqual([500, 418])
  })
})
