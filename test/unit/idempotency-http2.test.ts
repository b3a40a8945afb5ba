/** HTTP/2: a client that has gone is told of in another way there, and no header has to tell of a body. */
import { once } from 'node:events'
import {
  type ClientHttp2Session,
  connect,
  createServer,
  type Http2Server,
  type Http2ServerRequest,
  type Http2ServerResponse,
} from 'node:http2'
import type { AddressInfo } from 'node:net'
import { PassThrough, pipeline, type Readable } from 'node:stream'
import { text } from 'node:stream/consumers'
import fastify from 'fastify'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { memory } from '../../src/engines/memory/index.ts'
import { type Idempotency, idempotency } from '../../src/recipes/http/index.ts'
import { type Client, keysOf, overHttp2, portOf } from './idempotency-world.ts'
import { gate, locksOn } from './once-world.ts'

const closing: (() => Promise<unknown>)[] = []
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close()
})

type Answer = (source: Readable, response: NodeJS.WritableStream) => unknown
type Serve = (keys: Idempotency, sourceOf: () => Promise<Readable>, told: (event: string) => void) => Promise<number>

async function listening(server: Http2Server): Promise<number> {
  await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve))
  closing.push(() => new Promise((resolve) => void server.close(resolve)))
  return (server.address() as AddressInfo).port
}

const nodeServer =
  (answer: Answer): Serve =>
  (keys, sourceOf, told) => {
    const handle = async (response: Http2ServerResponse): Promise<void> => {
      for (const event of ['finish', 'close']) response.once(event, () => told(event))
      answer(await sourceOf(), response)
    }
    const guarded = (request: Http2ServerRequest, response: Http2ServerResponse): void =>
      keys.node(request as never, response as never, (() => handle(response)) as () => unknown)
    return listening(createServer(guarded))
  }

const SERVERS: Readonly<Record<string, Serve>> = {
  'node:http2, pipe': nodeServer((source, response) => source.pipe(response)),
  'node:http2, pipeline': nodeServer((source, response) => pipeline(source, response, () => {})),
  Fastify: async (keys, sourceOf, told) => {
    const app = fastify({ http2: true })
    await app.register(keys.fastify as never)
    app.addHook('onResponse', async () => {
      told('finish')
      told('close')
    })
    app.post('/', async () => sourceOf())
    await app.listen({ host: '127.0.0.1', port: 0 })
    closing.push(() => app.close())
    return (app.server.address() as AddressInfo).port
  },
}

function sessionTo(port: number): ClientHttp2Session {
  const session = connect(`http://127.0.0.1:${port}`)
  closing.push(async () => session.destroy())
  return session
}

const ABOUT = { ':method': 'POST', 'idempotency-key': 'k' }

describe('a stream to a client that leaves is stored, and its retry gets it', () => {
  const whens = ['before it', 'in the middle']
  test.each(Object.keys(SERVERS).flatMap((name) => whens.map((when) => [name, when])))('%s, %s', async (name, when) => {
    const [begun, gone] = [gate(), gate()]
    const source = new PassThrough()
    const told: string[] = []
    let handled = 0
    const sourceOf = async (): Promise<Readable> => {
      handled += 1
      source.write('pa')
      begun.open()
      if (when === whens[0]) await gone.opened
      return source
    }
    const port = await (SERVERS[name] as Serve)(keysOf(), sourceOf, (event) => told.push(event))
    const session = sessionTo(port)
    const left = session.request(ABOUT, { endStream: true })
    await begun.opened
    left.close(8)
    await once(left, 'close')
    // A server reads what it is sent in turn: by then it knows.
    await new Promise((resolve) => void session.ping(resolve))
    gone.open()
    expect(told, 'while the response is made').toEqual([])
    source.write('i')
    source.end('d')
    const replay = async (): Promise<readonly unknown[]> => {
      const stream = session.request(ABOUT, { endStream: true })
      const [head] = (await once(stream, 'response')) as [Record<string, unknown>]
      return [head[':status'], await text(stream), head['idempotent-replayed']]
    }
    await expect.poll(replay).toEqual([200, 'paid', 'true'])
    expect(handled).toBe(1)
    expect(told.slice(0, 2)).toEqual(['finish', 'close'])
  })
})

describe('a body is known by what comes after the head, and one that is empty is none', () => {
  const BODY_SERVERS: Readonly<Record<string, (keys: Idempotency) => Promise<number>>> = {
    'node:http2': (keys) => {
      const server = createServer((request, response) =>
        keys.node(request as never, response as never, () => {
          // As handlers read that know no other way.
          let body = ''
          request.setEncoding('utf8').on('data', (chunk) => {
            body += chunk as string
          })
          request.once('end', () => response.end(`paid ${body}`))
        }),
      )
      return listening(server)
    },
    Fastify: async (keys) => {
      const app = fastify({ http2: true })
      await app.register(keys.fastify as never)
      app.post('/', async ({ raw }) => `paid ${await text(raw)}`)
      await app.listen({ host: '127.0.0.1', port: 0 })
      closing.push(() => app.close())
      return (app.server.address() as AddressInfo).port
    },
  }
  const waits: Readonly<Record<string, (session: ClientHttp2Session) => unknown>> = {
    'right behind its head': () => undefined,
    'when the server has seen its head': (session) => new Promise((resolve) => void session.ping(resolve)),
  }
  test.each(Object.keys(BODY_SERVERS).flatMap((name) => Object.keys(waits).map((when) => [name, when])))(
    '%s, %s',
    async (name, when) => {
      vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
      const session = sessionTo(
        await (BODY_SERVERS[name] as (keys: Idempotency) => Promise<number>)(
          idempotency(locksOn(memory()), { scope: () => '' }),
        ),
      )
      const post = async (...chunks: readonly string[]): Promise<string> => {
        const stream = session.request({ ...ABOUT, 'idempotency-key': `of-${chunks.join().slice(0, 9)}` })
        const [answered, closed] = [once(stream, 'response'), once(stream, 'close')]
        await waits[when]?.(session)
        for (const chunk of chunks) stream.write(chunk)
        stream.end()
        const [head] = (await answered) as [Record<string, unknown>]
        const said = await text(stream)
        await closed
        return `${head[':status'] as number} ${said}`
      }
      expect([await post(), await post()]).toEqual(['200 paid ', '200 paid '])
      for (const body of ['ten', 'y'.repeat(200_000)]) expect(await post(body)).toMatch(/^415 .*body-not-read/)
      vi.restoreAllMocks()
    },
  )
})

describe('a response that its handler sends by the stream under it is told as it comes', () => {
  type Stream = Http2ServerResponse['stream']
  type Handler = (stream: Stream, response: Http2ServerResponse) => unknown
  const fastifyOf =
    (isHijacked: boolean) =>
    async (handler: Handler): Promise<Client> => {
      const app = fastify({ http2: true })
      await app.register(keysOf().fastify as never)
      app.post('/', async (_, reply) => {
        if (isHijacked) reply.hijack()
        const raw = reply.raw as unknown as Http2ServerResponse
        await handler(raw.stream, raw)
      })
      await app.listen({ host: '127.0.0.1', port: 0 })
      return overHttp2(await portOf(app.server as never))
    }
  const servers: Readonly<Record<string, (handler: Handler) => Promise<Client>>> = {
    'node:http2': async (handler) => {
      const keys = keysOf()
      const guarded = (request: Http2ServerRequest, response: Http2ServerResponse): void =>
        keys.node(request as never, response as never, () => void handler(response.stream, response))
      return overHttp2(await portOf(createServer(guarded).listen(0, '127.0.0.1') as never))
    },
    Fastify: fastifyOf(false),
    'Fastify, hijacked': fastifyOf(true),
  }
  const ways: Readonly<Record<string, (stream: Stream, status: number, response: Http2ServerResponse) => unknown>> = {
    respond: (stream, status) => {
      stream.respond({ ':status': status })
      stream.end('// paid')
    },
    respondWithFile: (stream, status) => stream.respondWithFile(import.meta.filename, { ':status': status }),
    'respond, and the response ends it': (stream, status, response) => {
      stream.respond({ ':status': status })
      response.end('// paid')
    },
  }
  // A file is sent later, and Fastify sends a reply of its own before, unless it is told.
  const cases = Object.keys(servers)
    .flatMap((name) => Object.keys(ways).map((way) => [name, way] as const))
    .filter(([name, way]) => name !== 'Fastify' || way !== 'respondWithFile')
  const serve = async (name: string, way: string, statuses: readonly number[]) => {
    const handled: number[] = []
    const client = await servers[name]?.((stream, response) => {
      const status = statuses[handled.length] as number
      handled.push(status)
      return ways[way]?.(stream, status, response)
    })
    return { client: client as Client, handled }
  }

  test.each(cases)('%s, %s: it was done, and is not kept', async (name, way) => {
    const { client, handled } = await serve(name, way, [201])
    expect(await client.ask()).toEqual({ status: 201, body: expect.stringMatching(/^\/[/*]/) })
    await expect
      .poll(() => client.ask())
      .toEqual({ status: 409, body: expect.stringContaining('urn:holdfast:not-kept') })
    expect(handled).toEqual([201])
  })

  test.each(cases)('%s, %s: one with a status of 503 is handled again', async (name, way) => {
    const { client, handled } = await serve(name, way, [503, 201])
    expect((await client.ask()).status).toBe(503)
    await expect.poll(async () => (await client.ask()).status).toBe(201)
    expect(handled).toEqual([503, 201])
  })
})
