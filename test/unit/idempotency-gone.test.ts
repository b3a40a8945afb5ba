/** Clients that go away before their response is made, and responses that no framework is told of: no key may hang. */
import { once } from 'node:events'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { PassThrough, pipeline as pipelineOf, Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import express from 'express'
import fastify, { type FastifyReply, type FastifyRequest } from 'fastify'
import { describe, expect, test, vi } from 'vitest'
import type { Idempotency, IdempotencyOptions } from '../../src/recipes/http/index.ts'
import { ask, goWhen, keysOf, portOf, serving } from './idempotency-world.ts'
import { gate } from './once-world.ts'

const replay = async (port: number): Promise<readonly unknown[]> => {
  const { status, body, headers } = await ask(port)
  return [status, body, headers.get('idempotent-replayed')]
}

type Handler = (request: IncomingMessage, response: ServerResponse) => unknown
const SERVERS: Readonly<Record<string, (keys: Idempotency, handler: Handler) => Promise<number>>> = {
  'node:http': (keys, handler) =>
    serving((request, response) => keys.node(request, response, () => handler(request, response))),
  Express: (keys, handler) => serving(express().post('/', keys.node, handler)),
}

type Way = (source: PassThrough, response: ServerResponse, settled: () => void) => unknown

/** They hear that their client has gone when the response is made. */
const WAYS: Readonly<Record<string, Way>> = {
  pipe: (source, response, settled) => {
    source.pipe(response).once('close', settled)
  },
  pipeline: (source, response, settled) => {
    pipeline(source, response).then(settled, settled)
  },
  'pipeline with a callback': (source, response, settled) => {
    pipelineOf(source, response, settled)
  },
}

describe('a response that is streamed to a client that has gone is stored', () => {
  const whens = ['before the key is looked up', 'before the stream', 'in the middle of it']
  const ways = Object.keys(WAYS).flatMap((way) => whens.map((when) => [way, when] as const))
  test.each(Object.keys(SERVERS).flatMap((name) => ways.map((way) => [name, ...way] as const)))(
    '%s, %s, gone %s',
    async (name, way, when) => {
      const [begun, piped, gone, settled] = [gate(), gate(), gate(), gate()]
      const source = new PassThrough()
      let [handled, told, toldBefore] = [0, 0, 0]
      const keys = keysOf()
      const watched: Idempotency = {
        ...keys,
        node: (request, response, next) => {
          if (handled > 0) return keys.node(request, response, next)
          response.once('close', () => {
            toldBefore += 1
            gone.open()
          })
          request.socket.once('close', () => gone.open())
          begun.open()
          const go = (): void => keys.node(request, response, next)
          return when === whens[0] ? void response.once('close', go) : go()
        },
      }
      const port = await (SERVERS[name] as (typeof SERVERS)[string])(watched, async (_, response) => {
        handled += 1
        response.once('close', () => {
          told += 1
        })
        if (when === whens[1]) await gone.opened
        ;(WAYS[way] as Way)(source, response, () => settled.open())
        source.write('pa')
        piped.open()
      })
      await goWhen(when === whens[2] ? piped.opened : begun.opened, port)
      await Promise.all([gone.opened, piped.opened])
      expect(told, 'while the response is made').toBe(0)
      source.end('id')
      await expect.poll(() => replay(port)).toEqual([200, 'paid', 'true'])
      expect(handled).toBe(1)
      await settled.opened
      expect([told, toldBefore]).toEqual([1, 1])
    },
  )
})

describe('a handler that destroys its response has failed, and the retry is handled', () => {
  const ways: Readonly<Record<string, Handler>> = {
    destroy: (_, response) => {
      response.write('pa')
      response.destroy(new Error('upstream'))
    },
    'destroy, when its client has gone': async (request, response) => {
      request.socket.destroy()
      await once(request.socket, 'close')
      response.destroy()
    },
    'pipeline of a source that breaks': (_, response) => {
      const broken = new Readable({ read: () => broken.destroy(new Error('upstream')) })
      pipelineOf(broken, response, () => {})
    },
  }
  test.each(Object.keys(SERVERS).flatMap((name) => Object.keys(ways).map((way) => [name, way])))(
    '%s, %s',
    async (name, way) => {
      const warned = vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
      const logged = vi.spyOn(console, 'error').mockImplementation(() => {})
      const closed = gate()
      let handled = 0
      const port = await (SERVERS[name] as (typeof SERVERS)[string])(keysOf(), (request, response) => {
        handled += 1
        if (handled > 1) return response.end('paid')
        response.once('close', () => closed.open())
        return (ways[way] as Handler)(request, response)
      })
      await expect(ask(port)).rejects.toThrow()
      await expect.poll(() => ask(port)).toMatchObject({ status: 200, body: 'paid' })
      expect(handled).toBe(2)
      await closed.opened
      expect([warned.mock.calls, logged.mock.calls], 'it knows what it has done').toEqual([[], []])
      warned.mockRestore()
      logged.mockRestore()
    },
  )
})

describe('Fastify:', () => {
  async function start(
    handler: (request: FastifyRequest, reply: FastifyReply) => unknown,
    { later, options = {} }: { later?: (reply: FastifyReply) => void; options?: Partial<IdempotencyOptions> } = {},
  ): Promise<number> {
    const app = fastify()
    app.addContentTypeParser('*', { parseAs: 'string' }, async (_: unknown, body: unknown) => body)
    await app.register(keysOf(options).fastify)
    if (later !== undefined) app.addHook('preHandler', async (_, reply) => later(reply))
    app.post('/', handler as () => Promise<unknown>)
    await app.listen({ host: '127.0.0.1', port: 0 })
    return portOf(app.server)
  }

  const isNotKept = [409, expect.stringContaining('urn:holdfast:not-kept'), null]

  test.each([
    ['nothing', (_: FastifyReply, ended: Promise<void>) => ended],
    [
      'its reply, and sends it later',
      (reply: FastifyReply, ended: Promise<void>) => {
        // Fastify takes the end of the connection for that of the reply.
        void ended.then(() => setTimeout(() => void reply.send('paid'), 50))
        return reply
      },
    ],
    ['a stream', (_: FastifyReply, ended: Promise<void>) => ended.then(() => Readable.from(['pa', 'id']))],
  ])('an async handler answers %s to a client that has gone: that is stored', async (what, answer) => {
    const [begun, gone] = [gate(), gate()]
    let handled = 0
    const port = await start(async (request, reply) => {
      handled += 1
      request.socket.once('close', () => gone.open())
      begun.open()
      reply.code(202)
      return answer(reply, gone.opened)
    })
    await goWhen(begun.opened, port)
    await expect.poll(() => replay(port)).toEqual([202, what === 'nothing' ? '' : 'paid', 'true'])
    expect(handled).toBe(1)
  })

  test('a large stream to a client that has gone is ended, as without this plugin', async () => {
    const [begun, gone] = [gate(), gate()]
    const source = new Readable({ read: () => source.push(Buffer.alloc(10_000)) })
    const port = await start(async (request, reply) => {
      request.socket.once('close', () => gone.open())
      begun.open()
      await gone.opened
      return reply.send(source)
    })
    await goWhen(begun.opened, port)
    await expect.poll(() => source.destroyed).toBe(true)
    await expect.poll(() => replay(port)).toEqual(isNotKept)
  })

  test('a hook after this one that ends the response leaves the key free', async () => {
    let [isLate, handled] = [true, 0]
    const port = await start(async () => `paid ${++handled}`, {
      later: (reply) => {
        if (isLate) reply.raw.writeHead(503).end('late')
      },
    })
    expect(await ask(port)).toMatchObject({ status: 503, body: 'late' })
    isLate = false
    await expect.poll(() => ask(port)).toMatchObject({ status: 200, body: 'paid 1' })
  })

  test('a hijacked reply that the handler has ended was done, and is told as not kept', async () => {
    let handled = 0
    const port = await start((_, reply) => {
      handled += 1
      reply.hijack()
      reply.raw.end('paid')
    })
    expect(await replay(port)).toEqual([200, 'paid', null])
    await expect.poll(() => replay(port)).toEqual(isNotKept)
    expect(handled).toBe(1)
  })

  test('a hijacked reply that is ended after its client has gone was done, too', async () => {
    const [begun, gone] = [gate(), gate()]
    const port = await start(async (request, reply) => {
      reply.hijack()
      request.socket.once('close', () => gone.open())
      begun.open()
      await gone.opened
      reply.raw.end('paid')
    })
    await goWhen(begun.opened, port)
    await expect.poll(() => replay(port)).toEqual(isNotKept)
  })

  test.each<[string, (raw: ServerResponse) => void]>([
    ['pipes a stream', (raw) => new PassThrough().pipe(raw).write('pa')],
    ['pipes a stream by pipeline()', (raw) => pipelineOf(new PassThrough(), raw, () => {})],
    [
      'sends events until its client goes',
      (raw) => {
        raw.writeHead(200, { 'content-type': 'text/event-stream' })
        const sending = setInterval(() => raw.write('data: 1\n\n'), 10)
        raw.once('close', () => clearInterval(sending))
      },
    ],
  ])('a hijacked reply that %s, and is not ended, is told as not kept when its client has gone', async (_, answer) => {
    const begun = gate()
    let handled = 0
    const port = await start((_, reply) => {
      handled += 1
      reply.hijack()
      answer(reply.raw)
      begun.open()
    })
    await goWhen(begun.opened, port)
    await expect.poll(() => replay(port)).toEqual(isNotKept)
    expect(handled).toBe(1)
  })

  test('what a hijacked reply sends comes at once, and not when it has ended', async () => {
    const told = gate()
    const port = await start((_, reply) => {
      reply.hijack()
      reply.raw.writeHead(200, { 'content-type': 'text/event-stream' }).write('data: 1\n\n')
      void told.opened.then(() => reply.raw.end('data: 2\n\n'))
    })
    const headers = { 'idempotency-key': 'k', 'content-type': 'text/plain' }
    const { body } = await fetch(`http://127.0.0.1:${port}/`, { method: 'POST', body: 'ten', headers })
    const events: string[] = []
    for await (const chunk of (body as ReadableStream<Uint8Array>).values()) {
      events.push(Buffer.from(chunk).toString())
      told.open()
    }
    expect(events.join('')).toBe('data: 1\n\ndata: 2\n\n')
  })

  test('the client of a hijacked reply that is not ended in time gets a 500', async () => {
    const warned = vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
    const port = await start((_, reply) => void reply.hijack(), { options: { handlerTimeout: '100ms' } })
    expect((await ask(port)).status).toBe(500)
    expect(warned).toHaveBeenCalledOnce()
    warned.mockRestore()
  })

  test('a reply that is ended past Fastify, and was not hijacked, is stored', async () => {
    const port = await start((_, reply) => void reply.raw.writeHead(201).end('paid'))
    expect(await replay(port)).toEqual([201, 'paid', null])
    expect(await replay(port)).toEqual([201, 'paid', 'true'])
  })

  test('hooks change a reply once, wherever they are registered, and a replay is what has left them', async () => {
    const app = fastify()
    app.addContentTypeParser('*', { parseAs: 'string' }, async (_: unknown, body: unknown) => body)
    const wrap = async (_: unknown, __: unknown, payload: unknown): Promise<string> => `<${(payload as string).trim()}>`
    app.addHook('onRequest', async (_, reply) => void reply.header('x-before', 'kept'))
    app.addHook('onSend', wrap)
    await app.register(keysOf().fastify)
    app.addHook('onSend', wrap)
    app.post('/', async () => 'paid')
    for (const replayed of [undefined, 'true']) {
      const headers = { 'idempotency-key': 'k', 'content-type': 'text/plain' }
      const answer = await app.inject({ method: 'POST', url: '/', payload: 'ten', headers })
      expect([answer.statusCode, answer.body, answer.headers['idempotent-replayed']]).toEqual([
        200,
        '<<paid>>',
        replayed,
      ])
      expect(answer.headers['x-before']).toBe('kept')
    }
    await app.close()
  })

  test('a hijacked reply that fails is handled again', async () => {
    let handled = 0
    const port = await start((_, reply) => {
      handled += 1
      reply.hijack()
      reply.raw.writeHead(handled === 1 ? 500 : 200).end('paid')
    })
    expect(await ask(port)).toMatchObject({ status: 500 })
    await expect.poll(() => ask(port)).toMatchObject({ status: 200 })
    expect(handled).toBe(2)
  })

  test('a hijacked reply that is destroyed has failed, and its retry is handled', async () => {
    let handled = 0
    const port = await start((_, reply) => {
      handled += 1
      reply.hijack()
      const source = new PassThrough()
      pipeline(source, reply.raw).catch(() => {})
      source.write('pa')
      if (handled === 1) source.destroy(new Error('broken'))
      else source.end('id')
    })
    await expect(ask(port)).rejects.toThrow()
    await expect.poll(() => ask(port)).toMatchObject({ status: 200, body: 'paid' })
    expect(handled).toBe(2)
  })

  test('a response that a later hook has ended is the response, and its handler is not called', async () => {
    let handled = 0
    const port = await start(async () => `paid ${++handled}`, {
      later: (reply) => void reply.raw.writeHead(200).end('late'),
    })
    expect(await replay(port)).toEqual([200, 'late', null])
    await expect.poll(() => replay(port)).toEqual([200, 'late', 'true'])
    expect(handled).toBe(0)
  })
})

test('node:http: a large response with a status of 500 is handled again', async () => {
  const keys = keysOf()
  let handled = 0
  const port = await serving((request, response) =>
    keys.node(request, response, () => {
      handled += 1
      if (handled === 1) response.writeHead(500).end('y'.repeat(40_000))
      else response.end('paid')
    }),
  )
  expect((await ask(port)).status).toBe(500)
  await expect.poll(() => ask(port)).toMatchObject({ status: 200, body: 'paid' })
})
