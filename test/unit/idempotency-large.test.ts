/**
 * `node:http` and Express: responses that are too large to be stored go out as they come. They are settled when their
 * handler has ended them or their connection has closed, and middleware behind `keys.node` still has its part in them.
 */
import { randomBytes } from 'node:crypto'
import { createServer, IncomingMessage, type RequestListener, ServerResponse } from 'node:http'
import {
  connect,
  createServer as createHttp2Server,
  type Http2ServerRequest,
  type Http2ServerResponse,
} from 'node:http2'
import { type AddressInfo, connect as connectTo, type Socket } from 'node:net'
import { type Duplex, duplexPair } from 'node:stream'
import { text } from 'node:stream/consumers'
import { createGzip } from 'node:zlib'
import express from 'express'
import { expect, test } from 'vitest'
import { ask, keysOf, portOf, serving } from './idempotency-world.ts'
import { gate } from './once-world.ts'

const LARGE = 'y'.repeat(40_000)
const POST = 'POST / HTTP/1.1\r\nhost: a\r\nidempotency-key: k\r\ncontent-length: 0\r\n'

/** A server, and a connection to it that holds back what its client does not read. */
async function connected(handle: RequestListener): Promise<{ port: number; client: Duplex }> {
  const server = createServer(handle)
  const port = await portOf(server.listen(0, '127.0.0.1'))
  const [client, side] = duplexPair()
  server.emit('connection', side)
  return { port, client }
}

const expectNotKept = (port: number): Promise<void> =>
  expect.poll(async () => (await ask(port)).body).toContain('was larger than')

test('a large response that its handler has ended is not handled again, however slowly its client reads', async () => {
  const keys = keysOf({ handlerTimeout: '200ms' })
  const whole = 'y'.repeat(3_000_000)
  let handled = 0
  const { port, client } = await connected((request, response) =>
    keys.node(request, response, () => {
      handled += 1
      response.end(whole)
    }),
  )
  client.write(`${POST}connection: close\r\n\r\n`)
  await expectNotKept(port)
  expect(handled).toBe(1)
  expect((await text(client)).replaceAll(/[^y]/g, '')).toHaveLength(whole.length)
})

test.each(['its client goes before it overflows', 'its client goes after it has overflown', 'its handler destroys it'])(
  'a large response behind one that is not ended does not keep its key in progress if %s',
  async (when) => {
    const keys = keysOf()
    const [begun, overflown, gone] = [gate(), gate(), gate()]
    const port = await serving((request, response) => {
      if (request.method === 'GET') return
      const handle = async (): Promise<void> => {
        request.socket.once('close', () => gone.open())
        begun.open()
        if (when.includes('before')) await gone.opened
        response.write(LARGE)
        overflown.open()
        if (when.includes('destroys')) response.destroy()
      }
      keys.node(request, response, handle as () => unknown)
    })
    const client = connectTo(port, '127.0.0.1')
    client.write(`GET / HTTP/1.1\r\nhost: a\r\n\r\n${POST}\r\n`)
    await (when.includes('before') ? begun : overflown).opened
    if (when.includes('client')) client.destroy()
    await expectNotKept(port)
    client.destroy()
  },
)

test.each(['before its key is looked up', 'while its handler works'])(
  'HTTP/2: a large response to a client that goes %s does not keep its key in progress',
  async (when) => {
    const keys = keysOf()
    const [begun, gone] = [gate(), gate()]
    let isFirst = true
    const handle = async (request: Http2ServerRequest, response: Http2ServerResponse): Promise<void> => {
      const closed = new Promise((resolve) => request.stream.once('close', resolve))
      const going = isFirst && when.startsWith('before')
      isFirst = false
      begun.open()
      if (going) await closed
      const work = async (): Promise<void> => {
        await closed
        response.write(LARGE)
        gone.open()
      }
      keys.node(request as never, response as never, work as () => unknown)
    }
    const server = createHttp2Server((request, response) => void handle(request, response))
    await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve))
    const session = connect(`http://127.0.0.1:${(server.address() as AddressInfo).port}`)
    const post = (): ReturnType<typeof session.request> =>
      session.request({ ':method': 'POST', 'idempotency-key': 'k' }, { endStream: true })
    const first = post()
    first.on('error', () => {})
    await begun.opened
    first.close(8)
    await gone.opened
    await expect.poll(() => text(post())).toContain('was larger than')
    session.close()
    server.close()
  },
)

test('a large response is settled by its end where an adapter has something else in the place of a socket', async () => {
  const keys = keysOf()
  const request = new IncomingMessage({ remoteAddress: '127.0.0.1' } as Socket)
  Object.assign(request, { method: 'POST', url: '/', headers: { 'idempotency-key': 'k' } })
  const response = new ServerResponse(request)
  keys.node(request, response, () => void response.end(LARGE))
  await expectNotKept(await serving((again, told) => keys.node(again, told, () => void told.end('paid'))))
})

test('large responses leave no listeners on a connection that is kept alive', async () => {
  const keys = keysOf()
  const counts: number[] = []
  const { client } = await connected((request, response) =>
    keys.node(request, response, () => {
      counts.push(request.socket.listenerCount('close'))
      response.end(`${LARGE}!`)
    }),
  )
  for (const key of ['a', 'b', 'c']) {
    client.write(POST.replace('key: k', `key: ${key}`).concat('\r\n'))
    for (let read = ''; !read.includes('!'); )
      read += String((await client.iterator({ destroyOnReturn: false }).next()).value)
  }
  expect(counts).toEqual([counts[0], counts[0], counts[0]])
})

/** As `compression` does it. */
const gzip: express.RequestHandler = (_, response, next) => {
  const { write, end } = response
  const zip = createGzip()
  zip.on('data', (chunk: Buffer) => {
    if (!Reflect.apply(write, response, [chunk])) zip.pause()
  })
  zip.on('end', () => void Reflect.apply(end, response, []))
  response.on('drain', () => zip.resume())
  response.setHeader('content-encoding', 'gzip')
  Object.assign(response, {
    write: (chunk: Buffer) => zip.write(chunk),
    end: (chunk?: Buffer) => (chunk === undefined ? zip.end() : zip.end(chunk)),
  })
  next()
}

test('Express: middleware behind the guard that compresses has its part in a response that is too large', async () => {
  const large = randomBytes(100_000).toString('hex')
  const app = express()
  app.post('/', keysOf().node, gzip, async (_, response) => {
    response.write(large)
    while (!response.headersSent) await new Promise((resolve) => setImmediate(resolve))
    response.write(large)
    response.end('the end')
  })
  const port = await serving(app)
  expect((await ask(port)).body === `${large}${large}the end`).toBe(true)
  await expectNotKept(port)
})

test.each(['small', 'large'])(
  'Express: middleware behind the guard that waits for the head of a %s response sets headers of it',
  async (size) => {
    const app = express()
    const stamp: express.RequestHandler = (_, response, next) => {
      const { writeHead } = response
      Object.assign(response, {
        writeHead: (...given: unknown[]): ServerResponse => {
          if (!response.hasHeader('set-cookie')) response.setHeader('set-cookie', 'stamped')
          return Reflect.apply(writeHead, response, given) as ServerResponse
        },
      })
      next()
    }
    app.post('/', keysOf().node, stamp, (_, response) => void response.end(size === 'small' ? 'paid' : LARGE))
    const port = await serving(app)
    expect((await ask(port)).headers.get('set-cookie')).toBe('stamped')
    if (size === 'small') expect((await ask(port)).headers.get('set-cookie'), 'a replay').toBe('stamped')
  },
)
