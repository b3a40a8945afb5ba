/** Responses that are sent before a handler runs, or are changed after it has ended them. */
import type { Server, ServerResponse } from 'node:http'
import { type HttpBindings, serve } from '@hono/node-server'
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response'
import express from 'express'
import fastify, { type FastifyReply } from 'fastify'
import { Hono } from 'hono'
import { expect, test, vi } from 'vitest'
import { memory } from '../../src/engines/memory/index.ts'
import { type Idempotency, idempotency } from '../../src/recipes/http/index.ts'
import { ask, keysOf, portOf, serving } from './idempotency-world.ts'
import { gate, locksOn, turns } from './once-world.ts'

/** Servers whose handler answers `paid`, after it has counted itself; `sending` hears of each response before it. */
const COUNTING: Readonly<
  Record<string, (keys: Idempotency, sending: (raw: ServerResponse) => void, paid: () => string) => Promise<number>>
> = {
  'node:http': (keys, sending, paid) =>
    serving((request, response) => {
      sending(response)
      keys.node(request, response, () => void response.end(paid()))
    }),
  Express: (keys, sending, paid) => {
    const app = express()
    app.use((_, response, next) => {
      sending(response)
      next()
    })
    app.post('/', keys.node, (_, response) => void response.send(paid()))
    return serving(app)
  },
  Fastify: async (keys, sending, paid) => {
    const app = fastify()
    app.addContentTypeParser('*', { parseAs: 'string' }, async (_: unknown, body: unknown) => body)
    app.addHook('preHandler', async (_, reply) => sending(reply.raw))
    await app.register(keys.fastify)
    app.post('/', async () => paid())
    await app.listen({ host: '127.0.0.1', port: 0 })
    return portOf(app.server)
  },
}

test.each(Object.keys(COUNTING))(
  '%s: a response that was sent while its key was looked up ends nothing else, and its key is free',
  async (name) => {
    let response: ServerResponse | undefined
    let [isLate, handled] = [true, 0]
    const keys = idempotency(locksOn(memory()), {
      failures: 'keep',
      fingerprint: ({ url }) => url,
      wait: '50ms',
      scope: () => {
        if (isLate) response?.writeHead(503).end('late')
        return ''
      },
    })
    const start = COUNTING[name] as (typeof COUNTING)[string]
    const sending = (raw: ServerResponse): void => {
      response = raw
    }
    const port = await start(keys, sending, () => `paid ${++handled}`)
    expect(await ask(port)).toMatchObject({ status: 503, body: 'late' })
    expect(handled).toBe(0)
    isLate = false
    await expect.poll(() => ask(port)).toMatchObject({ status: 200, body: 'paid 1' })
    isLate = true
    expect(await ask(port), 'a replay').toMatchObject({ status: 503, body: 'late' })
    isLate = false
    expect(await ask(port)).toMatchObject({ status: 200, body: 'paid 1' })
  },
)

test('Hono: a request whose client was answered while its key was looked up is not handled, and its key is free', async () => {
  const [begun, first, told] = [gate(), gate(), gate()]
  const keys = keysOf({ wait: '10s' })
  let handled = 0
  const app = new Hono()
  app.post(
    '/',
    async (context, next) => {
      if (context.req.header('x-late') === undefined) return next()
      const asking = next().finally(() => told.open())
      await Promise.race([asking, begun.opened])
      return context.text('late', 503)
    },
    keys.hono,
    async (context) => {
      handled += 1
      if (handled === 1) await first.opened
      return context.text(`paid ${handled}`, handled === 1 ? 503 : 200)
    },
  )
  app.onError(({ message }) => new Response(message, { status: 500 }))
  const port = await portOf(serve({ fetch: app.fetch, hostname: '127.0.0.1', port: 0 }) as Server)
  const working = ask(port)
  await expect.poll(() => handled).toBe(1)
  begun.open()
  const headers = { 'idempotency-key': 'k', 'content-type': 'text/plain', 'x-late': 'yes' }
  const late = await fetch(`http://127.0.0.1:${port}/`, { method: 'POST', body: 'ten', headers })
  expect([late.status, await late.text()]).toEqual([503, 'late'])
  first.open()
  expect((await working).status).toBe(503)
  await told.opened
  expect(handled).toBe(1)
  expect(await ask(port)).toMatchObject({ status: 200, body: 'paid 2' })
})

test('Express: a response whose head was sent before is an error of the request, and its key is free', async () => {
  const app = express()
  app.set('env', 'test')
  let isEarly = true
  app.use((_, response, next) => {
    if (isEarly) response.flushHeaders()
    next()
  })
  app.post('/', keysOf().node, (_, response) => void response.end('paid'))
  const port = await serving(app)
  await expect(ask(port)).rejects.toThrow()
  isEarly = false
  await expect.poll(() => ask(port)).toMatchObject({ status: 200, body: 'paid' })
})

test('node:http: what an async handler rejects with is a 500, with and without a key, and the retry is handled', async () => {
  const warned = vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
  const keys = keysOf()
  let fails = true
  const port = await serving((request, response) => {
    const handle = async (): Promise<void> => {
      await request.toArray()
      if (fails) throw new Error('broken')
      response.end('paid')
    }
    keys.node(request, response, handle as () => unknown)
  })
  expect((await ask(port)).status).toBe(500)
  expect((await fetch(`http://127.0.0.1:${port}/`, { method: 'POST', body: 'ten' })).status).toBe(500)
  expect(warned).toHaveBeenCalledTimes(2)
  warned.mockRestore()
  fails = false
  expect(await ask(port)).toMatchObject({ status: 200, body: 'paid' })
})

test('node:http: a handler that breaks in a response that was too large to be held back is not called again', async () => {
  const warned = vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
  const keys = keysOf()
  let handled = 0
  const port = await serving((request, response) => {
    const handle = async (): Promise<void> => {
      handled += 1
      response.write('y'.repeat(40_000))
      await request.toArray()
      throw new Error('broken')
    }
    keys.node(request, response, handle as () => unknown)
  })
  await expect(ask(port), 'it does not look whole').rejects.toThrow()
  await expect.poll(async () => (await ask(port)).body).toContain('was larger than')
  expect(handled).toBe(1)
  warned.mockRestore()
})

test('a client is told what is stored, whatever a handler sets after it has ended its response', async () => {
  const [ofNode, ofFastify] = [keysOf(), keysOf()]
  const node = await serving((request, response) =>
    ofNode.node(request, response, () => {
      response.writeHead(201, { 'content-type': 'text/made', 'x-made': 'yes' }).end('paid')
      response.statusCode = 500
      response.setHeader('content-type', 'text/late')
      response.setHeader('x-late', 'yes')
      response.removeHeader('x-made')
      response.write('more')
    }),
  )
  const app = fastify()
  app.addContentTypeParser('*', { parseAs: 'string' }, async (_: unknown, body: unknown) => body)
  await app.register(ofFastify.fastify)
  app.post('/', (_, reply) => {
    void reply.code(201).headers({ 'content-type': 'text/made', 'x-made': 'yes' }).send('paid')
    // The hooks have run until the first of them waits.
    setImmediate(
      () => void reply.code(500).headers({ 'content-type': 'text/late', 'x-late': 'yes' }).removeHeader('x-made'),
    )
  })
  await app.listen({ host: '127.0.0.1', port: 0 })
  for (const port of [node, await portOf(app.server)]) {
    const { status, body, headers } = await ask(port)
    expect([status, body, headers.get('content-type')]).toEqual([201, 'paid', 'text/made'])
    expect([headers.get('x-made'), headers.get('x-late')]).toEqual(['yes', null])
    const again = await ask(port)
    expect([again.status, again.body, again.headers.get('content-type')]).toEqual([201, 'paid', 'text/made'])
  }
})

const AFTERWARDS: Readonly<Record<string, (reply: FastifyReply) => unknown>> = {
  'returns nothing': () => undefined,
  'returns something else': () => 'unpaid',
  'sends something else': (reply) => void reply.code(402).send('unpaid'),
  throws: () => {
    throw new Error('after all')
  },
}

const cases: readonly (readonly [what: string, hooked: boolean])[] = [
  ...Object.keys(AFTERWARDS).map((what) => [what, false] as const),
  ['returns nothing', true],
  ['returns something else', true],
]
test.each(cases)(
  'Fastify: what a handler has sent first is told and stored, also if it %s before that is stored (hooks wait: %s)',
  async (what, hooked) => {
    const app = fastify()
    app.addContentTypeParser('*', { parseAs: 'string' }, async (_: unknown, body: unknown) => body)
    if (hooked) app.addHook('onSend', () => turns())
    await app.register(keysOf().fastify)
    app.post('/', async (_, reply) => {
      void reply.code(201).send('paid')
      return AFTERWARDS[what]?.(reply)
    })
    await app.listen({ host: '127.0.0.1', port: 0 })
    const port = await portOf(app.server)
    for (let time = 1; time <= 2; time += 1) expect(await ask(port)).toMatchObject({ status: 201, body: 'paid' })
  },
)

test('a 503 that a time-out sends is the response: a retry is handled beside a handler, and not beside its step', async () => {
  const keys = keysOf()
  const working = gate()
  const stepping = gate()
  let sendLate = (): void => {}
  const attempts: string[] = []
  const app = express()
  app.post('/', keys.node, async (request, response) => {
    const { id } = keys.attempt(request) as { id: string }
    attempts.push(id)
    if (attempts.length > 2) {
      response.send('paid')
      return
    }
    sendLate = () => void response.status(503).send('late')
    if (attempts.length === 1) await working.opened
    else await keys.attempt(request)?.step('charge', () => stepping.opened)
  })
  const port = await serving(app)
  const first = ask(port)
  await expect.poll(() => attempts).toHaveLength(1)
  sendLate()
  expect(await first).toMatchObject({ status: 503, body: 'late' })
  // Beside the first handler, which still works.
  const second = ask(port)
  await expect.poll(() => attempts).toHaveLength(2)
  sendLate()
  expect(await ask(port), 'while the step runs').toMatchObject({ status: 409 })
  expect(attempts).toHaveLength(2)
  stepping.open()
  expect(await second).toMatchObject({ status: 503, body: 'late' })
  expect(await ask(port)).toMatchObject({ status: 200, body: 'paid' })
  expect(new Set(attempts).size, 'one id for the provider').toBe(1)
  working.open()
})

test('Hono: a response that its handler has sent past it is not replayed, and handled again after a 500', async () => {
  let handled = 0
  const app = new Hono<{ Bindings: HttpBindings }>()
  app.post('/', keysOf().hono, ({ env: { outgoing } }) => {
    handled += 1
    outgoing.writeHead(handled === 1 ? 500 : 402).end(`no ${handled}`)
    return RESPONSE_ALREADY_SENT
  })
  const port = await portOf(serve({ fetch: app.fetch, hostname: '127.0.0.1', port: 0 }) as Server)
  expect(await ask(port)).toMatchObject({ status: 500, body: 'no 1' })
  expect(await ask(port)).toMatchObject({ status: 402, body: 'no 2' })
  expect(await ask(port)).toMatchObject({ status: 409, body: expect.stringContaining('urn:holdfast:not-kept') })
})
