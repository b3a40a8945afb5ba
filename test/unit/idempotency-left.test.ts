/** Clients that leave while a response is on its way, as it comes or through hooks: its handler says how that ends. */
import type { IncomingMessage, ServerResponse } from 'node:http'
import { createServer as createHttp2Server } from 'node:http2'
import { connect } from 'node:net'
import { PassThrough, Readable, Writable } from 'node:stream'
import { finished, pipeline } from 'node:stream/promises'
import fastify from 'fastify'
import { describe, expect, test, vi } from 'vitest'
import type { Idempotency } from '../../src/recipes/http/index.ts'
import { ask, type Client, goWhen, keysOf, overHttp1, overHttp2, portOf, serving } from './idempotency-world.ts'
import { gate, turns } from './once-world.ts'

/** What it gets is what `keys.attempt()` takes, and the response, of which a part is on its way. */
type Handler = (request: object, response: ServerResponse, socket: IncomingMessage['socket']) => Promise<unknown>
type Start = (keys: Idempotency, handler: Handler) => Promise<Client>

const fastifyOf = (how: 'hijack' | 'flush', http2 = false): Start => {
  return async (keys, handler) => {
    const app = fastify(http2 ? ({ http2 } as object) : {})
    app.addContentTypeParser('*', { parseAs: 'string' }, async (_: unknown, body: unknown) => body)
    await app.register(keys.fastify)
    app.post('/', async (request, reply) => {
      if (how === 'hijack') reply.hijack()
      else reply.raw.flushHeaders()
      reply.raw.write('a part')
      await handler(request, reply.raw, request.raw.socket)
    })
    await app.listen({ host: '127.0.0.1', port: 0 })
    return http2 ? overHttp2(await portOf(app.server)) : overHttp1(await portOf(app.server))
  }
}

const nodeOf = (keys: Idempotency, handler: Handler) => (request: IncomingMessage, response: ServerResponse) => {
  const handle = (): Promise<unknown> => {
    response.write('y'.repeat(40_000))
    return handler(request, response, request.socket)
  }
  keys.node(request, response, handle as () => unknown)
}

const SERVERS: Readonly<Record<string, Start>> = {
  'Fastify, hijacked': fastifyOf('hijack'),
  'Fastify, flushed': fastifyOf('flush'),
  'Fastify, hijacked, HTTP/2': fastifyOf('hijack', true),
  'node:http, too large': async (keys, handler) => overHttp1(await serving(nodeOf(keys, handler))),
  'node:http2, too large': async (keys, handler) =>
    overHttp2(await portOf(createHttp2Server(nodeOf(keys, handler) as never).listen(0, '127.0.0.1') as never)),
}

/** Each gets the response that its client has left, or is about to leave, and what tells that it has. */
type Way = (response: ServerResponse, gone: Promise<void>) => Promise<unknown>

const stuck = (): Readable => {
  const source = new Readable({ read: () => {} })
  source.push('more')
  return source
}
const store = (): Writable => new Writable({ write: (_, __, written) => written() })

const TOLD_OF_ITS_CLIENT: Readonly<Record<string, Way>> = {
  'pipeline() of a stream': (response) => pipeline(stuck(), response),
  'pipeline() of three streams': (response) => pipeline(stuck(), new PassThrough(), response),
  'finished()': (response) => finished(response),
  'the callback of a write': async (response, gone) => {
    await gone
    await new Promise<void>((resolve, reject) => {
      response.write('more', (error) => (error === undefined || error === null ? resolve() : reject(error)))
    })
  },
  'pipeline() of what it generates': (response, gone) =>
    pipeline(async function* () {
      yield 'more'
      await gone
      yield 'and more'
    }, response),
  'pipeline() that it begins afterwards': async (response, gone) => {
    await gone
    await pipeline(Readable.from(['more']), response)
  },
}

const CODE_OF_CLOSED = { code: 'ERR_STREAM_PREMATURE_CLOSE' }
/** Where its client has left with HTTP/2, Node itself never ends these. */
const NEVER_END = ['pipeline() of what it generates', 'pipeline() that it begins afterwards', 'what it generates']

const SOMETHING_ELSE: Readonly<Record<string, Way>> = {
  'a store that closes with it': async (response) => {
    const storing = store()
    response.once('close', () => storing.destroy())
    await pipeline(stuck(), storing)
  },
  'a store that closes later': async (_, gone) => {
    const storing = store()
    const stored = pipeline(stuck(), storing)
    void gone.then(() => setImmediate(() => storing.destroy()))
    await stored
  },
  'its source, later': async (response, gone) => {
    const source = stuck()
    source.pipe(response)
    void gone.then(() => setImmediate(() => source.destroy(Object.assign(new Error('broken'), CODE_OF_CLOSED))))
    await finished(source)
  },
  'what it generates': (response, gone) =>
    pipeline(async function* () {
      yield 'more'
      await gone
      throw Object.assign(new Error('broken'), CODE_OF_CLOSED)
    }, response),
}

describe.each(Object.keys(SERVERS))('%s: a client leaves in the middle, and', (name) => {
  const start = SERVERS[name] as Start
  const namesOf = (ways: Readonly<Record<string, Way>>): readonly string[] =>
    Object.keys(ways).filter((way) => !(/http.?2/i.test(name) && NEVER_END.includes(way)))
  const expectNotKept = (client: Client): Promise<void> =>
    expect.poll(async () => (await client.ask()).body).toContain('urn:holdfast:not-kept')

  test.each(['ends it', 'returns', 'has destroyed it at its close'])(
    'the handler goes on with its attempt, and %s: it was done',
    async (how) => {
      const [begun, gone, looked] = [gate(), gate(), gate()]
      const keys = keysOf()
      const done: unknown[] = []
      const client = await start(keys, async (request, response, socket) => {
        if (how.includes('destroyed')) response.once('close', () => response.destroy())
        socket.once('close', () => gone.open())
        begun.open()
        await gone.opened
        await looked.opened
        const attempt = keys.attempt(request)
        await attempt?.step('charge', () => done.push('charged'))
        done.push(attempt?.signal.aborted)
        if (how === 'ends it') response.end()
      })
      await client.goWhen(begun.opened)
      await gone.opened
      expect((await client.ask()).body, 'while it works').toContain('urn:holdfast:in-progress')
      looked.open()
      await expectNotKept(client)
      expect(done).toEqual(['charged', false])
    },
  )

  test('the handler fails: the retry is handled', async () => {
    vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
    const [begun, gone] = [gate(), gate()]
    let handled = 0
    const client = await start(keysOf(), async (_, response, socket) => {
      handled += 1
      if (handled > 1) return response.end()
      socket.once('close', () => gone.open())
      begun.open()
      await gone.opened
      await new Promise(setImmediate)
      throw new Error('no charge')
    })
    await client.goWhen(begun.opened)
    await gone.opened
    await expect.poll(async () => (await client.ask().catch(() => undefined))?.status).toBe(200)
    expect(handled).toBe(2)
    vi.restoreAllMocks()
  })

  test.each(namesOf(TOLD_OF_ITS_CLIENT))('the handler is told of that by %s: it was done', async (way) => {
    vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
    const [begun, gone] = [gate(), gate()]
    let handled = 0
    const client = await start(keysOf(), async (_, response, socket) => {
      handled += 1
      socket.once('close', () => gone.open())
      const told = TOLD_OF_ITS_CLIENT[way]?.(response, gone.opened)
      begun.open()
      await told
    })
    await client.goWhen(begun.opened)
    await expectNotKept(client)
    expect(handled).toBe(1)
    vi.restoreAllMocks()
  })

  test.each(namesOf(SOMETHING_ELSE))(
    'the handler fails with something else that breaks, %s: the retry is handled',
    async (way) => {
      vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
      const [begun, gone] = [gate(), gate()]
      let handled = 0
      const client = await start(keysOf(), async (_, response, socket) => {
        handled += 1
        if (handled > 1) return response.end('paid')
        socket.once('close', () => gone.open())
        const failed = SOMETHING_ELSE[way]?.(response, gone.opened)
        begun.open()
        return failed
      })
      await client.goWhen(begun.opened)
      await expect.poll(async () => (await client.ask().catch(() => undefined))?.status).toBe(200)
      expect(handled).toBe(2)
      vi.restoreAllMocks()
    },
  )
})

test('Fastify: an async handler sends its reply to a client that has gone, and a hook waits: that is stored', async () => {
  const [begun, gone] = [gate(), gate()]
  let handled = 0
  const app = fastify()
  app.addContentTypeParser('*', { parseAs: 'string' }, async (_: unknown, body: unknown) => body)
  // Longer where there is something to send.
  app.addHook('onSend', async (_, __, payload) => {
    for (let turn = 0; turn < (payload === undefined ? 1 : 20); turn += 1) await new Promise(setImmediate)
  })
  await app.register(keysOf().fastify)
  app.post('/', async (request, reply) => {
    handled += 1
    request.socket.once('close', () => gone.open())
    begun.open()
    await gone.opened
    void reply.code(202).send('paid')
  })
  await app.listen({ host: '127.0.0.1', port: 0 })
  const port = await portOf(app.server)
  await goWhen(begun.opened, port)
  await expect.poll(() => ask(port)).toMatchObject({ status: 202, body: 'paid' })
  expect(handled).toBe(1)
})

test('a response behind one that is not ended is stored when its client has gone', async () => {
  const keys = keysOf()
  const [begun, gone] = [gate(), gate()]
  let handled = 0
  const handle = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    handled += 1
    request.socket.once('close', () => gone.open())
    begun.open()
    await gone.opened
    await turns()
    response.end('paid')
  }
  const port = await serving((request, response) => {
    if (request.method === 'POST') keys.node(request, response, (() => handle(request, response)) as () => unknown)
  })
  const client = connect(port, '127.0.0.1')
  client.write('GET / HTTP/1.1\r\nhost: a\r\n\r\n')
  client.write('POST / HTTP/1.1\r\nhost: a\r\nidempotency-key: k\r\ncontent-length: 0\r\n\r\n')
  await begun.opened
  client.destroy()
  await expect.poll(() => ask(port)).toMatchObject({ status: 200, body: 'paid' })
  expect(handled).toBe(1)
})
