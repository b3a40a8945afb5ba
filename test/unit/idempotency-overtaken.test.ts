/** Responses that another one takes the place of, by a time-out, a late handler, or another server: Fastify, Hono. */
import type { Server } from 'node:http'
import { PassThrough, Readable } from 'node:stream'
import { serve } from '@hono/node-server'
import fastify, { type FastifyReply } from 'fastify'
import { Hono, type MiddlewareHandler } from 'hono'
import { expect, test } from 'vitest'
import { delegate } from '../../conformance/delegate.ts'
import type { Engine } from '../../src/core/engine.ts'
import { MemoryServer, memory } from '../../src/engines/memory/index.ts'
import { type Attempt, type Idempotency, type IdempotencyOptions, idempotency } from '../../src/recipes/http/index.ts'
import { ask, portOf } from './idempotency-world.ts'
import { gate, locksOn, turns } from './once-world.ts'

type Handler = (reply: FastifyReply, attempt: Attempt) => unknown

/** A server; `told` is what its hooks are told of replies, in turn. */
async function start(engine: Engine, handler: Handler, options: Partial<IdempotencyOptions> = {}) {
  const locks = locksOn(engine)
  const fingerprint = ({ url }: { url: string }): string => url
  const keys = idempotency(locks, { fingerprint, ...options, scope: () => '', required: true }) as Idempotency<Attempt>
  const told: string[] = []
  const app = fastify()
  app.addContentTypeParser('*', { parseAs: 'string' }, async (_: unknown, body: unknown) => body)
  app.addHook('onSend', async (_, __, payload) => void told.push(typeof payload === 'string' ? payload : 'a stream'))
  app.addHook('onError', async (_, __, error) => void told.push(error.message))
  await app.register(keys.fastify)
  app.post('/', async (request, reply) => handler(reply, keys.attempt(request)))
  await app.listen({ host: '127.0.0.1', port: 0 })
  return { locks, told, port: await portOf(app.server) }
}

/** Too large to be stored. It tells when it is read, goes on when it may, and tells when its reader has ended it. */
function largeStream() {
  const [read, goesOn, ended] = [gate(), gate(), gate()]
  async function* chunks(): AsyncGenerator<string> {
    try {
      yield 'paid'
      read.open()
      await goesOn.opened
      for (;;) yield 'y'.repeat(10_000)
    } finally {
      ended.open()
    }
  }
  return { stream: Readable.from(chunks()), read, goesOn, ended }
}

test('a large stream is ended when another reply has overtaken it', async () => {
  const { stream, read, goesOn, ended } = largeStream()
  let sendLate = (): void => {}
  const { port } = await start(memory(), (reply) => {
    sendLate = () => void reply.code(503).send('late')
    return reply.send(stream)
  })
  const asked = ask(port)
  await read.opened
  sendLate()
  expect(await asked).toMatchObject({ status: 503, body: 'late' })
  goesOn.open()
  await ended.opened
})

test('a stream that breaks when another reply has overtaken it is told to hooks, and is no error of that one', async () => {
  const [source, closed] = [new PassThrough(), gate()]
  let sendLate = (): void => {}
  const { port, told } = await start(memory(), (reply) => {
    sendLate = () => void reply.code(503).send('late')
    source.once('close', () => closed.open()).write('paid')
    return reply.send(source)
  })
  const asked = ask(port)
  await expect.poll(() => source.readableFlowing && source.readableLength === 0).toBe(true)
  sendLate()
  source.destroy(new Error('broken'))
  expect(await asked).toMatchObject({ status: 503, body: 'late' })
  await closed.opened
  await turns()
  expect(told).toEqual(['a stream', 'late', 'broken'])
})

test('a large stream is ended when the handler has had its time before the stream was sent', async () => {
  const { stream, read, goesOn, ended } = largeStream()
  const { port, told } = await start(memory(), (reply) => reply.send(stream), { handlerTimeout: '100ms' })
  const asked = ask(port)
  await read.opened
  expect((await asked).status).toBe(500)
  goesOn.open()
  await ended.opened
  await turns()
  expect(told.filter((text) => text.startsWith('the handler of'))).toHaveLength(1)
})

test('a large stream is ended when another server has answered the request', async () => {
  const server = new MemoryServer()
  const { stream, goesOn, ended } = largeStream()
  goesOn.open()
  const [begun, working] = [gate<Attempt>(), gate()]
  const handler: Handler = async (reply, attempt) => {
    begun.open(attempt)
    await working.opened
    return reply.send(stream)
  }
  const first = await start(memory({ server }), handler, { ttl: '500ms' })
  const asked = ask(first.port)
  const { token } = await begun.opened
  await first.locks.evict('http::k', token as bigint)
  const other = await start(memory({ server }), () => 'paid elsewhere')
  expect(await ask(other.port)).toMatchObject({ status: 200, body: 'paid elsewhere' })
  working.open()
  expect(await asked).toMatchObject({ status: 200, body: 'paid elsewhere' })
  await ended.opened
})

test('a handler that answers while it is stored that it had its time gets one error, and its client one answer', async () => {
  const engine = memory()
  const { store } = engine
  const [working, storing, goesOn] = [gate(), gate(), gate()]
  const held = delegate(engine, {
    store: {
      traits: store.traits,
      get: (keys) => store.get(keys),
      put: (changes) => store.put(changes),
      list: (prefix) => store.list(prefix),
      putEntering: async (entrances) => store.putEntering?.(entrances) ?? [],
      putLeaving: async (leavings) => {
        storing.open()
        await goesOn.opened
        return store.putLeaving?.(leavings) ?? []
      },
    },
  })
  const handler = async (): Promise<string> => {
    await working.opened
    return 'paid'
  }
  const { port, told } = await start(held, handler, { handlerTimeout: '50ms' })
  const asked = ask(port)
  await storing.opened
  working.open()
  await expect.poll(() => told).toEqual(['paid'])
  await turns()
  goesOn.open()
  const { status, body } = await asked
  expect([status, body.includes('has not ended its response')]).toEqual([500, true])
  await turns()
  expect(told).toEqual(['paid', expect.stringMatching(/^the handler of/), body])
  expect(await ask(port)).toMatchObject({ status: 200, body: 'paid' })
})

/** A server of Hono; `around` is what comes before the guard. */
async function startHono(
  engine: Engine,
  handler: (attempt: Attempt) => Promise<Response> | Response,
  options: Partial<IdempotencyOptions> = {},
  around: MiddlewareHandler = (_, next) => next(),
) {
  const locks = locksOn(engine)
  const fingerprint = ({ url }: { url: string }): string => url
  const keys = idempotency(locks, { fingerprint, ...options, scope: () => '', required: true }) as Idempotency<Attempt>
  const app = new Hono()
  app.post('/', around, keys.hono, async (context) => handler(keys.attempt(context)))
  app.onError(({ message }) => new Response(message, { status: 500 }))
  return { locks, port: await portOf(serve({ fetch: app.fetch, hostname: '127.0.0.1', port: 0 }) as Server) }
}

const webStream = (stream: Readable): ReadableStream => Readable.toWeb(stream) as ReadableStream

test('Hono: a large stream is ended when another server has answered the request', async () => {
  const server = new MemoryServer()
  const { stream, goesOn, ended } = largeStream()
  goesOn.open()
  const [begun, working] = [gate<Attempt>(), gate()]
  const handler = async (attempt: Attempt): Promise<Response> => {
    begun.open(attempt)
    await working.opened
    return new Response(webStream(stream))
  }
  const first = await startHono(memory({ server }), handler, { ttl: '500ms' })
  const asked = ask(first.port)
  const { token } = await begun.opened
  await first.locks.evict('http::k', token as bigint)
  const other = await startHono(memory({ server }), () => new Response('paid elsewhere'))
  expect(await ask(other.port)).toMatchObject({ status: 200, body: 'paid elsewhere' })
  working.open()
  expect(await asked).toMatchObject({ status: 200, body: 'paid elsewhere' })
  await ended.opened
})

test('Hono: a handler that has had its time changes nothing of the error, and its large stream is ended', async () => {
  const { stream, read, goesOn, ended } = largeStream()
  const [failed, sending] = [gate(), gate()]
  const around: MiddlewareHandler = async (_, next) => {
    await next()
    failed.open()
    await sending.opened
  }
  const handler = (): Response => new Response(webStream(stream))
  const { port } = await startHono(memory(), handler, { handlerTimeout: '100ms' }, around)
  const asked = ask(port)
  await Promise.all([read.opened, failed.opened])
  goesOn.open()
  await ended.opened
  sending.open()
  expect(await asked).toMatchObject({ status: 500, body: expect.stringMatching(/^the handler of/) })
})

test('Hono: a stream that makes nothing is ended when its handler has had its time', async () => {
  const ended = gate()
  const handler = (): Response => new Response(new ReadableStream({ cancel: () => ended.open() }))
  const { port } = await startHono(memory(), handler, { handlerTimeout: '100ms' })
  expect(await ask(port)).toMatchObject({ status: 500, body: expect.stringMatching(/^the handler of/) })
  await ended.opened
})
