/** Handlers that still work when another answer has taken the place of theirs: what they do then harms nothing. */
import { once } from 'node:events'
import { Agent, type IncomingMessage, request as requestOf, type ServerResponse } from 'node:http'
import { createServer as createHttp2Server, type Http2ServerRequest, type Http2ServerResponse } from 'node:http2'
import { PassThrough } from 'node:stream'
import { text } from 'node:stream/consumers'
import express from 'express'
import fastify from 'fastify'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { type Client, keysOf, overHttp1, overHttp2, portOf, serving } from './idempotency-world.ts'
import { gate, turns } from './once-world.ts'

beforeEach(() => void vi.spyOn(process, 'emitWarning').mockImplementation(() => {}))
beforeEach(() => void vi.spyOn(console, 'error').mockImplementation(() => {}))
afterEach(() => void vi.restoreAllMocks())

describe('what a handler does with its response when its client was told of a time-out throws nothing', () => {
  const servers: Readonly<Record<string, (handle: (response: ServerResponse) => void) => Promise<Client>>> = {
    'node:http': async (handle) => {
      const keys = keysOf({ handlerTimeout: '50ms' })
      return overHttp1(
        await serving((request, response) => keys.node(request, response, (() => handle(response)) as () => unknown)),
      )
    },
    'node:http2': async (handle) => {
      const keys = keysOf({ handlerTimeout: '50ms' })
      const guarded = (request: Http2ServerRequest, response: Http2ServerResponse): void =>
        keys.node(request as never, response as never, () => handle(response as never))
      return overHttp2(await portOf(createHttp2Server(guarded).listen(0, '127.0.0.1') as never))
    },
    Express: async (handle) => {
      const app = express()
      app.post('/', keysOf({ handlerTimeout: '50ms' }).node, (_, response) => handle(response))
      return overHttp1(await serving(app))
    },
    Fastify: async (handle) => {
      const app = fastify()
      app.addContentTypeParser('*', { parseAs: 'string' }, async (_: unknown, body: unknown) => body)
      await app.register(keysOf({ handlerTimeout: '50ms' }).fastify)
      app.post('/', (_, reply) => handle(reply.raw))
      await app.listen({ host: '127.0.0.1', port: 0 })
      return overHttp1(await portOf(app.server))
    },
  }
  const ways: Readonly<Record<string, (response: ServerResponse) => unknown>> = {
    setHeader: (response) => response.setHeader('x-late', 'yes'),
    appendHeader: (response) => response.appendHeader('x-late', 'yes'),
    removeHeader: (response) => response.removeHeader('x-late'),
    writeHead: (response) => response.writeHead(201, { 'x-late': 'yes' }),
    flushHeaders: (response) => response.flushHeaders(),
    write: (response) => response.write('paid'),
    end: (response) => response.end('paid'),
    json: (response) => (response as express.Response).json?.({ paid: true }),
  }
  test.each(Object.keys(servers))('%s', async (name) => {
    let response: ServerResponse | undefined
    const client = await (servers[name] as (typeof servers)[string])((first) => {
      response = first
    })
    expect((await client.ask()).status).toBe(500)
    const errors: unknown[] = []
    response?.on('error', (error) => errors.push(error))
    for (const [way, act] of Object.entries(ways)) expect(() => act(response as ServerResponse), way).not.toThrow()
    await turns()
    expect(errors, 'nor is it told later, which would end the process').toEqual([])
  })

  test('and the callbacks that it waits for are called', async () => {
    let response: ServerResponse | undefined
    const client = await (servers['node:http'] as (typeof servers)[string])((first) => {
      response = first
    })
    expect((await client.ask()).status).toBe(500)
    await new Promise<unknown>((resolve) => response?.write('paid', resolve))
    await new Promise<void>((resolve) => response?.end('paid', resolve))
  })
})

test('node:http2: the body of an error is sent, also where middleware before the guard has put off its end', async () => {
  const keys = keysOf()
  const guarded = (request: Http2ServerRequest, response: Http2ServerResponse): void => {
    const { end } = response
    response.end = ((chunk: string) => {
      void turns().then(() => Reflect.apply(end, response, [chunk]))
      return response
    }) as typeof end
    const next = (error?: unknown): void => {
      if (error === undefined) throw new Error('no')
      response.statusCode = 500
      response.end('the error page')
    }
    keys.node(request as never, response as never, next)
  }
  const client = overHttp2(await portOf(createHttp2Server(guarded).listen(0, '127.0.0.1') as never))
  expect(await client.ask()).toEqual({ status: 500, body: 'the error page' })
})

describe('Express: a connection that carries another request by then is kept when an async handler', () => {
  const ways: Readonly<Record<string, (response: ServerResponse) => unknown>> = {
    answers: (response) => (response as express.Response).json({ paid: true }),
    fails: () => Promise.reject(new Error('no charge')),
  }
  test.each(Object.keys(ways))('%s late', async (way) => {
    const [late, settled, begun, goesOn] = [gate(), gate(), gate(), gate()]
    const app = express()
    const handle = async (response: ServerResponse): Promise<void> => {
      await late.opened
      await ways[way]?.(response)
    }
    app.post('/', keysOf({ handlerTimeout: '50ms' }).node, (_, response) =>
      handle(response).finally(() => settled.open()),
    )
    app.get('/', async (_, response) => {
      begun.open()
      await goesOn.opened
      response.send('another')
    })
    const port = await serving(app)
    const agent = new Agent({ keepAlive: true, maxSockets: 1 })
    const send = async (method: string): Promise<readonly unknown[]> => {
      const asking = requestOf({ port, method, agent, headers: { 'idempotency-key': 'k' } }).end()
      const [response] = (await once(asking, 'response')) as [IncomingMessage]
      return [response.statusCode, (await text(response)).slice(0, 9), asking.reusedSocket]
    }
    expect(await send('POST')).toEqual([500, '<!DOCTYPE', false])
    const another = send('GET')
    await begun.opened
    late.open()
    await settled.opened
    // Express tells its last handler of errors in a turn of its own.
    await turns()
    goesOn.open()
    expect(await another).toEqual([200, 'another', true])
    agent.destroy()
  })
})

describe('while an error handler waits, what is piped into the response of the handler does not take its place', () => {
  type Start = (piped: PassThrough, failing: () => Promise<void>) => Promise<Client>
  const fastifyOf =
    (http2: boolean): Start =>
    async (piped, failing) => {
      const app = fastify(http2 ? ({ http2 } as object) : {})
      app.addContentTypeParser('*', { parseAs: 'string' }, async (_: unknown, body: unknown) => body)
      await app.register(keysOf({ handlerTimeout: '50ms' }).fastify)
      app.setErrorHandler(async (_, __, reply) => {
        await failing()
        return reply.code(500).send('failed')
      })
      app.post('/', (_, reply) => void piped.pipe(reply.raw))
      await app.listen({ host: '127.0.0.1', port: 0 })
      return (http2 ? overHttp2 : overHttp1)(await portOf(app.server))
    }
  const servers: Readonly<Record<string, Start>> = {
    Express: async (piped, failing) => {
      const app = express()
      app.post('/', keysOf({ handlerTimeout: '50ms' }).node, (_, response) => void piped.pipe(response))
      app.use((async (_, __, response, ___) => {
        await failing()
        response.status(500).send('failed')
      }) as express.ErrorRequestHandler)
      return overHttp1(await serving(app))
    },
    Fastify: fastifyOf(false),
    'Fastify, HTTP/2': fastifyOf(true),
  }
  test.each(Object.keys(servers))('%s', async (name) => {
    const piped = new PassThrough()
    const failing = async (): Promise<void> => {
      piped.end('paid')
      await turns()
    }
    const client = await (servers[name] as Start)(piped, failing)
    expect(await client.ask()).toMatchObject({ status: 500, body: 'failed' })
  })
})
