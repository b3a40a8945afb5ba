/** Handlers that lose their lease, and requests that are retried at another server then: nothing is done twice. */
import { once } from 'node:events'
import type { Server } from 'node:http'
import { Readable } from 'node:stream'
import { serve } from '@hono/node-server'
import fastify from 'fastify'
import { Hono } from 'hono'
import { expect, test } from 'vitest'
import { MemoryServer, memory } from '../../src/engines/memory/index.ts'
import { type Attempt, type Idempotency, type IdempotencyOptions, idempotency } from '../../src/recipes/http/index.ts'
import { ask, portOf, serving } from './idempotency-world.ts'
import { gate, locksOn } from './once-world.ts'

type Keys = Idempotency<Attempt>
type Handler = (attempt: Attempt) => Promise<string | Readable>

const FRAMEWORKS: Readonly<Record<string, (keys: Keys, handler: Handler) => Promise<number>>> = {
  'node:http': (keys, handler) =>
    serving((request, response) => {
      const handle = async (): Promise<unknown> => {
        const made = await handler(keys.attempt(request))
        return typeof made === 'string' ? response.end(made) : made.pipe(response)
      }
      keys.node(request, response, handle as () => unknown)
    }),
  Fastify: async (keys, handler) => {
    const app = fastify()
    app.addContentTypeParser('*', { parseAs: 'string' }, async (_: unknown, body: unknown) => body)
    await app.register(keys.fastify)
    app.post('/', async (request) => handler(keys.attempt(request)))
    await app.listen({ host: '127.0.0.1', port: 0 })
    return portOf(app.server)
  },
  'Fastify, past its reply': async (keys, handler) => {
    const app = fastify()
    app.addContentTypeParser('*', { parseAs: 'string' }, async (_: unknown, body: unknown) => body)
    await app.register(keys.fastify)
    app.post('/', async (request, { raw }) => {
      const made = await handler(keys.attempt(request))
      if (typeof made === 'string') return void raw.end(made)
      made.pipe(raw.writeHead(200, { 'x-made': 'yes' }))
      // It returns when what is written waits for the verdict.
      await once(made, 'pause')
    })
    await app.listen({ host: '127.0.0.1', port: 0 })
    return portOf(app.server)
  },
  Hono: (keys, handler) => {
    const app = new Hono()
    app.post('/', keys.hono, async (context) => {
      const made = await handler(keys.attempt(context))
      return typeof made === 'string' ? context.text(made) : new Response(Readable.toWeb(made) as ReadableStream)
    })
    return portOf(serve({ fetch: app.fetch, hostname: '127.0.0.1', port: 0 }) as Server)
  },
}

const OPTIONS = { scope: () => '', required: true, fingerprint: ({ url }: { url: string }) => url } as const

/** Two servers on one store: the locks of the first, and the ports of both. */
async function twoServers(name: string, handler: Handler, options: Partial<IdempotencyOptions> = {}) {
  const server = new MemoryServer()
  const start = FRAMEWORKS[name] as (typeof FRAMEWORKS)[string]
  const [locks, others] = [locksOn(memory({ server })), locksOn(memory({ server }))]
  const [port, other] = await Promise.all(
    [locks, others].map((each) => start(idempotency(each, { ...options, ...OPTIONS }), handler)),
  )
  return { locks, port: port as number, other: other as number }
}

const told = (signal: AbortSignal): Promise<unknown> =>
  new Promise((resolve) => signal.addEventListener('abort', resolve))

test.each(Object.keys(FRAMEWORKS))(
  '%s: what a handler answers after the end of a drain is told, and not done again, however large it is',
  async (name) => {
    const begun = gate()
    let charged = 0
    const { locks, port, other } = await twoServers(name, async ({ signal }) => {
      charged += 1
      begun.open()
      if (charged === 1) await told(signal)
      return 'y'.repeat(40_000)
    })
    const first = ask(port)
    await begun.opened
    const drained = locks.drain({ grace: '10ms' })
    const { status, body } = await first
    expect([status, body.length]).toEqual([200, 40_000])
    const retry = await ask(other)
    expect([retry.status, charged]).toEqual([409, 1])
    expect(JSON.parse(retry.body).type).toBe('urn:holdfast:not-kept')
    await drained
  },
)

test.each(Object.keys(FRAMEWORKS))(
  '%s: what a handler streams after the end of a drain is told as a whole',
  async (name) => {
    const [begun, ended] = [gate(), gate()]
    const parts = ['a', 'b', 'c', 'd'].map((letter) => letter.repeat(20_000))
    const { locks, port } = await twoServers(name, async ({ signal }) => {
      begun.open()
      await told(signal)
      return Readable.from(parts, { highWaterMark: 1 }).once('close', () => ended.open())
    })
    const asked = ask(port)
    await begun.opened
    const drained = locks.drain({ grace: '10ms' })
    const { status, body } = await asked
    expect([status, body === parts.join('')]).toEqual([200, true])
    await Promise.all([drained, ended.opened])
  },
)

test.each(Object.keys(FRAMEWORKS))(
  '%s: what another server has answered is told instead of a large stream',
  async (name) => {
    const [begun, working, ended] = [gate<Attempt>(), gate(), gate()]
    let handled = 0
    const handler: Handler = async (attempt) => {
      handled += 1
      if (handled > 1) return 'paid elsewhere'
      begun.open(attempt)
      await working.opened
      const source = new Readable({ read: () => source.push('y'.repeat(10_000)) })
      return source.once('close', () => ended.open())
    }
    const { locks, port, other } = await twoServers(name, handler, { ttl: '500ms' })
    const asked = ask(port)
    const { token } = await begun.opened
    await locks.evict('http::k', token as bigint)
    expect(await ask(other)).toMatchObject({ status: 200, body: 'paid elsewhere' })
    working.open()
    expect(await asked).toMatchObject({ status: 200, body: 'paid elsewhere' })
    // A stream that is piped is left alone by what it was piped into, as without the guard.
    if (name === 'Fastify' || name === 'Hono') await ended.opened
  },
)

// What it throws may be the loss itself, which its signal has told it.
test.each([[new Error('stopped')], [undefined]])(
  'node:http: a handler that throws because it was told to stop has not failed for good, also where that is kept (%s)',
  async (thrown) => {
    const begun = gate()
    let handled = 0
    const handler: Handler = async ({ signal }) => {
      handled += 1
      begun.open()
      if (handled > 1) return 'paid'
      await told(signal)
      throw thrown ?? signal.reason
    }
    const { locks, port, other } = await twoServers('node:http', handler, { failures: 'keep' })
    const first = ask(port)
    await begun.opened
    const drained = locks.drain({ grace: '10ms' })
    expect((await first).status).toBe(409)
    expect(await ask(other)).toMatchObject({ status: 200, body: 'paid' })
    await drained
  },
)

test.each(Object.keys(FRAMEWORKS))(
  '%s: a client is answered whose handler has lost its lease, and has not ended its response in time',
  async (name) => {
    const begun = gate<Attempt>()
    const handler: Handler = (attempt) => {
      begun.open(attempt)
      return new Promise(() => {})
    }
    const { locks, port } = await twoServers(name, handler, { handlerTimeout: '100ms' })
    const asked = ask(port)
    const { token } = await begun.opened
    await locks.evict('http::k', token as bigint)
    const { status, body } = await asked
    expect([status, JSON.parse(body).type]).toEqual([409, 'urn:holdfast:in-progress'])
  },
)
