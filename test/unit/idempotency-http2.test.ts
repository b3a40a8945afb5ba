/** HTTP/2: its responses tell of a client that has gone in another way, and its bodies have no header that tells of them. */
import { once } from 'node:events'
import { type ClientHttp2Session, connect, createServer } from 'node:http2'
import type { AddressInfo } from 'node:net'
import { PassThrough, pipeline, Readable } from 'node:stream'
import { text } from 'node:stream/consumers'
import fastify from 'fastify'
import { afterEach, describe, expect, test } from 'vitest'
import type { Idempotency } from '../../src/recipes/http/index.ts'
import { keysOf } from './idempotency-world.ts'
import { gate } from './once-world.ts'

const closing: (() => Promise<unknown> | void)[] = []
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close()
})

type Answer = (source: Readable, response: NodeJS.WritableStream) => unknown
type Serve = (keys: Idempotency, sourceOf: () => Promise<Readable>, told: (event: string) => void) => Promise<number>

async function servingHttp2(keys: Idempotency, answer: (response: NodeJS.WritableStream) => unknown): Promise<number> {
  const server = createServer((request, response) =>
    keys.node(request as never, response as never, () => answer(response)),
  )
  await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve))
  closing.push(() => new Promise((resolve) => void server.close(resolve)))
  return (server.address() as AddressInfo).port
}

const nodeServer =
  (answer: Answer): Serve =>
  (keys, sourceOf, told) =>
    servingHttp2(keys, async (response) => {
      for (const event of ['finish', 'close']) response.once(event, () => told(event))
      answer(await sourceOf(), response)
    })

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
  closing.push(() => session.destroy())
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
