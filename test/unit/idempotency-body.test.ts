/**
 * The body is part of what an `Idempotency-Key` stands for. One that the framework has not read, because a parser was
 * forgotten or comes too late, is refused: another body under the same key would be answered from the record.
 */
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer, type RequestListener, request, type Server } from 'node:http'
import { connect, createServer as createHttp2Server } from 'node:http2'
import { createRequire } from 'node:module'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import express from 'express'
import fastify from 'fastify'
import { Hono } from 'hono'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { memory } from '../../src/engines/memory/index.ts'
import { type Idempotency, type IdempotencyOptions, idempotency } from '../../src/recipes/http/index.ts'
import { closeAll, locksOn } from './once-world.ts'

const closing: (() => Promise<unknown>)[] = []
const warned = vi.spyOn(process, 'emitWarning')
beforeEach(() => void warned.mockReset())
afterEach(async () => {
  for (const close of closing.splice(0)) await close()
  await closeAll()
})

function keysOf(options: Partial<IdempotencyOptions> = {}): Idempotency {
  return idempotency(locksOn(memory()), { scope: () => '', ...options })
}

async function serving(handle: RequestListener): Promise<number> {
  const server: Server = createServer(handle).listen(0, '127.0.0.1')
  await once(server, 'listening')
  closing.push(async () => {
    server.closeAllConnections()
    server.close()
    await once(server, 'close')
  })
  return (server.address() as AddressInfo).port
}

/** Answers the status and the body, or the type of a problem. */
async function ask(port: number, body: string | undefined, headers: Record<string, string> = {}): Promise<string> {
  const sent = { 'idempotency-key': 'k', 'content-type': 'application/json', ...headers }
  const about = { method: 'POST', headers: sent, ...(body === undefined ? {} : { body }) }
  const response = await fetch(`http://127.0.0.1:${port}/`, about)
  const said = await response.text()
  return `${response.status} ${said.startsWith('{"type"') ? (JSON.parse(said) as { type: string }).type : said}`
}

interface Multer {
  (options: object): { any(): express.RequestHandler; single(name: string): express.RequestHandler }
  memoryStorage(): object
}

/** That of Nest. */
function multer(): Multer {
  return createRequire(createRequire(import.meta.url).resolve('@nestjs/platform-express'))('multer') as Multer
}

async function upload(port: number, files: Readonly<Record<string, string>>, cents = '1'): Promise<string> {
  const body = new FormData()
  body.set('cents', cents)
  for (const [field, text] of Object.entries(files)) body.append(field, new File([text], 'receipt.txt'))
  const response = await fetch(`http://127.0.0.1:${port}/`, {
    method: 'POST',
    headers: { 'idempotency-key': 'k' },
    body,
  })
  const said = await response.text()
  return `${response.status} ${said.startsWith('{"type"') ? (JSON.parse(said) as { type: string }).type : said}`
}

const REFUSED = '415 urn:holdfast:body-not-read'

test('Express: a parser that comes too late does not let another body be answered from the record', async () => {
  const app = express()
  const keys = keysOf()
  let handled = 0
  app.post('/', keys.node, express.json(), (_, response) => void response.send(`paid ${++handled}`))
  const port = await serving(app)
  expect(await ask(port, '{"cents":1}')).toBe(REFUSED)
  expect(await ask(port, '{"cents":2}')).toBe(REFUSED)
  expect(handled).toBe(0)
  expect(warned, 'once, however many requests come').toHaveBeenCalledOnce()
  const [[warning, about]] = warned.mock.calls as unknown as [[string, object]]
  expect(warning).toMatch(/body parser before.*or give fingerprint/)
  expect(about).toEqual({ code: 'HOLDFAST_BODY_NOT_READ' })
  expect(await ask(port, undefined), 'a request without a body').toBe('200 paid 1')
})

test('Express: a body behind its parser is part of the request, and one that no parser reads is refused', async () => {
  const app = express()
  app.use(express.json())
  app.post('/', keysOf().node, (_, response) => void response.send('paid'))
  const port = await serving(app)
  expect(await ask(port, '{"cents":1}')).toBe('200 paid')
  expect(await ask(port, '{"cents":2}')).toBe('422 urn:holdfast:key-reused')
  expect(warned).not.toHaveBeenCalled()
  expect(await ask(port, '{"cents":3}', { 'content-type': 'text/plain' })).toBe(REFUSED)
})

test('Express 4: the empty object that stands for a body that was not read is none', async () => {
  const app = express()
  app.use((asked, _, next) => {
    asked.body = {}
    next()
  })
  app.post('/', keysOf().node, (_, response) => void response.send('paid'))
  expect(await ask(await serving(app), '{"cents":1}')).toBe(REFUSED)
})

test('an empty object that was read is a body', async () => {
  const app = express()
  app.use(express.json())
  app.post('/', keysOf().node, (_, response) => void response.send('paid'))
  const port = await serving(app)
  expect([await ask(port, '{}'), await ask(port, '{"cents":1}')]).toEqual(['200 paid', '422 urn:holdfast:key-reused'])
})

test('node:http: a body needs a fingerprint, also one whose length is not told', async () => {
  const start = (keys: Idempotency): Promise<number> =>
    serving((asked, response) => keys.node(asked, response, () => void response.end('paid')))
  const port = await start(keysOf())
  expect(await ask(port, 'ten')).toBe(REFUSED)
  const headers = { 'idempotency-key': 'k', 'transfer-encoding': 'chunked' }
  const chunked = request({ port, method: 'POST', headers })
  chunked.end('ten')
  const [response] = await once(chunked, 'response')
  expect([response.statusCode, await text(response)]).toEqual([415, expect.stringContaining('body-not-read')])
  expect(await ask(await start(keysOf({ fingerprint: ({ url }) => url })), 'ten')).toBe('200 paid')
})

describe('HTTP/2: a body is one whose length no header tells, and what has none is handled', () => {
  const servers: Readonly<Record<string, (keys: Idempotency) => Promise<number>>> = {
    'node:http2': async (keys) => {
      const server = createHttp2Server((asked, response) =>
        keys.node(asked as never, response as never, () => void response.end('paid')),
      )
      await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve))
      closing.push(() => new Promise((resolve) => void server.close(resolve)))
      return (server.address() as AddressInfo).port
    },
    Fastify: async (keys) => {
      const app = fastify({ http2: true })
      await app.register(keys.fastify as never)
      app.post('/', async () => 'paid')
      await app.listen({ host: '127.0.0.1', port: 0 })
      closing.push(() => app.close())
      return (app.server.address() as AddressInfo).port
    },
  }
  test.each(Object.keys(servers))('%s', async (name) => {
    const port = await (servers[name] as (typeof servers)[string])(keysOf())
    const session = connect(`http://127.0.0.1:${port}`)
    closing.unshift(async () => session.destroy())
    const post = async (key: string, body: string | undefined, headers = {}): Promise<string> => {
      const about = { ':method': 'POST', 'idempotency-key': key, ...headers }
      const stream = session.request(about, { endStream: body === undefined })
      if (body !== undefined) stream.end(body)
      const [{ ':status': status }] = (await once(stream, 'response')) as [{ ':status': number }]
      return `${status} ${await text(stream)}`
    }
    for (const body of ['ten', 'eleven']) expect(await post('a', body)).toMatch(/^415 .*body-not-read/)
    expect(await post('b', undefined)).toBe('200 paid')
    expect(await post('c', '', { 'content-length': 0 })).toBe('200 paid')
  })
})

test('Fastify: a parser that leaves the body to the handler is the same', async () => {
  const app = fastify()
  app.addContentTypeParser('multipart/form-data', (_: unknown, __: unknown, done: (error: null) => void) => done(null))
  await app.register(keysOf().fastify)
  app.post('/', async () => 'paid')
  await app.listen({ host: '127.0.0.1', port: 0 })
  closing.push(() => app.close())
  const { port } = app.server.address() as AddressInfo
  expect(await ask(port, 'part', { 'content-type': 'multipart/form-data; boundary=x' })).toBe(REFUSED)
  expect(await ask(port, '{"cents":1}')).toBe('200 paid')
})

test('a handler of Hono can read the stream of a request with a key', async () => {
  const app = new Hono()
  const keys = idempotency(locksOn(memory()), { scope: () => '' })
  app.use(keys.hono)
  app.post('/payments', async ({ req }) => {
    const chunks: Uint8Array[] = []
    for await (const chunk of req.raw.body as unknown as AsyncIterable<Uint8Array>) chunks.push(chunk)
    return new Response(`read ${Buffer.concat(chunks).toString()}`)
  })
  const ask = async (body: string): Promise<string> => {
    const headers = { 'idempotency-key': '"stream"' }
    const response = await app.request('/payments', { method: 'POST', body, headers })
    return `${response.status} ${await response.text()}`
  }
  expect(await ask('100 cents')).toBe('200 read 100 cents')
  expect(await ask('100 cents')).toBe('200 read 100 cents')
  expect(await ask('200 cents')).toMatch(/^422/)
})

const REUSED = '422 urn:holdfast:key-reused'

test.each(['any', 'single'] as const)(
  'Express: an upload of another file under the same key is another request (multer, %s)',
  async (way) => {
    const app = express()
    let handled = 0
    const parser = multer()({ storage: multer().memoryStorage() })
    const parse = way === 'any' ? parser.any() : parser.single('receipt')
    app.post('/', parse, keysOf().node, (_, response) => void response.send(`paid ${++handled}`))
    const port = await serving(app)
    expect(await upload(port, { receipt: 'first' })).toBe('200 paid 1')
    expect(await upload(port, { receipt: 'first' }), 'its retry, built anew').toBe('200 paid 1')
    expect(await upload(port, { receipt: 'other' })).toBe(REUSED)
    expect(await upload(port, {})).toBe(REUSED)
    expect(await upload(port, { receipt: 'first' }, '2')).toBe(REUSED)
  },
)

test('Express: an upload whose files are on a disk is refused, unless a fingerprint knows them', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-upload-'))
  closing.push(async () => rmSync(folder, { recursive: true, force: true }))
  for (const [keys, said] of [
    [keysOf(), REFUSED],
    [keysOf({ fingerprint: ({ header }) => header('content-digest') ?? '' }), '200 paid'],
  ] as const) {
    const app = express()
    app.post('/', multer()({ dest: folder }).any(), keys.node, (_, response) => void response.send('paid'))
    expect(await upload(await serving(app), { receipt: 'first' })).toBe(said)
  }
  expect(warned).toHaveBeenCalledOnce()
})

test('Express: files of express-fileupload are part of the request, by field and by content', async () => {
  const app = express()
  let [handled, files] = [0, {}]
  // As it puts them: by field, one or a list; with files on a disk, the content is empty.
  app.use((incoming, _, next) => {
    Object.assign(incoming, { body: {}, files })
    incoming.resume().once('end', next)
  })
  app.post('/', keysOf().node, (_, response) => void response.send(`paid ${++handled}`))
  const port = await serving(app)
  const file = (text: string, size = text.length) => ({ name: 'a.txt', data: Buffer.from(text), size, mv: () => {} })
  const ask = (now: object): Promise<string> => {
    files = now
    return upload(port, {})
  }
  expect(await ask({ receipt: [file('one'), file('two')] })).toBe('200 paid 1')
  expect(await ask({ receipt: [file('one'), file('two')] })).toBe('200 paid 1')
  expect(await ask({ receipt: [file('one'), file('six')] })).toBe(REUSED)
  expect(await ask({ other: [file('one'), file('two')] })).toBe(REUSED)
  expect(await ask({ receipt: file('', 3) })).toBe(REFUSED)
})

test('a fingerprint that is a promise is refused: all requests would be the same', async () => {
  const app = express()
  app.set('env', 'test')
  const keys = keysOf({ fingerprint: () => Promise.reject(new Error('broken')) })
  app.post('/', express.json(), keys.node, (_, response) => void response.send('paid'))
  expect(await ask(await serving(app), '{}')).toContain('500')
})
