/** Handlers that fail, clients that go away, and responses that are not as usual: no key may be stuck, or unguarded. */
import type { RequestListener, Server, ServerResponse } from 'node:http'
import { PassThrough } from 'node:stream'
import { serve } from '@hono/node-server'
import express from 'express'
import fastify from 'fastify'
import { Hono } from 'hono'
import { describe, expect, test, vi } from 'vitest'
import { ClosedError, KeyReusedError, LeaseLostError, ReplayedFailureError } from '../../src/core/errors.ts'
import { memory } from '../../src/engines/memory/index.ts'
import { type Idempotency, type IdempotencyOptions, idempotency } from '../../src/recipes/http/index.ts'
import { ask, keysOf, portOf, serving } from './idempotency-world.ts'
import { gate, locksOn } from './once-world.ts'

test('node:http: a handler that throws is not called again by its `next`, and the retry handles the request', async () => {
  const warned = vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
  const keys = keysOf()
  let handled = 0
  const port = await serving((request, response) =>
    keys.node(request, response, () => {
      handled += 1
      response.setHeader('x-half', 'done')
      if (handled === 1) throw new Error('broken')
      response.end('paid')
    }),
  )
  const failed = await ask(port)
  expect([failed.status, failed.headers.get('x-half'), handled]).toEqual([500, null, 1])
  expect(warned).toHaveBeenCalledOnce()
  warned.mockRestore()
  expect(await ask(port)).toMatchObject({ status: 200, body: 'paid' })
})

test('node:http: a request whose key cannot be looked up is not handled', async () => {
  const warned = vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
  const locks = locksOn(memory())
  let fails = true
  const scope = (): string => {
    if (fails) throw new Error('no tenant')
    return ''
  }
  const keys = idempotency(locks, { scope, fingerprint: ({ url }) => url })
  let handled = 0
  const port = await serving((request, response) =>
    keys.node(request, response, () => {
      handled += 1
      response.end()
    }),
  )
  expect((await ask(port)).status).toBe(500)
  expect(warned).toHaveBeenCalledOnce()
  warned.mockRestore()
  fails = false
  await locks.close()
  expect((await ask(port)).status, 'another server can').toBe(503)
  expect(handled).toBe(0)
})

test('node:http: a large response to a client that has gone does not keep its key in progress', async () => {
  const keys = keysOf()
  const [begun, told] = [gate(), gate()]
  const port = await serving((request, response) =>
    keys.node(request, response, () => {
      begun.open()
      request.socket.once('close', () => {
        response.once('close', () => told.open())
        response.write('y'.repeat(40_000))
        response.end()
      })
    }),
  )
  const leaving = new AbortController()
  const asked = ask(port, leaving.signal).catch(() => {})
  await begun.opened
  leaving.abort()
  await asked
  await told.opened
  await expect.poll(async () => (await ask(port)).body).toContain('was larger than')
})

test('Express: an error after a part of the body does not get the length of the error alone', async () => {
  const app = express()
  app.set('env', 'test')
  app.post('/', keysOf().node, (_, response) => {
    response.write('part'.repeat(100))
    throw new Error('in the middle')
  })
  const { status, body, headers } = await ask(await serving(app))
  expect(status).toBe(500)
  expect(headers.get('content-length')).toBe(`${body.length}`)
  expect(body).toContain('</html>')
})

test('cookies are replayed one by one, and headers of middleware before are kept', async () => {
  const cookies = ['a=1; Path=/', 'b=2; Path=/']
  const app = express()
  app.use((_, response, next) => {
    response.set('x-before', 'kept')
    next()
  })
  app.post('/', keysOf().node, (_, response) => void response.setHeader('set-cookie', cookies).end('paid'))

  const quick = fastify()
  quick.addContentTypeParser('*', { parseAs: 'string' }, async (_: unknown, body: unknown) => body)
  quick.addHook('onRequest', async (_, reply) => void reply.header('x-before', 'kept'))
  await quick.register(keysOf().fastify)
  quick.post('/', (_, reply) => reply.header('set-cookie', cookies).send('paid'))
  await quick.listen({ host: '127.0.0.1', port: 0 })

  const hono = new Hono()
  hono.use(async (context, next) => {
    context.res.headers.set('x-before', 'kept')
    await next()
  })
  hono.use(keysOf().hono)
  hono.post('/', (context) => {
    for (const cookie of cookies) context.header('set-cookie', cookie, { append: true })
    return context.text('paid')
  })
  const served = serve({ fetch: hono.fetch, hostname: '127.0.0.1', port: 0 }) as Server

  for (const port of [await serving(app), await portOf(quick.server), await portOf(served)]) {
    const answers = [await ask(port), await ask(port)]
    expect(answers.map(({ headers }) => headers.get('idempotent-replayed'))).toEqual([null, 'true'])
    for (const { headers } of answers) expect(headers.getSetCookie()).toEqual(cookies)
    for (const { headers } of answers) expect(headers.get('x-before')).toBe('kept')
  }
})

test('Fastify: a stream that breaks does not keep its key in progress, and a Response is stored', async () => {
  const app = fastify()
  app.addContentTypeParser('*', { parseAs: 'string' }, async (_: unknown, body: unknown) => body)
  await app.register(keysOf().fastify)
  let handled = 0
  app.post('/', (_, reply) => {
    handled += 1
    if (handled > 1)
      return reply.send(new Response('paid', { status: 202, headers: { 'content-type': 'text/x-paid' } }))
    const broken = new PassThrough()
    broken.write('a part')
    setImmediate(() => broken.destroy(new Error('broken')))
    return reply.send(broken)
  })
  await app.listen({ host: '127.0.0.1', port: 0 })
  const port = await portOf(app.server)
  const failed = await ask(port)
  expect([failed.status, JSON.parse(failed.body).message]).toEqual([500, 'broken'])
  for (let time = 1; time <= 2; time += 1) {
    const { status, body, headers } = await ask(port)
    expect([status, body, headers.get('content-type')]).toEqual([202, 'paid', 'text/x-paid'])
  }
  expect(handled).toBe(2)
})

test('Hono: a request without a key can be read as a stream', async () => {
  const app = new Hono()
  app.use(keysOf().hono)
  app.post('/', async (context) => context.text(await new Response(context.req.raw.body).text()))
  const port = await portOf(serve({ fetch: app.fetch, hostname: '127.0.0.1', port: 0 }) as Server)
  const response = await fetch(`http://127.0.0.1:${port}/`, { method: 'POST', body: 'streamed' })
  expect(await response.text()).toBe('streamed')
})

test.each(['Express', 'Fastify', 'Hono'])(
  '%s: a request that comes to it twice, for the application and for a route, does not wait for itself',
  async (name) => {
    const keys = keysOf()
    let handled = 0
    const servers: Readonly<Record<string, () => Promise<number>>> = {
      Express: () => {
        const app = express()
        app.use(keys.node)
        app.post('/', keys.node, (_, response) => void response.send(`paid ${++handled}`))
        return serving(app)
      },
      Fastify: async () => {
        const app = fastify()
        await app.register(keys.fastify)
        await app.register(keys.fastify)
        app.post('/', async () => `paid ${++handled}`)
        await app.listen({ host: '127.0.0.1', port: 0 })
        return portOf(app.server)
      },
      Hono: () => {
        const app = new Hono()
        app.use(keys.hono)
        app.post('/', keys.hono, (context) => context.text(`paid ${++handled}`))
        return portOf(serve({ fetch: app.fetch, hostname: '127.0.0.1', port: 0 }) as Server)
      },
    }
    const port = await (servers[name] as () => Promise<number>)()
    expect(await ask(port)).toMatchObject({ status: 200, body: 'paid 1' })
    const again = await ask(port)
    expect([again.status, again.body, again.headers.get('idempotent-replayed')]).toEqual([200, 'paid 1', 'true'])
  },
)

test.each<[string, Partial<IdempotencyOptions>, (keys: Idempotency, ...given: Parameters<RequestListener>) => unknown]>(
  [
    ['an error that is kept', { failures: 'keep' }, () => Promise.reject(new Error('"hunter2" refused by 10.0.0.7'))],
    [
      'a record that is too large',
      { maxBody: 45_000, headers: ['x-large'] },
      (_, __, response) => response.setHeader('x-large', 'x'.repeat(7_000)).end(Buffer.alloc(45_000, 255)),
    ],
    [
      'a step that cannot be stored',
      {},
      async (keys, request, response) => {
        await keys
          .attempt(request)
          ?.step('charge', () => 10n)
          .catch(() => {})
        response.writeHead(500).end()
      },
    ],
  ],
)('node:http: a client is not told what only the server is to know (%s)', async (_, options, handle) => {
  const warned = vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
  const keys = idempotency(locksOn(memory()), { scope: () => 'acme', fingerprint: ({ url }) => url, ...options })
  const port = await serving((request, response) =>
    keys.node(request, response, (() => handle(keys, request, response)) as () => unknown),
  )
  await ask(port)
  warned.mockRestore()
  const { status, body } = await ask(port)
  expect([status, JSON.parse(body).detail]).toEqual([
    409,
    'the request with this Idempotency-Key was done before; its response could not be stored',
  ])
})

test('node:http: a body of maxBody bytes is stored, also where it is much longer as JSON', async () => {
  const keys = keysOf()
  const port = await serving((request, response) =>
    keys.node(request, response, () => void response.end('"'.repeat(32_768))),
  )
  const first = await ask(port)
  const retry = await ask(port)
  expect([retry.status, retry.headers.get('idempotent-replayed'), retry.body === first.body]).toEqual([
    200,
    'true',
    true,
  ])
})

test.each([false, 0, ''])('node:http: an end of %j has no body, as without a key, and is stored', async (nothing) => {
  const keys = keysOf()
  let handled = 0
  const handle = (response: ServerResponse): void => {
    handled += 1
    response.statusCode = 201
    response.end(nothing)
  }
  const port = await serving((request, response) => keys.node(request, response, () => handle(response)))
  for (const replayed of [null, 'true']) {
    const { status, body, headers } = await ask(port)
    expect([status, body, headers.get('idempotent-replayed')]).toEqual([201, '', replayed])
  }
  expect(handled).toBe(1)
})

test.each<[string, Error]>([
  ['a lock that was lost', new LeaseLostError('stock', 7n, 'expired')],
  ['another key', new KeyReusedError('inner')],
  [
    'another request',
    new ReplayedFailureError('inner', { id: 'a', number: 1 }, { name: 'Error', message: '', fields: {} }),
  ],
  ['locks that were closed', new ClosedError('memory', 'the locks were closed', 'not-applied')],
])(
  'node:http: what a handler rejects with is a 500, also where it is an error about %s of its own',
  async (_, error) => {
    const warned = vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
    const keys = keysOf()
    const port = await serving((request, response) =>
      keys.node(request, response, (() => Promise.reject(error)) as () => unknown),
    )
    expect((await ask(port)).status).toBe(500)
    expect(warned).toHaveBeenCalledWith(error)
    warned.mockRestore()
  },
)

test('Hono: headers that middleware before has told the context are those of a replay, too', async () => {
  const app = new Hono()
  let asked = 0
  app.use(async (context, next) => {
    context.header('x-request-id', `${++asked}`)
    context.header('content-type', 'text/before')
    await next()
  })
  app.use(keysOf().hono)
  app.post('/', (context) => context.text('paid', 200, { 'set-cookie': 'a=1' }))
  const port = await portOf(serve({ fetch: app.fetch, hostname: '127.0.0.1', port: 0 }) as Server)
  const [first, again] = [await ask(port), await ask(port)]
  expect([first.headers.get('x-request-id'), again.headers.get('x-request-id')]).toEqual(['1', '2'])
  for (const { headers } of [first, again]) expect(headers.get('content-type')).toContain('text/plain')
  for (const { headers } of [first, again]) expect(headers.getSetCookie()).toEqual(['a=1'])
})

describe('what is thrown is an error of the request, whatever it is: nothing is handled that is not guarded', () => {
  const thrown: Readonly<Record<string, unknown>> = {
    undefined: undefined,
    null: null,
    'an empty string': '',
    'what Express takes for a way on': 'route',
    'an object without a prototype': Object.create(null),
  }
  type Handle = (response: ServerResponse) => unknown
  const servers: Readonly<Record<string, (keys: Idempotency, handle: Handle) => Promise<number>>> = {
    'node:http, next takes nothing': (keys, handle) =>
      serving((request, response) => keys.node(request, response, () => handle(response))),
    'node:http, next takes an error': (keys, handle) =>
      serving((request, response) =>
        keys.node(request, response, (error) =>
          error === undefined || error === null ? handle(response) : void response.writeHead(500).end(),
        ),
      ),
    Express: (keys, handle) => {
      const app = express()
      app.use(keys.node, (_, response) => void handle(response))
      app.use(((_, __, response, ___) => void response.status(500).end()) as express.ErrorRequestHandler)
      return serving(app)
    },
  }
  const cases = Object.keys(servers).flatMap((name) => Object.keys(thrown).map((what) => [name, what] as const))
  test.each(cases)('%s: %s', async (name, what) => {
    const warned = vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
    const fail = (): never => {
      throw thrown[what]
    }
    let handled = 0
    // What a handler of Express throws, Express hears first.
    for (const by of name === 'Express' ? ['scope'] : ['scope', 'handler']) {
      const keys = keysOf(by === 'scope' ? { scope: fail } : {})
      const port = await (servers[name] as (typeof servers)[string])(keys, async (response) => {
        handled += 1
        if (handled === 1) fail()
        response.end('paid')
      })
      handled = by === 'scope' ? 1 : 0
      expect((await ask(port)).status).toBe(500)
      expect(handled, by).toBe(1)
    }
    warned.mockRestore()
  })
})
