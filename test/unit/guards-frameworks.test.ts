/**
 * The door in the frameworks themselves: let in with a token, refused with a stale one, none, or a malformed one, by
 * real requests; and what is let in carries its token on.
 */
import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import express from 'express'
import fastify from 'fastify'
import { Hono } from 'hono'
import { describe, expect, test } from 'vitest'
import { type Admission, admission } from '../../src/guards/http.ts'

/** What a framework answers to one request. */
type Ask = (method: string, token?: string) => Promise<Response>

interface Framework extends AsyncDisposable {
  readonly ask: Ask
}

/** Every handler answers with the token that was let in. */
const FRAMEWORKS: Readonly<Record<string, (door: Admission) => Promise<Framework>>> = {
  'node:http': async (door) =>
    await listening(
      createServer((request, response) =>
        door.node(request, response, () => response.end(String(door.lease(request).token))),
      ),
    ),

  Express: async (door) => {
    const app = express()
    app.use(door.node)
    app.all('/accounts/7', (request, response) => void response.send(String(door.lease(request).token)))
    return await listening(createServer(app))
  },

  Fastify: async (door) => {
    const app = fastify()
    app.addHook('preHandler', door.fastify)
    app.all('/accounts/7', async (request) => String(door.lease(request).token))
    await app.listen({ host: '127.0.0.1', port: 0 })
    return {
      ask: asking((app.server.address() as AddressInfo).port),
      [Symbol.asyncDispose]: async () => await app.close(),
    }
  },

  Hono: async (door) => {
    const app = new Hono()
    app.use(door.hono)
    app.all('/accounts/7', (context) => context.text(String(door.lease(context).token)))
    const ask: Ask = async (method, token) =>
      await app.request('http://localhost/accounts/7', { method, headers: headersOf(token) })
    return { ask, [Symbol.asyncDispose]: async () => undefined }
  },
}

async function listening(server: Server): Promise<Framework> {
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const close = async (): Promise<void> => {
    server.closeAllConnections()
    server.close()
    await once(server, 'close')
  }
  return { ask: asking((server.address() as AddressInfo).port), [Symbol.asyncDispose]: close }
}

function asking(port: number): Ask {
  return async (method, token) =>
    await fetch(`http://127.0.0.1:${port}/accounts/7`, { method, headers: headersOf(token) })
}

function headersOf(token: string | undefined): Record<string, string> {
  return token === undefined ? {} : { 'Fencing-Token': token }
}

describe.each(Object.keys(FRAMEWORKS))('%s', (name) => {
  test('lets in holders that have not been replaced, and answers the others with a problem', async () => {
    const door = admission({ resource: ({ url }) => /accounts\/\d+/.exec(url)?.[0] })
    await using framework = await (FRAMEWORKS[name] as NonNullable<(typeof FRAMEWORKS)[string]>)(door)
    const { ask } = framework
    const first = await ask('PUT', '6')
    expect({ status: first.status, body: await first.text() }).toEqual({ status: 200, body: '6' })
    const again = await ask('PUT', '7')
    expect({ status: again.status, body: await again.text() }).toEqual({ status: 200, body: '7' })
    const stale = await ask('PUT', '6')
    expect(stale.status).toBe(412)
    expect(stale.headers.get('content-type')).toContain('application/problem+json')
    expect(await stale.json()).toMatchObject({ status: 412, offered: '6', seen: '7' })
    expect((await ask('GET', '6')).status, 'a read behind a write').toBe(412)
    expect((await ask('PUT')).status, 'no token').toBe(428)
    expect((await ask('PUT', 'seven')).status, 'no number').toBe(400)
  })
})
