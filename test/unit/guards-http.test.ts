/**
 * Tokens across HTTP: a real server of node:http with a storage guard behind it, asked by real requests. Hono's
 * middleware is called with real `Request` and `Response` objects, Fastify's hook with an object that has the three
 * documented methods of its reply; neither framework is installed here.
 */
import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { type Database, loadDriver } from '../../src/clients/sqlite/driver.ts'
import { LeaseLostError, StaleTokenError } from '../../src/core/errors.ts'
import { admission, answer, guardedFetch, guardHeaders } from '../../src/guards/http.ts'
import { guard } from '../../src/guards/sqlite.ts'
import { inMemory, TTL } from './world.ts'

const driver = await loadDriver()
const holder = (token: bigint, shared = false): { key: string; token: bigint; shared: boolean } => ({
  key: '/doc',
  token,
  shared,
})

describe('a server of node:http', () => {
  const guarded = guard()
  let database: Database
  let server: Server
  let url: string

  /** A new door, as after a restart; the storage stays. */
  async function open(): Promise<void> {
    const door = admission({ resource: ({ url }) => (url === '/free' ? undefined : url) })
    server = createServer((request, response) => {
      door.node(request, response, () => {
        if (request.url === '/free') return void response.end('free')
        database.exec('begin immediate')
        try {
          if (request.method === 'GET') guarded.read(database, door.lease(request))
          else guarded.write(database, door.lease(request))
          database.exec('commit')
          response.end('done')
        } catch (error) {
          database.exec('rollback')
          const problem = door.problem(error)
          if (problem === undefined) throw error
          answer(response, problem)
        }
      })
    })
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/doc`
  }

  async function close(): Promise<void> {
    server.closeAllConnections()
    server.close()
    await once(server, 'close')
  }

  beforeEach(async () => {
    database = driver.open(':memory:')
    guarded.setup(database)
    await open()
  })

  afterEach(async () => {
    await close()
    database.close()
  })

  const put = (token: bigint): Promise<Response> => guardedFetch(holder(token), url, { method: 'PUT', body: 'x' })

  test('lets in holders that have not been replaced, and answers the others with 412 and both tokens', async () => {
    expect(await (await put(5n)).text()).toBe('done')
    expect((await put(5n)).status).toBe(200)
    expect((await put(6n)).status).toBe(200)
    await expect(put(5n)).rejects.toThrow(expect.objectContaining({ resource: '/doc', offered: 5n, seen: 6n }))
    const plain = await fetch(url, { method: 'PUT', headers: { 'Fencing-Token': '5' } })
    expect([plain.status, plain.headers.get('content-type')]).toEqual([412, 'application/problem+json'])
    expect(await plain.json()).toMatchObject({
      type: 'urn:holdfast:stale-token',
      status: 412,
      resource: '/doc',
      offered: '5',
      seen: '6',
    })
  })

  test('a door that has forgotten lets a stale one in, and the storage behind it does not', async () => {
    await put(6n)
    await close()
    await open()
    await expect(put(5n)).rejects.toThrow(StaleTokenError)
    expect(guarded.list(database)).toEqual([{ resource: '/doc', seen: 6n, written: 6n }])
  })

  test('asks for a token, and for one that is a number', async () => {
    expect((await fetch(url)).status).toBe(428)
    for (const header of ['abc', '-1', '1.5', '1;other', '5, 6']) {
      expect((await fetch(url, { headers: { 'Fencing-Token': header } })).status).toBe(400)
    }
    expect(await (await fetch(url.replace('doc', 'free'))).text()).toBe('free')
  })

  test('lets a shared lease read, and refuses its writes on both sides', async () => {
    expect((await guardedFetch(holder(5n, true), url)).status).toBe(200)
    await expect(guardedFetch(holder(5n, true), url, { method: 'PUT' })).rejects.toThrow(/shared lease/)
    const response = await fetch(url, { method: 'PUT', headers: { 'Fencing-Token': '5;shared' } })
    expect([response.status, await response.json()]).toEqual([
      400,
      expect.objectContaining({ detail: expect.stringContaining('shared lease') }),
    ])
  })
})

test('a request ends with its lease', async () => {
  const { clock, locks } = inMemory()
  const lease = await locks.mutex('/doc').acquire()
  clock.stall(TTL)
  await expect(guardedFetch(lease, 'http://127.0.0.1:9/', { method: 'PUT' })).rejects.toThrow(LeaseLostError)
  expect(guardHeaders(lease, 'PUT')).toEqual({ 'Fencing-Token': String(lease.token) })
})

test('as middleware of Hono: what goes through goes on, what is refused is a Response', async () => {
  const door = admission({ resource: ({ url }) => new URL(url).pathname })
  const context = (
    token: string,
  ): { req: { method: string; url: string; header(name: string): string | undefined } } => {
    const request = new Request('http://host/doc', { method: 'PUT', headers: { 'Fencing-Token': token } })
    return {
      req: { method: request.method, url: request.url, header: (name) => request.headers.get(name) ?? undefined },
    }
  }
  const gone: unknown[] = []
  const first = context('6')
  expect(await door.hono(first, async () => void gone.push(door.lease(first)))).toBeUndefined()
  expect(gone).toEqual([{ key: '/doc', token: 6n, shared: false }])
  const refused = await door.hono(context('5'), async () => void gone.push('late'))
  expect([refused?.status, gone.length]).toEqual([412, 1])
  expect(() => door.lease(context('5'))).toThrow(TypeError)
})

test('as hook of Fastify: a refused request is answered by its reply, and by nothing else', async () => {
  const door = admission({ resource: () => 'doc' })
  const said: unknown[] = []
  const reply = {
    code: (status: number) => said.push(status),
    header: (name: string, value: string) => said.push(`${name}: ${value}`),
    send: (body: string) => said.push(JSON.parse(body)),
  }
  expect(await door.fastify({ method: 'PUT', headers: { 'fencing-token': '6' } }, reply)).toBeUndefined()
  expect(said).toEqual([])
  // It does not settle: Fastify would go on.
  void door.fastify({ method: 'PUT', headers: { 'fencing-token': '5' } }, reply)
  expect(said).toEqual([
    412,
    'content-type: application/problem+json',
    expect.objectContaining({ offered: '5', seen: '6' }),
  ])
})

test('the door remembers so many resources, and forgets those not seen for longest', async () => {
  const door = admission({ resource: ({ url }) => url, remembered: 2 })
  const came = async (url: string, token: string): Promise<number | undefined> =>
    (await door.hono({ req: { method: 'PUT', url, header: () => token } }, async () => undefined))?.status
  for (const url of ['a', 'b', 'a', 'c']) expect(await came(url, '6')).toBeUndefined()
  expect(await came('a', '5')).toBe(412)
  expect(await came('b', '5')).toBeUndefined()
})
