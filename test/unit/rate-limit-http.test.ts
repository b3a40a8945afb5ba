/** Rate limits in the frameworks themselves: real servers, real requests. */
import { once } from 'node:events'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { type HttpBindings, serve } from '@hono/node-server'
import express from 'express'
import fastify, { type FastifyRequest } from 'fastify'
import { type Context, Hono } from 'hono'
import { afterEach, describe, expect, test } from 'vitest'
import { EngineError } from '../../src/core/errors.ts'
import { memory } from '../../src/engines/memory/index.ts'
import { limited } from '../../src/recipes/http/index.ts'
import { type RateLimit, rateLimit } from '../../src/recipes/rate-limit/index.ts'
import { closeAll, gate, locksOn, turns } from './once-world.ts'
import { down } from './rate-limit-world.ts'

const closing: (() => Promise<unknown>)[] = []
afterEach(async () => {
  for (const close of closing.splice(0)) await close()
  await closeAll()
})

type Start = (api: RateLimit) => Promise<string>

async function listening(server: Server): Promise<string> {
  if (!server.listening) await once(server.listen(0, '127.0.0.1'), 'listening')
  closing.push(async () => {
    server.closeAllConnections()
    const closed = once(server, 'close')
    server.close()
    await closed
  })
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/`
}

const ofNode = (api: RateLimit): ReturnType<typeof limited<IncomingMessage>> =>
  limited(api, {
    key: (request) => request.headers['x-user'] as string | undefined,
    cost: (request) => Number(request.headers['x-cost'] ?? 1),
  })

const FRAMEWORKS: Readonly<Record<string, Start>> = {
  'node:http': (api) => {
    const middleware = ofNode(api)
    const handler = createServer((request, response) =>
      middleware.node(request, response, () => void response.end('done')),
    )
    return listening(handler)
  },
  Express: (api) => {
    const app = express()
    app.use(ofNode(api).node)
    app.get('/', (_, response) => void response.send('done'))
    // Without it, Express prints the error.
    app.use((_error: unknown, _request: unknown, response: express.Response, _next: unknown) => {
      response.status(500).end()
    })
    return listening(createServer(app))
  },
  Fastify: async (api) => {
    const app = fastify()
    const middleware = limited<{ readonly headers: Readonly<Record<string, unknown>> }>(api, {
      key: ({ headers }) => headers['x-user'] as string | undefined,
      cost: ({ headers }) => Number(headers['x-cost'] ?? 1),
    })
    app.addHook('onRequest', middleware.fastify)
    app.get('/', () => 'done')
    await app.listen({ port: 0, host: '127.0.0.1' })
    closing.push(() => app.close())
    return `http://127.0.0.1:${(app.server.address() as AddressInfo).port}/`
  },
  Hono: (api) => {
    const app = new Hono()
    const middleware = limited<Context>(api, {
      key: (context) => context.req.header('x-user'),
      cost: (context) => Number(context.req.header('x-cost') ?? 1),
    })
    app.use(middleware.hono)
    app.get('/', (context) => context.text('done'))
    app.onError((_, context) => context.text('', 500))
    return listening(serve({ fetch: app.fetch, port: 0, hostname: '127.0.0.1' }) as Server)
  },
}

describe.each(Object.entries(FRAMEWORKS))('%s', (_, start) => {
  test('answers 429 with when to come back, and says what is left', async () => {
    const url = await start(rateLimit(locksOn(memory()), { name: 'api', limit: 3, per: '1h' }))
    const ask = (fields: Record<string, string>): Promise<Response> => fetch(url, { headers: fields })
    const first = await ask({ 'x-user': 'ann', 'x-cost': '2' })
    expect([first.status, await first.text()]).toEqual([200, 'done'])
    expect(first.headers.get('ratelimit-policy')).toBe('"api";q=3;w=3600')
    expect(first.headers.get('ratelimit')).toMatch(/^"api";r=1;t=\d+$/)
    const refused = await ask({ 'x-user': 'ann', 'x-cost': '2' })
    expect(refused.status).toBe(429)
    expect(refused.headers.get('retry-after')).toBe('1200')
    expect(refused.headers.get('content-type')).toContain('application/problem+json')
    expect(await refused.json()).toMatchObject({
      type: 'urn:holdfast:rate-limited',
      status: 429,
      retryAfterMs: expect.any(Number),
    })
    expect((await ask({ 'x-user': 'bob' })).status).toBe(200)
    const free = await ask({})
    expect([free.status, free.headers.get('ratelimit')]).toEqual([200, null])
  })

  test('handles nothing where the limit could not be asked, and says whether to come again', async () => {
    const locks = locksOn(memory())
    const api = rateLimit(locks, { limit: 3, per: '1h' })
    const broken = (error: Error): RateLimit =>
      ({ ...api, name: 'broken', take: () => Promise.reject(error) }) as RateLimit
    const ask = async (asked: RateLimit): Promise<readonly unknown[]> => {
      const answer = await fetch(await start(asked), { headers: { 'x-user': 'ann' } })
      expect(await answer.text()).not.toContain('done')
      return [answer.status, answer.headers.get('retry-after')]
    }
    expect(await ask(broken(down()))).toEqual([503, '1'])
    await locks.drain()
    expect(await ask(api), 'a deployment').toEqual([503, '1'])
    const wrong = new EngineError('redis', 'WRONGPASS', { outcome: 'not-applied', transient: false })
    expect(await ask(broken(wrong))).toEqual([500, null])
  })
})

describe('a client that has left before its address was asked for', () => {
  const perAddress = <Request>(key: (request: Request) => string | undefined) => {
    const asked = gate()
    const whose = (request: Request): string | undefined => {
      asked.open()
      return key(request)
    }
    return { asked, api: limited<Request>(rateLimit(locksOn(memory()), { limit: 3, per: '1h' }), { key: whose }) }
  }

  /** Lets a request in, goes, and answers whether it was handled. */
  async function isHandled(url: string, begun: Promise<unknown>, asked: Promise<unknown>, handled: () => boolean) {
    const leaving = new AbortController()
    const answer = fetch(url, { signal: leaving.signal }).catch(() => {})
    await begun
    leaving.abort()
    await Promise.all([answer, asked])
    await turns()
    return handled()
  }

  test('is not handled unlimited by node:http and Express', async () => {
    const begun = gate()
    let handled = false
    const { api, asked } = perAddress<IncomingMessage>(({ socket }) => socket.remoteAddress)
    const app = express()
    app.use((request, _, next) => {
      request.socket.once('close', () => next())
      begun.open()
    })
    app.use(api.node)
    app.get('/', (_, response) => {
      handled = true
      response.end()
    })
    expect(await isHandled(await listening(createServer(app)), begun.opened, asked.opened, () => handled)).toBe(false)
  })

  test('is handled if it leaves while it is looked up that it is not limited', async () => {
    const [begun, handled] = [gate(), gate()]
    const api = limited<IncomingMessage>(rateLimit(locksOn(memory()), { limit: 3, per: '1h' }), {
      key: async ({ socket }) => {
        begun.open()
        await once(socket, 'close')
        return undefined
      },
    })
    const url = await listening(createServer((request, response) => api.node(request, response, () => handled.open())))
    const leaving = new AbortController()
    const answer = fetch(url, { signal: leaving.signal }).catch(() => {})
    await begun.opened
    leaving.abort()
    await Promise.all([answer, handled.opened])
  })

  test('is not handled unlimited by Fastify', async () => {
    const begun = gate()
    let handled = false
    const { api, asked } = perAddress<FastifyRequest>(({ socket }) => socket.remoteAddress)
    const app = fastify()
    app.addHook('onRequest', async (request) => {
      begun.open()
      await once(request.socket, 'close')
    })
    app.addHook('onRequest', api.fastify)
    app.get('/', async () => {
      handled = true
      return 'done'
    })
    await app.listen({ port: 0, host: '127.0.0.1' })
    closing.push(() => app.close())
    const url = `http://127.0.0.1:${(app.server.address() as AddressInfo).port}/`
    expect(await isHandled(url, begun.opened, asked.opened, () => handled)).toBe(false)
  })

  test('is not handled unlimited by Hono', async () => {
    const begun = gate()
    let handled = false
    const { api, asked } = perAddress<Context<{ Bindings: HttpBindings }>>(
      ({ env }) => env.incoming.socket.remoteAddress,
    )
    const app = new Hono<{ Bindings: HttpBindings }>()
    app.use(async ({ env }, next) => {
      begun.open()
      await once(env.incoming.socket, 'close')
      await next()
    })
    app.use(api.hono)
    app.get('/', (context) => {
      handled = true
      return context.text('done')
    })
    const url = await listening(serve({ fetch: app.fetch, port: 0, hostname: '127.0.0.1' }) as Server)
    expect(await isHandled(url, begun.opened, asked.opened, () => handled)).toBe(false)
  })
})

test('Fastify: a refusal is told as it is, whatever serializer the reply has', async () => {
  const app = fastify()
  app.addHook('onRequest', async (_, reply) => void reply.serializer(JSON.stringify))
  app.addHook('onRequest', ofNode(rateLimit(locksOn(memory()), { limit: 1, per: '1h' })).fastify as never)
  app.get('/', () => 'done')
  await app.listen({ port: 0, host: '127.0.0.1' })
  closing.push(() => app.close())
  const ask = (): Promise<Response> =>
    fetch(`http://127.0.0.1:${(app.server.address() as AddressInfo).port}/`, { headers: { 'x-user': 'ann' } })
  await (await ask()).text()
  expect(await (await ask()).json()).toMatchObject({ type: 'urn:holdfast:rate-limited' })
})

test('a key that is no function is refused', () => {
  const api = rateLimit(locksOn(memory()), { limit: 3, per: '1h' })
  expect(() => limited(api, { key: 'user' as never })).toThrow('a function of the request')
  expect(() => limited(api, { key: () => 'a', waits: 1 } as never)).toThrow("did you mean 'wait'")
})

test.each(['node:http', 'Express'])(
  '%s: a response that was sent while the limit was asked ends nothing else, and what is refused is not handled',
  async (name) => {
    const api = rateLimit(locksOn(memory()), { name: 'api', limit: 1, per: '1h' })
    let response: ServerResponse | undefined
    let handled = 0
    const middleware = limited(api, {
      key: () => {
        response?.writeHead(503).end('late')
        return 'ann'
      },
    })
    const handle = (): void => {
      handled += 1
    }
    const app = express()
    app.use((_, sending, next) => {
      response = sending
      next()
    }, middleware.node)
    app.use(handle)
    const plain = createServer((request, sending) => {
      response = sending
      middleware.node(request, sending, handle)
    })
    const url = await listening(name === 'Express' ? createServer(app) : plain)
    for (let time = 1; time <= 3; time += 1) expect((await fetch(url)).status).toBe(503)
    expect(await api.take('ann')).toMatchObject({ allowed: false })
    expect(handled).toBe(1)
  },
)

test.each(['node:http', 'Express'])('%s: a key that rejects with nothing lets nothing pass', async (name) => {
  const api = rateLimit(locksOn(memory()), { name: 'api', limit: 1, per: '1h' })
  let handled = 0
  const handle = (response: ServerResponse): unknown => {
    handled += 1
    return response.end('done')
  }
  const { node } = limited(api, { key: () => Promise.reject() })
  const app = express().use(node, (_, response) => void handle(response))
  app.use(((_, __, response, ___) => void response.status(500).end()) as express.ErrorRequestHandler)
  const plain = createServer((request, response) =>
    node(request, response, (error) => void (error === undefined ? handle(response) : response.writeHead(500).end())),
  )
  const url = await listening(name === 'Express' ? createServer(app) : plain)
  expect([(await fetch(url)).status, handled]).toEqual([500, 0])
})

test('Hono: what is left is told in a Response that the handler has made itself', async () => {
  const api = rateLimit(locksOn(memory()), { name: 'api', limit: 3, per: '1h' })
  const app = new Hono()
  app.use(limited<Context>(api, { key: () => 'ann' }).hono)
  app.get('/', () => new Response('done'))
  const url = await listening(serve({ fetch: app.fetch, port: 0, hostname: '127.0.0.1' }) as Server)
  const answer = await fetch(url)
  expect([await answer.text(), answer.headers.get('ratelimit-policy')]).toEqual(['done', '"api";q=3;w=3600'])
})

test('Hono: of two limits, a response tells the headers of the inner one, which may have refused it', async () => {
  const app = new Hono()
  for (const [name, limit] of Object.entries({ api: 100, login: 1 }))
    app.use(limited<Context>(rateLimit(locksOn(memory()), { name, limit, per: '1h' }), { key: () => 'ann' }).hono)
  app.get('/', (context) => context.text('done'))
  const url = await listening(serve({ fetch: app.fetch, port: 0, hostname: '127.0.0.1' }) as Server)
  for (const status of [200, 429]) {
    const answer = await fetch(url)
    expect([answer.status, answer.headers.get('ratelimit')]).toEqual([
      status,
      expect.stringMatching(/^"login";r=0;t=\d+$/),
    ])
    expect(answer.headers.get('ratelimit-policy')).toBe('"login";q=1;w=3600')
  }
})
