/** Clients that leave while a response is on its way, as it comes or through hooks: its handler says how that ends. */
import type { IncomingMessage, ServerResponse } from 'node:http'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import fastify from 'fastify'
import { describe, expect, test, vi } from 'vitest'
import type { Idempotency } from '../../src/recipes/http/index.ts'
import { ask, goWhen, keysOf, portOf, serving } from './idempotency-world.ts'
import { gate } from './once-world.ts'

/** What it gets is what `keys.attempt()` takes, and the response, of which a part is on its way. */
type Handler = (request: object, response: ServerResponse, socket: IncomingMessage['socket']) => Promise<unknown>

const ofFastify = async (keys: Idempotency, handler: Handler, how: 'hijack' | 'flush'): Promise<number> => {
  const app = fastify()
  app.addContentTypeParser('*', { parseAs: 'string' }, async (_: unknown, body: unknown) => body)
  await app.register(keys.fastify)
  app.post('/', async (request, reply) => {
    if (how === 'hijack') reply.hijack()
    else reply.raw.flushHeaders()
    reply.raw.write('a part')
    await handler(request, reply.raw, request.raw.socket)
  })
  await app.listen({ host: '127.0.0.1', port: 0 })
  return portOf(app.server)
}

const SERVERS: Readonly<Record<string, (keys: Idempotency, handler: Handler) => Promise<number>>> = {
  'Fastify, hijacked': (keys, handler) => ofFastify(keys, handler, 'hijack'),
  'Fastify, flushed': (keys, handler) => ofFastify(keys, handler, 'flush'),
  'node:http, too large': (keys, handler) =>
    serving((request, response) => {
      const handle = (): Promise<unknown> => {
        response.write('y'.repeat(40_000))
        return handler(request, response, request.socket)
      }
      keys.node(request, response, handle as () => unknown)
    }),
}

describe.each(Object.keys(SERVERS))('%s: a client leaves in the middle, and', (name) => {
  const start = SERVERS[name] as (typeof SERVERS)[string]
  const expectNotKept = (port: number): Promise<void> =>
    expect.poll(async () => (await ask(port)).body).toContain('urn:holdfast:not-kept')

  test.each(['ends it', 'returns'])('the handler goes on with its attempt, and %s: it was done', async (how) => {
    const [begun, gone, looked] = [gate(), gate(), gate()]
    const keys = keysOf()
    const done: unknown[] = []
    const port = await start(keys, async (request, response, socket) => {
      socket.once('close', () => gone.open())
      begun.open()
      await gone.opened
      await looked.opened
      const attempt = keys.attempt(request)
      await attempt?.step('charge', () => done.push('charged'))
      done.push(attempt?.signal.aborted)
      if (how === 'ends it') response.end()
    })
    await goWhen(begun.opened, port)
    await gone.opened
    expect((await ask(port)).body, 'while it works').toContain('urn:holdfast:in-progress')
    looked.open()
    await expectNotKept(port)
    expect(done).toEqual(['charged', false])
  })

  test('the handler fails: the retry is handled', async () => {
    vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
    const [begun, gone] = [gate(), gate()]
    let handled = 0
    const port = await start(keysOf(), async (_, response, socket) => {
      handled += 1
      if (handled > 1) return response.end()
      socket.once('close', () => gone.open())
      begun.open()
      await gone.opened
      await new Promise(setImmediate)
      throw new Error('no charge')
    })
    await goWhen(begun.opened, port)
    await gone.opened
    await expect.poll(async () => (await ask(port).catch(() => undefined))?.status).toBe(200)
    expect(handled).toBe(2)
    vi.restoreAllMocks()
  })

  test('the handler is told of that by its pipeline(): it was done', async () => {
    vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
    const begun = gate()
    let handled = 0
    const port = await start(keysOf(), async (_, response) => {
      handled += 1
      const source = new Readable({ read: () => {} })
      source.push('more')
      begun.open()
      await pipeline(source, response)
    })
    await goWhen(begun.opened, port)
    await expectNotKept(port)
    expect(handled).toBe(1)
    vi.restoreAllMocks()
  })
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
