/** `attempt.commit()` in a handler of HTTP: the retry is told what the first request was told, or that it was done. */
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { serve } from '@hono/node-server'
import express from 'express'
import fastify from 'fastify'
import { Hono } from 'hono'
import { afterEach, expect, test, vi } from 'vitest'
import { loadDriver } from '../../src/clients/sqlite/driver.ts'
import { connect } from '../../src/connect.ts'
import type { Duration } from '../../src/core/duration.ts'
import { type Attempt, type Idempotency, idempotency } from '../../src/recipes/http/index.ts'

/** Answers the status of the response. */
type Handler = (attempt: Attempt) => Promise<number>

const closing: (() => unknown)[] = []
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close()
})

async function listening(server: Server): Promise<number> {
  if (!server.listening) await once(server, 'listening')
  closing.push(async () => {
    server.closeAllConnections()
    server.close()
    await once(server, 'close')
  })
  return (server.address() as AddressInfo).port
}

const BODY = JSON.stringify({ booked: true })

const FRAMEWORKS: Readonly<Record<string, (keys: Idempotency<Attempt>, handler: Handler) => Promise<number>>> = {
  'node:http': (keys, handler) => {
    const server = createServer((request, response) => {
      const handle = async (): Promise<unknown> => response.writeHead(await handler(keys.attempt(request))).end(BODY)
      keys.node(request, response, handle as () => unknown)
    })
    return listening(server.listen(0, '127.0.0.1'))
  },
  Express: (keys, handler) => {
    const app = express()
    app.set('env', 'test')
    app.post('/', keys.node, async (request, response) => {
      response.status(await handler(keys.attempt(request))).send(BODY)
    })
    return listening(createServer(app).listen(0, '127.0.0.1'))
  },
  Fastify: async (keys, handler) => {
    const app = fastify()
    await app.register(keys.fastify)
    app.post('/', async (request, reply) => reply.code(await handler(keys.attempt(request))).send(BODY))
    await app.listen({ host: '127.0.0.1', port: 0 })
    return listening(app.server)
  },
  Hono: (keys, handler) => {
    const app = new Hono()
    app.post('/', keys.hono, async (context) => new Response(BODY, { status: await handler(keys.attempt(context)) }))
    return listening(serve({ fetch: app.fetch, hostname: '127.0.0.1', port: 0 }) as Server)
  },
}

/**
 * Requests of which the handler books in a transaction, which it commits or rolls back, and then answers `status`,
 * throws, or hangs.
 */
async function start(
  name: string,
  status: number | Error | Promise<number>,
  {
    handlerTimeout = '1h',
    end = 'commit',
    wait = '10s',
  }: { handlerTimeout?: Duration; end?: 'commit' | 'rollback'; wait?: Duration } = {},
) {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-http-commit-'))
  closing.push(() => rmSync(folder, { recursive: true, force: true }))
  const file = join(folder, 'books.db')
  const locks = await connect(`sqlite:${file}`)
  const database = (await loadDriver()).open(file)
  closing.push(
    () => locks.close(),
    () => database.close(),
  )
  database.exec('pragma busy_timeout = 10000; create table books (name text not null)')
  const fingerprint = ({ url }: { url: string }): string => url
  const keys = idempotency(locks, { scope: () => '', required: true, fingerprint, handlerTimeout, wait })
  const port = await (FRAMEWORKS[name] as (typeof FRAMEWORKS)[string])(keys, async (attempt) => {
    database.exec('begin immediate')
    database.prepare('insert into books values (?)').run(attempt.key)
    await attempt.commit(database, { order: 4711 })
    database.exec(end)
    if (status instanceof Error) throw status
    return status
  })
  const ask = async () => {
    const response = await fetch(`http://127.0.0.1:${port}/`, { method: 'POST', headers: { 'idempotency-key': 'k' } })
    return {
      status: response.status,
      body: await response.text(),
      replayed: response.headers.get('idempotent-replayed'),
      retryAfter: response.headers.get('retry-after'),
    }
  }
  return { ask, count: () => database.prepare('select * from books').all().length }
}

test.each(Object.keys(FRAMEWORKS))(
  '%s: the retry of a request that was committed gets its response, not what was committed',
  async (name) => {
    const { ask, count } = await start(name, 201)
    expect(await ask()).toMatchObject({ status: 201, body: BODY, replayed: null })
    expect(await ask()).toMatchObject({ status: 201, body: BODY, replayed: 'true' })
    expect(count()).toBe(1)
  },
)

test.each(Object.keys(FRAMEWORKS))(
  '%s: the retry of a request whose transaction was rolled back after attempt.commit() gets its response',
  async (name) => {
    const { ask, count } = await start(name, 402, { end: 'rollback' })
    expect(await ask()).toMatchObject({ status: 402, body: BODY, replayed: null })
    expect(await ask()).toMatchObject({ status: 402, body: BODY, replayed: 'true' })
    expect(count()).toBe(0)
  },
)

test.each(Object.keys(FRAMEWORKS))(
  '%s: a request that was committed, and whose response was not kept, is not handled again: its retry is told so',
  async (name) => {
    const { ask, count } = await start(name, 500)
    expect(await ask()).toMatchObject({ status: 500, body: BODY })
    for (let retry = 1; retry <= 2; retry += 1) {
      const { status, body, replayed } = await ask()
      expect([status, JSON.parse(body), replayed]).toMatchObject([409, { type: 'urn:holdfast:not-kept' }, null])
    }
    expect(count()).toBe(1)
  },
)

test.each(Object.keys(FRAMEWORKS))(
  '%s: a handler that throws after its commit is a 500, and its retry is told that the request was done',
  async (name) => {
    vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
    vi.spyOn(console, 'error').mockImplementation(() => {})
    const { ask, count } = await start(name, new Error('the mail could not be sent'))
    expect(await ask()).toMatchObject({ status: 500, replayed: null })
    vi.restoreAllMocks()
    const { status, body } = await ask()
    expect([status, JSON.parse(body)]).toMatchObject([409, { type: 'urn:holdfast:not-kept' }])
    expect(count()).toBe(1)
  },
)

test.each(['node:http', 'Express', 'Fastify'])(
  '%s: a handler that has not ended its response in time after its commit is a 500',
  async (name) => {
    vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
    const { ask, count } = await start(name, new Promise(() => {}), { handlerTimeout: '50ms' })
    expect(await ask()).toMatchObject({ status: 500, replayed: null })
    vi.restoreAllMocks()
    expect(await ask()).toMatchObject({ status: 409 })
    expect(count()).toBe(1)
  },
)

test.each(Object.keys(FRAMEWORKS))(
  '%s: a retry that comes after the commit, and before the response, is asked to come again, and then gets it',
  async (name) => {
    let answer!: (status: number) => void
    const answering = new Promise<number>((resolve) => {
      answer = resolve
    })
    const { ask, count } = await start(name, answering, { wait: 0 })
    const first = ask()
    await expect.poll(count).toBe(1)
    const { status, body, retryAfter } = await ask()
    expect([status, JSON.parse(body), retryAfter]).toMatchObject([409, { type: 'urn:holdfast:in-progress' }, '1'])
    answer(201)
    expect(await first).toMatchObject({ status: 201, body: BODY, replayed: null })
    expect(await ask()).toMatchObject({ status: 201, body: BODY, replayed: 'true' })
  },
)
