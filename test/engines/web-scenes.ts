/**
 * What is expected of an application in two processes, whatever its framework: it locks orders, charges payments once,
 * and says so in its journal. It is the same for all, since all have the same routes.
 */
import { once } from 'node:events'
import { expect } from 'vitest'
import { connect } from '../../src/connect.ts'
import { overlaps, type WebFleet, type WebServer } from './web-fleet.ts'

/** A payment has a key: in its body, and as its Idempotency-Key. How to work on it is no part of what it is. */
export interface Payment {
  readonly tenant: string
  readonly key: string
  readonly cents: number
}

export async function post({ url }: WebServer, path: string, body?: Payment, work = 'short'): Promise<Response> {
  const key = body === undefined ? {} : { 'idempotency-key': body.key }
  const headers = { 'content-type': 'application/json', connection: 'close', 'x-work': work, ...key }
  return fetch(`${url}/${path}`, { method: 'POST', headers, body: JSON.stringify(body ?? {}) })
}

export async function textOf(asked: Promise<Response>): Promise<string> {
  const response = await asked
  return `${response.status} ${await response.text()}`
}

export async function expectOneAtATime(fleet: WebFleet, [a, b]: readonly [WebServer, WebServer]): Promise<void> {
  const asked = Array.from({ length: 20 }, (_, index) => textOf(post(index % 2 === 0 ? a : b, 'orders/1/short')))
  expect(new Set(await Promise.all(asked))).toEqual(new Set(['201 shipped 1']))
  expect(overlaps(fleet.noted())).toEqual([])
  expect(new Set(fleet.noted('begin').map(({ pid }) => pid)).size, 'both have worked').toBe(2)
}

export async function expectBusyToBeTold(fleet: WebFleet, [a, b]: readonly [WebServer, WebServer]): Promise<void> {
  const begun = fleet.noted('begin').length
  const long = textOf(post(a, 'orders/2/long'))
  await fleet.until('begin', begun + 1)
  const busy = await post(b, 'tries/2')
  expect(busy.status).toBe(409)
  expect(busy.headers.get('retry-after')).toBe('1')
  expect(await busy.json()).toEqual({ type: 'urn:holdfast:busy', title: expect.any(String), status: 409 })
  fleet.open()
  expect(await long).toBe('201 shipped 2')
  fleet.shut()
  expect(await textOf(post(b, 'tries/2'))).toBe('201 2 was free')
}

/** `a` is killed. */
export async function expectTakeover(fleet: WebFleet, a: WebServer, b: WebServer): Promise<void> {
  const before = fleet.noted('begin').length
  const payment = { tenant: 'acme', key: 'p1', cents: 500 }
  const lost = [post(a, 'orders/3/long'), post(a, 'payments', payment, 'long')].map((asked) =>
    asked.catch(() => 'lost'),
  )
  await fleet.until('begin', before + 1)
  await fleet.until('charge', 1)
  const waiting = textOf(post(b, 'orders/3/short'))
  const retried = textOf(post(b, 'payments', payment))
  await fleet.kill(a)
  expect(await Promise.all(lost)).toEqual(['lost', 'lost'])
  expect(await waiting).toBe('201 shipped 3')
  const answer = await retried
  const charges = fleet.noted('charge')
  expect(charges.map(({ number }) => number)).toEqual([1, 2])
  expect(new Set(charges.map(({ id }) => id)).size, 'ids of one payment').toBe(1)
  expect(answer).toBe(`201 ${JSON.stringify({ charged: 500, attempt: charges[0]?.id })}`)
  expect(await textOf(post(b, 'payments', payment)), 'replayed').toBe(answer)
  expect(await textOf(post(b, 'payments', { ...payment, cents: 1 }))).toMatch(/^422 /)
  expect(fleet.noted('charge').length).toBe(2)
}

export async function expectGoodEnd(fleet: WebFleet, server: WebServer, url: string): Promise<void> {
  const before = fleet.noted('begin').length
  const inFlight = textOf(post(server, 'orders/4/long'))
  await fleet.until('begin', before + 1)
  const gone = once(server.child, 'exit')
  server.child.kill('SIGTERM')
  // It listens no more, and the request that is in flight goes on.
  await expect.poll(() => post(server, 'tries/5').then(String, () => 'refused'), { timeout: 20_000 }).toBe('refused')
  fleet.open()
  expect(await inFlight).toBe('201 shipped 4')
  // Nest ends itself by the same signal, when all is done.
  expect([
    [0, null],
    [null, 'SIGTERM'],
  ]).toContainEqual(await gone)
  await using locks = await connect(url)
  const left = await locks.mutex('order:4').tryAcquire()
  expect(left?.held, 'nothing is left in the line').toBe(true)
  await left?.release()
}

export async function expectLossToBeTold(fleet: WebFleet, server: WebServer, url: string): Promise<void> {
  const before = fleet.noted('begin').length
  const asked = post(server, 'orders/6/until lost')
  const begun = (await fleet.until('begin', before + 1)).at(-1)
  await using locks = await connect(url)
  await locks.evict('order:6', BigInt(begun?.token as string))
  const response = await asked
  expect(response.status).toBe(503)
  expect(await response.json()).toMatchObject({ type: 'urn:holdfast:lost' })
  expect(fleet.noted('aborted').length, 'the method was told').toBe(1)
}
