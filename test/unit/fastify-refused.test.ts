/** Fastify: requests that are refused before they are handled get a reply like any other, which its hooks see. */
import fastify, { type FastifyInstance } from 'fastify'
import { describe, expect, test, vi } from 'vitest'
import { memory } from '../../src/engines/memory/index.ts'
import { type IdempotencyOptions, idempotency } from '../../src/recipes/http/index.ts'
import { ask, keysOf, portOf } from './idempotency-world.ts'
import { gate, locksOn, turns } from './once-world.ts'

interface Refused {
  readonly status: number
  readonly options?: Partial<IdempotencyOptions>
  /** Of the request before, which is handled. */
  readonly first?: { readonly body: string; readonly isInProgress?: boolean }
  readonly key?: string
  readonly type?: string
  readonly isClosed?: boolean
}

const REFUSALS: Readonly<Record<string, Refused>> = {
  'without a key': { status: 400, options: { required: true }, key: '' },
  'in progress': { status: 409, first: { body: 'ten', isInProgress: true } },
  'whose body was not read': { status: 415, type: 'multipart/x' },
  'with another body': { status: 422, first: { body: 'eleven' } },
  'of a server that ends': { status: 503, isClosed: true },
}

test.each(Object.keys(REFUSALS))(
  'a request %s is refused in a reply that leaves by all hooks, and is not handled',
  async (name) => {
    vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
    const { status, options = {}, first, key = 'k', type = 'text/plain', isClosed = false } = REFUSALS[name] as Refused
    const locks = locksOn(memory())
    const keys = idempotency(locks, { scope: () => '', wait: '50ms', ...options })
    const [begun, ended] = [gate(), gate()]
    let handled = 0
    const app = fastify()
    app.addContentTypeParser('text/plain', { parseAs: 'string' }, async (_: unknown, body: unknown) => body)
    app.addContentTypeParser('multipart/x', (_: unknown, __: unknown, done: (error: null) => void) => done(null))
    app.addHook('onRequest', async (_, reply) => void reply.header('x-before', 'kept'))
    app.addHook('onSend', async (_, reply) => {
      // Fastify must not go on to the handler meanwhile.
      await turns()
      void reply.header('x-hook', 'seen')
    })
    await app.register(keys.fastify)
    app.post('/', async () => {
      handled += 1
      begun.open()
      if (first?.isInProgress === true) await ended.opened
      return 'paid'
    })
    await app.listen({ host: '127.0.0.1', port: 0 })
    const port = await portOf(app.server)
    const send = (body: string): Promise<Response> => {
      const headers = { 'content-type': type, ...(key === '' ? {} : { 'idempotency-key': key }) }
      return fetch(`http://127.0.0.1:${port}/`, { method: 'POST', body, headers })
    }
    const before = first === undefined ? undefined : send(first.body)
    if (before !== undefined) await begun.opened
    if (first?.isInProgress !== true) await before
    if (isClosed) await locks.close()
    const refused = await send('ten')
    expect(refused.status).toBe(status)
    expect(refused.headers.get('content-type')).toContain('application/problem+json')
    expect(await refused.json()).toMatchObject({ status, type: expect.stringContaining('urn:holdfast:') })
    expect([refused.headers.get('x-before'), refused.headers.get('x-hook')]).toEqual(['kept', 'seen'])
    expect(handled).toBe(first === undefined ? 0 : 1)
    ended.open()
    await before
    vi.restoreAllMocks()
  },
)

test('a request whose head a hook has sent, and whose key was answered before, is not handled again', async () => {
  let [handled, isEarly] = [0, false]
  const app = fastify()
  app.addContentTypeParser('*', { parseAs: 'string' }, async (_: unknown, body: unknown) => body)
  app.addHook('onRequest', async (_, { raw }) => {
    if (isEarly) raw.flushHeaders()
  })
  await app.register(keysOf().fastify)
  app.post('/', async () => `paid ${++handled}`)
  await app.listen({ host: '127.0.0.1', port: 0 })
  const port = await portOf(app.server)
  await ask(port)
  isEarly = true
  await ask(port).catch(() => {})
  expect(handled).toBe(1)
})

test('a problem document is told as it is, whatever serializer the reply has', async () => {
  const app = fastify()
  app.addHook('onRequest', async (_, reply) => void reply.serializer(JSON.stringify))
  await app.register(keysOf({ required: true }).fastify)
  app.post('/', async () => 'paid')
  const answer = await app.inject({ method: 'POST', url: '/' })
  expect(answer.headers['content-type']).toBe('application/problem+json')
  expect(answer.json()).toMatchObject({ status: 400, type: 'urn:holdfast:key-required' })
  await app.close()
})

describe('routes that were declared before the plugin has registered its hooks are not handled unguarded:', () => {
  async function start(how: string): Promise<{ app: FastifyInstance; handled: () => number }> {
    const app = fastify()
    app.addContentTypeParser('*', { parseAs: 'string' }, async (_: unknown, body: unknown) => body)
    let handled = 0
    app.setErrorHandler((error: Error, _, reply) => void reply.code(500).send({ told: error.message }))
    app.setNotFoundHandler(async () => ({ known: false }))
    if (how === 'awaited') await app.register(keysOf().fastify)
    if (how === 'not awaited') void app.register(keysOf().fastify)
    app.post('/', { config: { mine: true } } as object, async ({ routeOptions: { config } }) => {
      handled += 1
      return { mine: (config as { mine?: boolean }).mine }
    })
    if (how === 'registered after it') await app.register(keysOf().fastify)
    // It stands around handlers, as tracing does.
    app.addHook('onRoute', (route) => {
      const { handler } = route
      route.handler = function (...given) {
        return Reflect.apply(handler, this, given)
      }
    })
    return { app, handled: () => handled }
  }
  const post = async (app: FastifyInstance, url: string, key?: string): Promise<unknown> => {
    const headers = { 'content-type': 'text/plain', ...(key === undefined ? {} : { 'idempotency-key': key }) }
    const answer = await app.inject({ method: 'POST', url, payload: 'ten', headers })
    return [answer.statusCode, answer.json()]
  }

  test.each(['not awaited', 'registered after it'])('%s', async (how) => {
    const { app, handled } = await start(how)
    expect(await post(app, '/', 'k')).toEqual([
      500,
      { told: expect.stringContaining('await app.register(keys.fastify)') },
    ])
    expect(handled()).toBe(0)
    expect(await post(app, '/'), 'without a key').toEqual([200, { mine: true }])
    expect(await post(app, '/none', 'k')).toEqual([200, { known: false }])
    await app.close()
  })

  test('awaited', async () => {
    const { app, handled } = await start('awaited')
    expect(await post(app, '/', 'k')).toEqual([200, { mine: true }])
    expect(await post(app, '/', 'k')).toEqual([200, { mine: true }])
    expect(await post(app, '/none', 'l')).toEqual([200, { known: false }])
    expect(handled()).toBe(1)
    await app.close()
  })
})
