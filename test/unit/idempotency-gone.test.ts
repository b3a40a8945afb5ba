/** Clients that go away before their response is made, and responses that no framework is told of: no key may hang. */
import { once } from 'node:events'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { PassThrough, pipeline as pipelineOf, Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import express from 'express'
import fastify, { type FastifyReply, type FastifyRequest } from 'fastify'
import { describe, expect, test, vi } from 'vitest'
import type { Idempotency } from '../../src/recipes/http/index.ts'
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
    { later, declaredBefore = false }: { later?: (reply: FastifyReply) => void; declaredBefore?: boolean } = {},
  ): Promise<number> {
    const app = fastify()
    app.addContentTypeParser('*', { parseAs: 'string' }, async (_: unknown, body: unknown) => body)
    const declare = (): unknown => app.post('/', handler as () => Promise<unknown>)
    if (declaredBefore) declare()
    await app.register(keysOf().fastify)
    if (later !== undefined) app.addHook('preHandler', async (_, reply) => later(reply))
    if (!declaredBefore) declare()
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
    [
      'a stream that it does not return',
      async (reply: FastifyReply, ended: Promise<void>) => {
        await ended
        const source = new PassThrough()
        void reply.send(source)
        setImmediate(() => source.end('paid'))
      },
    ],
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

  test('a route that was declared before is not known to begin: what was ended past Fastify counts as done', async () => {
    let handled = 0
    const port = await start(async () => `paid ${++handled}`, {
      declaredBefore: true,
      later: (reply) => void reply.raw.writeHead(200).end('late'),
    })
    expect(await replay(port)).toEqual([200, 'late', null])
    await expect.poll(() => replay(port)).toEqual(isNotKept)
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
