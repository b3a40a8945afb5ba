/**
 * `node:http` and Express: what a handler says in the head of its response, and how it says it. What cannot be sent is
 * an error of the handler, and what can is sent and replayed as without a key.
 */
import { createServer, type ServerResponse } from 'node:http'
import express from 'express'
import { describe, expect, test, vi } from 'vitest'
import { ask, keysOf, portOf, serving } from './idempotency-world.ts'
import { gate } from './once-world.ts'

test('node:http: a status that is a string is replayed as the number that it is sent as', async () => {
  const keys = keysOf()
  const port = await serving((request, response) =>
    keys.node(request, response, () => {
      response.statusCode = '201' as unknown as number
      response.end('paid')
    }),
  )
  for (const replayed of [null, 'true']) {
    const { status, body, headers } = await ask(port)
    expect([status, body, headers.get('idempotent-replayed')]).toEqual([201, 'paid', replayed])
  }
})

test.each(['statusCode', 'writeHead'])(
  'node:http: a status that cannot be sent, by %s, is an error of the handler, and the retry is handled',
  async (by) => {
    const warned = vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
    const keys = keysOf()
    let status = 42
    const port = await serving((request, response) =>
      keys.node(request, response, () => {
        if (by === 'writeHead') response.writeHead(status)
        response.statusCode = status
        response.end('paid')
      }),
    )
    expect((await ask(port)).status).toBe(500)
    expect(warned).toHaveBeenCalledOnce()
    warned.mockRestore()
    status = 201
    expect(await ask(port)).toMatchObject({ status: 201, body: 'paid' })
  },
)

describe('a status message that cannot be sent is an error of the handler, and the retry is handled', () => {
  const bodies: Readonly<Record<string, string>> = { small: 'paid', large: 'y'.repeat(40_000) }
  test.each(Object.keys(bodies).flatMap((size) => ['with a key', 'without a key'].map((key) => [size, key])))(
    'node:http: %s, %s',
    async (size, key) => {
      const warned = vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
      const keys = keysOf()
      let message = 'paid \u2713'
      const port = await serving((request, response) =>
        keys.node(request, response, () => {
          response.statusMessage = message
          response.end(bodies[size])
        }),
      )
      const asking = key === 'with a key' ? ask(port) : fetch(`http://127.0.0.1:${port}/`, { method: 'POST' })
      expect((await asking).status).toBe(500)
      expect(warned).toHaveBeenCalledOnce()
      warned.mockRestore()
      message = 'Paid'
      const { status, headers } = await ask(port)
      expect([status, headers.get('idempotent-replayed')]).toEqual([200, null])
    },
  )

  test.each(Object.keys(bodies))('Express: %s, of which nothing is sent before the error', async (size) => {
    const app = express()
    app.set('env', 'test')
    let message = 'paid \u2713'
    app.post('/', keysOf().node, (_, response) => {
      response.statusMessage = message
      if (size === 'large') response.write(bodies[size])
      response.end(size === 'large' ? '' : bodies[size])
    })
    const port = await serving(app)
    const { status, body } = await ask(port)
    expect([status, body.slice(0, 9)]).toEqual([500, '<!DOCTYPE'])
    message = 'Paid'
    const again = await ask(port)
    expect([again.status, again.body, again.headers.get('idempotent-replayed')]).toEqual([200, bodies[size], null])
  })
})

test('node:http: what a broken handler has said of the body is not said of the 500', async () => {
  const warned = vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
  const port = await serving((request, response) =>
    keysOf().node(request, response, () => {
      response.setHeader('content-length', 100).setHeader('content-encoding', 'gzip').setHeader('x-before', 'kept')
      throw new Error('broken')
    }),
  )
  const response = await fetch(`http://127.0.0.1:${port}/`, { method: 'POST' })
  expect([response.status, await response.text(), response.headers.get('x-before')]).toEqual([500, '', 'kept'])
  warned.mockRestore()
})

describe('node:http: the length of an error is told, so that its connection can be kept as it says', () => {
  const handlers: Readonly<Record<string, [length: string, handle: (response: ServerResponse) => unknown]>> = {
    'of a handler that fails': ['0', () => Promise.reject(new Error('broken'))],
    'that takes the place of a part of a body': [
      '8',
      (response) => {
        response.write('pa')
        response.statusCode = 402
        response.end('declined')
      },
    ],
  }
  test.each(Object.keys(handlers))('%s', async (which) => {
    vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
    const [length, handle] = handlers[which] as (typeof handlers)[string]
    const keys = keysOf()
    const port = await serving((request, response) =>
      keys.node(request, response, (() => handle(response)) as () => unknown),
    )
    const { headers } = await ask(port)
    expect([headers.get('connection'), headers.get('content-length')]).toEqual(['keep-alive', length])
    vi.restoreAllMocks()
  })
})

test.each(['small', 'large'])('the callback of end() is called once, when the %s response was sent', async (size) => {
  const keys = keysOf()
  const closed = gate()
  const calls: boolean[] = []
  const port = await serving((request, response) =>
    keys.node(request, response, () => {
      response.once('close', () => closed.open())
      response.end(size === 'small' ? 'paid' : 'y'.repeat(40_000), () => calls.push(response.headersSent))
    }),
  )
  await ask(port)
  await closed.opened
  expect(calls).toEqual([true])
})

test('node:http: writeHead takes headers in pairs, as names and values in turn, and as an object', async () => {
  const forms: unknown[] = [
    [
      ['content-type', 'text/made'],
      ['set-cookie', 'a=1'],
      ['set-cookie', 'b=2'],
    ],
    ['content-type', 'text/made', 'set-cookie', 'a=1', 'set-cookie', 'b=2'],
    { 'content-type': 'text/made', 'set-cookie': ['a=1', 'b=2'] },
  ]
  for (const form of forms) {
    const keys = keysOf()
    const port = await serving((request, response) =>
      keys.node(request, response, () => void response.writeHead(201, form as string[]).end('paid')),
    )
    for (const replayed of [null, 'true']) {
      const { status, headers } = await ask(port)
      expect([status, headers.get('idempotent-replayed'), headers.get('content-type')]).toEqual([
        201,
        replayed,
        'text/made',
      ])
      expect(headers.getSetCookie()).toEqual(['a=1', 'b=2'])
    }
  }
})

test.each([
  [204, ''],
  [304, ''],
  [204, 'paid'],
])(
  'node:http: a %i with a body of "%s" is sent and replayed by a server that refuses bodies where none belong',
  async (status, body) => {
    const keys = keysOf()
    const server = createServer({ rejectNonStandardBodyWrites: true }, (request, response) =>
      keys.node(request, response, () => void response.writeHead(status).end(body)),
    )
    const port = await portOf(server.listen(0, '127.0.0.1'))
    for (const replayed of [null, 'true']) {
      const answer = await ask(port)
      expect([answer.status, answer.headers.get('idempotent-replayed')]).toEqual([status, replayed])
    }
  },
)

test.each([
  ['empty', ''],
  ['small', 'paid'],
  ['large', 'y'.repeat(40_000)],
])(
  'Express: middleware before the guard whose end() takes a chunk and an encoding is given no callback (%s)',
  async (_, body) => {
    const closed = gate()
    let told = 0
    const app = express()
    // As those of compression and of sessions are.
    app.use((__, response, next) => {
      const { end } = response
      Object.assign(response, {
        end: (chunk?: string | Buffer, encoding?: BufferEncoding): unknown => {
          if (chunk) Buffer.byteLength(chunk, encoding)
          return Reflect.apply(end, response, [chunk, encoding])
        },
      })
      next()
    })
    const handle: express.RequestHandler = (__, response) => {
      response.once('close', () => closed.open())
      response.status(body === '' ? 204 : 201)
      if (body !== '') response.write(body)
      response.end(() => {
        told += 1
      })
    }
    app.post('/', keysOf().node, handle)
    app.patch('/', keysOf().node, (__, response) => void response.status(204).end())
    const port = await serving(app)
    const url = `http://127.0.0.1:${port}/`
    const headers = { 'idempotency-key': 'k' }
    expect(await ask(port)).toMatchObject({ status: body === '' ? 204 : 201, body })
    for (let time = 1; time <= 2; time += 1)
      expect((await fetch(url, { method: 'PATCH', headers })).status, 'without a callback').toBe(204)
    await closed.opened
    expect(told).toBe(1)
  },
)

test.each(['node:http', 'Express'])(
  '%s: middleware behind the guard that adds headers to each head leaves the body whole, at first and in a replay',
  async (name) => {
    const keys = keysOf({ headers: ['x-added'] })
    const addHeader = (response: ServerResponse): void => {
      const { writeHead } = response
      response.writeHead = ((status: number, headers?: object) =>
        Reflect.apply(writeHead, response, [status, { ...headers, 'x-added': 'yes' }])) as typeof writeHead
    }
    const answer = (response: ServerResponse): void => {
      addHeader(response)
      response.write('pa')
      response.end('id')
    }
    const app = express().post('/', keys.node, (_, response) => answer(response))
    const port = await serving(
      name === 'Express' ? app : (request, response) => keys.node(request, response, () => answer(response)),
    )
    for (const replayed of [null, 'true']) {
      const { body, headers } = await ask(port)
      expect([body, headers.get('x-added'), headers.get('idempotent-replayed')]).toEqual(['paid', 'yes', replayed])
    }
  },
)
