/** `Idempotency-Key` in the frameworks themselves: real servers, real requests, and what each of them is answered. */
import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { Readable } from 'node:stream'
import { serve } from '@hono/node-server'
import express from 'express'
import fastify from 'fastify'
import { Hono } from 'hono'
import { afterEach, describe, expect, test } from 'vitest'
import { EngineError, InProgressError, KeyReusedError, UnknownOutcomeError } from '../../src/core/errors.ts'
import { memory } from '../../src/engines/memory/index.ts'
import type { Locks } from '../../src/locks.ts'
import { type IdempotencyProblem, problemOf } from '../../src/recipes/http/exchange.ts'
import {
  httpProblem,
  type Idempotency,
  type IdempotencyOptions,
  type IdempotentRequest,
  idempotency,
} from '../../src/recipes/http/index.ts'
import { closeAll, gate, locksOn } from './once-world.ts'

/** What the handler of a test answers. */
interface Made {
  readonly status?: number
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: string | Uint8Array | readonly (string | Uint8Array)[]
}

type Handler = (seen: { readonly body: string; readonly attempt: string | undefined }) => Promise<Made> | Made

type Start = (keys: Idempotency, handler: Handler) => Promise<{ port: number; close(): Promise<unknown> }>

const closing: (() => Promise<unknown>)[] = []
afterEach(async () => {
  for (const close of closing.splice(0)) await close()
  await closeAll()
})

const FRAMEWORKS: Readonly<Record<string, Start>> = {
  'node:http': (keys, handler) =>
    listening(
      createServer((request, response) => {
        const answer = async (error: unknown): Promise<void> => {
          if (error !== undefined) {
            response.writeHead(500).end(error instanceof Error ? error.message : 'failed')
            return
          }
          const body = Buffer.concat(await request.toArray()).toString()
          const made = await handler({ body, attempt: keys.attempt(request)?.id })
          response.writeHead(made.status ?? 200, 'told', { 'x-handler': 'node', ...made.headers })
          for (const chunk of chunksOf(made)) response.write(chunk)
          response.end(() => {})
        }
        keys.node(request, response, (error) => void answer(error))
      }),
    ),

  Express: (keys, handler) => {
    const app = express()
    app.use(express.text({ type: '*/*' }))
    app.post('/payments', keys.node, async (request, response) => {
      const made = await handler({ body: String(request.body), attempt: keys.attempt(request)?.id })
      response.status(made.status ?? 200).set({ 'x-handler': 'express', ...made.headers })
      if (Array.isArray(made.body)) Readable.from(made.body).pipe(response)
      else response.send(typeof made.body === 'object' ? Buffer.from(made.body as Uint8Array) : made.body)
    })
    return listening(createServer(app))
  },

  Fastify: async (keys, handler) => {
    const app = fastify()
    app.addContentTypeParser('*', { parseAs: 'string' }, async (_: unknown, body: unknown) => body)
    await app.register(keys.fastify)
    app.post('/payments', async (request, reply) => {
      const made = await handler({ body: String(request.body), attempt: keys.attempt(request)?.id })
      reply.code(made.status ?? 200).headers({ 'x-handler': 'fastify', ...made.headers })
      return reply.send(Array.isArray(made.body) ? Readable.from(made.body) : made.body)
    })
    await app.listen({ host: '127.0.0.1', port: 0 })
    return { port: (app.server.address() as AddressInfo).port, close: () => app.close() }
  },

  Hono: async (keys, handler) => {
    const app = new Hono()
    app.use(keys.hono)
    app.post('/payments', async (context) => {
      const made = await handler({ body: await context.req.text(), attempt: keys.attempt(context)?.id })
      const headers = { 'x-handler': 'hono', ...made.headers }
      const body = Array.isArray(made.body) ? Readable.toWeb(Readable.from(made.body)) : made.body
      return new Response(body as string, { status: made.status ?? 200, headers })
    })
    const server = serve({ fetch: app.fetch, hostname: '127.0.0.1', port: 0 }) as Server
    await once(server, 'listening')
    return { port: (server.address() as AddressInfo).port, close: () => ended(server) }
  },
}

async function listening(server: Server): Promise<{ port: number; close(): Promise<unknown> }> {
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return { port: (server.address() as AddressInfo).port, close: () => ended(server) }
}

async function ended(server: Server): Promise<void> {
  server.closeAllConnections()
  server.close()
  await once(server, 'close')
}

function chunksOf({ body }: Made): readonly (string | Uint8Array)[] {
  if (body === undefined) return []
  return Array.isArray(body) ? body : [body as string]
}

/** What a client sees. */
interface Answer {
  readonly status: number
  readonly body: string
  readonly headers: Headers
}

type Ask = (key: string | undefined, body?: string, headers?: Record<string, string>) => Promise<Answer>

async function start(
  name: string,
  handler: Handler,
  options: Partial<IdempotencyOptions> = {},
  locks: Locks = locksOn(memory()),
): Promise<Ask> {
  const scope: IdempotencyOptions['scope'] = ({ header }) => header('x-tenant') ?? ''
  // Nothing of a body is read before it.
  const ofNode = name === 'node:http' ? { fingerprint: ({ url }: IdempotentRequest) => url } : {}
  const keys = idempotency(locks, { scope, ...ofNode, ...options })
  const { port, close } = await (FRAMEWORKS[name] as Start)(keys, handler)
  closing.push(close)
  return async (key, body = '', more = {}) => {
    const headers = { 'content-type': 'text/plain', ...(key === undefined ? {} : { 'idempotency-key': key }), ...more }
    const response = await fetch(`http://127.0.0.1:${port}/payments`, { method: 'POST', body, headers })
    return { status: response.status, body: await response.text(), headers: response.headers }
  }
}

describe.each(Object.keys(FRAMEWORKS))('%s', (name) => {
  test('while the locks are drained, the handler ends, and all others are told to ask another server', async () => {
    const locks = locksOn(memory())
    const working = gate()
    const begun = gate()
    const handler = async (): Promise<Made> => {
      begun.open()
      await working.opened
      return { status: 201, body: 'paid' }
    }
    const ask = await start(name, handler, {}, locks)
    const first = ask('k')
    await begun.opened
    const duplicate = ask('k')
    const drained = locks.drain({ grace: '20s' })
    const later = await ask('other')
    expect([later.status, later.headers.get('retry-after')]).toEqual([503, '1'])
    expect(JSON.parse(later.body)).toMatchObject({ type: 'urn:holdfast:unavailable', status: 503 })
    working.open()
    expect(await first).toMatchObject({ status: 201, body: 'paid' })
    expect([201, 503], 'the result, or to come again').toContain((await duplicate).status)
    await drained
    expect((await ask('k')).status, 'the locks are closed').toBe(503)
  })

  test('handles a request once, and replays status, body and chosen headers', async () => {
    let handled = 0
    const ids: (string | undefined)[] = []
    const ask = await start(name, ({ body, attempt }) => {
      ids.push(attempt)
      handled += 1
      return {
        status: 201,
        headers: { location: '/payments/7', 'content-type': 'application/json', 'x-secret': 'no' },
        body: JSON.stringify({ handled, body }),
      }
    })
    const first = await ask('"k-1"', 'ten')
    expect({ status: first.status, body: JSON.parse(first.body) }).toEqual({
      status: 201,
      body: { handled: 1, body: 'ten' },
    })
    expect(first.headers.get('x-secret')).toBe('no')
    expect(first.headers.get('idempotent-replayed')).toBeNull()
    // With quotes, as the draft has it, and without, as many clients send it.
    const again = await ask('k-1', 'ten')
    expect({ status: again.status, body: again.body }).toEqual({ status: 201, body: first.body })
    expect(again.headers.get('idempotent-replayed')).toBe('true')
    expect(again.headers.get('location')).toBe('/payments/7')
    expect(again.headers.get('content-type')).toMatch(/^application\/json/)
    expect(again.headers.get('x-secret')).toBeNull()
    expect((await ask('k-1', 'ten', { 'x-tenant': 'other' })).body).toContain('"handled":2')
    expect((await ask(undefined, 'ten')).body).toContain('"handled":3')
    expect(ids.map((id) => id !== undefined)).toEqual([true, true, false])
  })

  test('answers 422 to another request with the key, 409 with Retry-After to one in progress, and 400 to none', async () => {
    const working = gate()
    const begun = gate()
    const ask = await start(
      name,
      async () => {
        begun.open()
        await working.opened
        return { body: 'paid' }
      },
      { wait: 0, required: true, fingerprint: ({ header }) => header('x-body') },
    )
    const first = ask('k', '', { 'x-body': 'ten' })
    await begun.opened
    const busy = await ask('k', '', { 'x-body': 'ten' })
    expect(busy.status).toBe(409)
    expect(busy.headers.get('retry-after')).toBe('1')
    expect(busy.headers.get('content-type')).toMatch(/^application\/problem\+json/)
    expect(JSON.parse(busy.body)).toMatchObject({ status: 409, title: 'the request is in progress' })
    // Before the first one has ended, too.
    expect((await ask('k', '', { 'x-body': 'eleven' })).status).toBe(422)
    working.open()
    expect((await first).body).toBe('paid')
    expect((await ask('k', '', { 'x-body': 'eleven' })).status).toBe(422)
    const missing = await ask(undefined)
    expect({ status: missing.status, type: JSON.parse(missing.body).type }).toEqual({
      status: 400,
      type: 'urn:holdfast:key-required',
    })
    for (const malformed of ['""', '"open', 'k'.repeat(256), 'a b']) expect((await ask(malformed)).status).toBe(400)
  })

  test('lets duplicates wait, and answers all of them with the one response', async () => {
    let handled = 0
    const working = gate()
    const ask = await start(name, async () => {
      handled += 1
      await working.opened
      return { body: `paid ${handled}` }
    })
    const asked = Array.from({ length: 5 }, () => ask('k', 'ten'))
    await expect.poll(() => handled).toBe(1)
    working.open()
    const bodies = (await Promise.all(asked)).map(({ body }) => body)
    expect(new Set(bodies)).toEqual(new Set(['paid 1']))
  })

  test.each([503, 429])('tells a %s and handles the retry anew, with the same attempt', async (status) => {
    const ids: (string | undefined)[] = []
    const ask = await start(name, ({ attempt }) => {
      ids.push(attempt)
      return ids.length === 1 ? { status, body: 'later' } : { status: 402, body: 'declined' }
    })
    expect(await ask('k')).toMatchObject({ status, body: 'later' })
    expect(await ask('k')).toMatchObject({ status: 402, body: 'declined' })
    const replay = await ask('k')
    expect(replay).toMatchObject({ status: 402, body: 'declined' })
    expect(replay.headers.get('idempotent-replayed')).toBe('true')
    expect(ids).toEqual([ids[0], ids[0]])
  })

  test('replays failures of the server as well, if they are to be kept', async () => {
    let handled = 0
    const ask = await start(name, () => ({ status: 500, body: `broken ${++handled}` }), { failures: 'keep' })
    expect(await ask('k')).toMatchObject({ status: 500, body: 'broken 1' })
    expect(await ask('k')).toMatchObject({ status: 500, body: 'broken 1' })
  })

  test('stores bytes and streams up to a bound; what is larger is sent, and is not handled again', async () => {
    const bytes = new Uint8Array([0, 255, 128, 10])
    const parts = ['a'.repeat(50), 'b'.repeat(50)]
    let handled = 0
    const ask = await start(
      name,
      ({ body }) => {
        handled += 1
        if (body === 'bytes') return { headers: { 'content-type': 'application/octet-stream' }, body: bytes }
        return { body: body === 'stream' ? parts : [...parts, ...parts, 'the end'] }
      },
      { maxBody: 100 },
    )
    for (const body of ['bytes', 'stream']) {
      const first = await ask(body, body)
      expect(await ask(body, body)).toMatchObject({ status: 200, body: first.body })
    }
    expect(handled).toBe(2)
    expect((await ask('stream', 'stream')).body).toBe(parts.join(''))
    const large = await ask('large', 'large')
    expect(large).toMatchObject({ status: 200, body: `${parts.join('')}${parts.join('')}the end` })
    const again = await ask('large', 'large')
    expect(again.status).toBe(409)
    expect(JSON.parse(again.body).detail).toMatch(/done before; its response, with status 200, was larger than 100/)
    expect(handled).toBe(3)
  })
})

test.each(Object.keys(FRAMEWORKS))(
  'a request whose owner is not known is neither handled nor answered from the record (%s)',
  async (name) => {
    let handled = 0
    const users: Readonly<Record<string, () => unknown>> = {
      early: () => undefined,
      none: () => null,
      later: async () => 'alice',
      refused: () => Promise.reject(new Error('no such user')),
      number: () => 7,
      alice: () => 'alice',
      alone: () => '',
    }
    const scope: IdempotencyOptions['scope'] = ({ header }) => users[header('x-user') ?? '']?.() as string
    const ask = await start(name, () => ({ body: `paid ${++handled}` }), { scope })
    for (const user of ['early', 'early', 'none', 'later', 'refused', 'number'])
      expect([user, (await ask('k', '', { 'x-user': user })).status]).toEqual([user, 500])
    expect(handled).toBe(0)
    expect((await ask('k', '', { 'x-user': 'alice' })).body).toBe('paid 1')
    expect((await ask('k', '', { 'x-user': 'alone' })).body).toBe('paid 2')
  },
)

test('an error about the owner of a request says what to do', async () => {
  const keys = idempotency(locksOn(memory()), { scope: () => undefined as unknown as string })
  const app = new Hono()
  app.use(keys.hono)
  app.post('/', (context) => context.text('paid'))
  app.onError(({ message }) => new Response(message))
  const response = await app.request('/', { method: 'POST', headers: { 'idempotency-key': 'k' } })
  expect(await response.text()).toMatch(/scope must answer whose request it is.*got undefined.*authentication.*before/)
})

test.each(Object.keys(FRAMEWORKS))(
  'a handler that never ends its response does not keep its key for ever (%s)',
  async (name) => {
    let handled = 0
    const never = new Promise<Made>(() => {})
    const handler: Handler = () => (++handled === 1 ? never : { body: 'second' })
    const ask = await start(name, handler, { handlerTimeout: '100ms', wait: '10s' })
    const first = ask('key')
    await expect.poll(() => handled).toBe(1)
    expect(await ask('key')).toMatchObject({ status: 200, body: 'second' })
    expect(handled).toBe(2)
    expect(await first).toMatchObject({ status: 500 })
  },
)

test('wrong options are told at once', () => {
  const locks = locksOn(memory())
  const scope = (): string => ''
  expect(() => idempotency(locks, {} as IdempotencyOptions)).toThrow(/scope must be a function/)
  expect(() => idempotency(locks, { scope, maxBody: 1e6 })).toThrow(/maxBody must be a whole number from 0 to 45000/)
  for (const name of ['Content-Length', 'transfer-encoding', 'connection', 'keep-alive', 'trailer', 'upgrade'])
    expect(() => idempotency(locks, { scope, headers: ['etag', name] }), name).toThrow(
      `headers must not name '${name}': it is set anew for each response`,
    )
  const misspelt = { scope, requried: true } as IdempotencyOptions
  expect(() => idempotency(locks, misspelt)).toThrow(/unknown option 'requried' in idempotency\(\).*'required'/)
})

test('where a key is required, a handler has its attempt for certain, or is told that nothing guards it', () => {
  const options = { scope: () => '' }
  const required = idempotency(locksOn(memory()), { ...options, required: true })
  // It compiles without a question mark.
  expect(() => required.attempt({}).id).toThrow('put the middleware of idempotency() before its handler')
  expect(idempotency(locksOn(memory()), options).attempt({})?.id).toBeUndefined()
})

test.each([
  new KeyReusedError('k'),
  new InProgressError('k', 1_000, undefined),
  new UnknownOutcomeError('k', { id: 'a', number: 1 }),
  new EngineError('redis', 'it is away', { outcome: 'not-applied' }),
])('$name has one type and one status, whether the middleware or a handler met it', (error) => {
  const { type, title, status } = problemOf(error) as IdempotencyProblem
  expect(httpProblem(error)?.body).toEqual({ type, title, status })
})
