/** Fastify: what handlers write to `reply.raw` without `hijack()` is the response, as without a key. */
import type { ServerResponse } from 'node:http'
import { PassThrough } from 'node:stream'
import fastify, { type FastifyReply, type FastifyRequest } from 'fastify'
import { describe, expect, test } from 'vitest'
import type { IdempotencyOptions } from '../../src/recipes/http/index.ts'
import { ask, goWhen, keysOf, portOf } from './idempotency-world.ts'
import { gate } from './once-world.ts'

async function start(
  handler: (request: FastifyRequest, reply: FastifyReply) => unknown,
  options: Partial<IdempotencyOptions> = {},
): Promise<number> {
  const app = fastify()
  app.addContentTypeParser('*', { parseAs: 'string' }, async (_: unknown, body: unknown) => body)
  await app.register(keysOf(options).fastify)
  app.post('/', handler as () => Promise<unknown>)
  await app.listen({ host: '127.0.0.1', port: 0 })
  return portOf(app.server)
}

const replay = async (port: number): Promise<readonly unknown[]> => {
  const { status, body, headers } = await ask(port)
  return [status, body, headers.get('content-type'), headers.get('idempotent-replayed')]
}

const HEAD = { 'content-type': 'text/made' }

const WAYS: Readonly<Record<string, (raw: ServerResponse, source: PassThrough) => unknown>> = {
  'a head, and pipes into it': (raw, source) => source.pipe(raw.writeHead(201, HEAD)),
  'a head, and writes later': (raw, source) => {
    raw.writeHead(201, HEAD)
    source.on('data', (chunk) => raw.write(chunk)).once('end', () => raw.end())
  },
  'a part, and pipes the rest': (raw, source) => {
    raw.statusCode = 201
    raw.setHeader('content-type', 'text/made').write('')
    source.pipe(raw)
  },
}

describe('what an async handler writes past Fastify, and ends when it has returned, is told and stored', () => {
  const clients = ['waits', 'has gone']
  test.each(Object.keys(WAYS).flatMap((way) => clients.map((client) => [way, client])))(
    'it writes %s, and its client %s',
    async (way, client) => {
      const [begun, gone] = [gate(), gate()]
      let handled = 0
      const port = await start(async (request, { raw }) => {
        handled += 1
        const source = new PassThrough()
        WAYS[way]?.(raw, source)
        request.socket.once('close', () => gone.open())
        begun.open()
        if (client === 'has gone') await gone.opened
        // After Fastify has looked what the handler has answered.
        setImmediate(() => source.end('paid'))
      })
      if (client === 'has gone') await goWhen(begun.opened, port)
      else expect(await replay(port)).toEqual([201, 'paid', 'text/made', null])
      await expect.poll(() => replay(port)).toEqual([201, 'paid', 'text/made', 'true'])
      expect(handled).toBe(1)
    },
  )
})

test('a stream that an async handler sends, and does not return, breaks as without a key, and the retry is handled', async () => {
  let handled = 0
  const port = await start(async (_, reply) => {
    handled += 1
    if (handled > 1) return 'paid'
    const source = new PassThrough()
    void reply.send(source)
    source.write('pa')
    await new Promise(setImmediate)
    setImmediate(() => source.destroy(new Error('upstream')))
    return undefined
  })
  await expect(ask(port)).rejects.toThrow()
  await expect.poll(() => ask(port)).toMatchObject({ status: 200, body: 'paid' })
})

test.each(['a handler', 'an async handler'])(
  'events of %s whose head was flushed come at once, are told as not kept, and are not sent again',
  async (which) => {
    const told = gate()
    let handled = 0
    const answer = ({ raw }: FastifyReply): void => {
      handled += 1
      raw.writeHead(200, { 'content-type': 'text/event-stream' })
      raw.flushHeaders()
      raw.write('data: 1\n\n')
      void told.opened.then(() => raw.end('data: 2\n\n'))
    }
    const port = await start(which === 'a handler' ? (_, reply) => answer(reply) : async (_, reply) => answer(reply))
    const headers = { 'idempotency-key': 'k', 'content-type': 'text/plain' }
    const response = await fetch(`http://127.0.0.1:${port}/`, { method: 'POST', body: 'ten', headers })
    expect(response.headers.get('content-type')).toBe('text/event-stream')
    const events: string[] = []
    for await (const chunk of (response.body as ReadableStream<Uint8Array>).values()) {
      events.push(Buffer.from(chunk).toString())
      told.open()
    }
    expect(events.join('')).toBe('data: 1\n\ndata: 2\n\n')
    await expect
      .poll(() => ask(port))
      .toMatchObject({ status: 409, body: expect.stringContaining('urn:holdfast:not-kept') })
    expect(handled).toBe(1)
  },
)

test.each(['flushed', 'too large to be held back'])(
  'a response that is not ended in time, and whose head was %s, does not look whole',
  async (what) => {
    const answer = async (_: FastifyRequest, { raw }: FastifyReply): Promise<void> => {
      raw.writeHead(200, HEAD)
      if (what === 'flushed') raw.flushHeaders()
      else raw.write('y'.repeat(40_000))
    }
    const port = await start(answer, { handlerTimeout: '100ms' })
    await expect(ask(port)).rejects.toThrow()
  },
)
