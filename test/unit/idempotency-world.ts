/** Servers of a test for `idempotency()`, and what one client with one key is told. */
import { once } from 'node:events'
import { createServer, type RequestListener, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterEach } from 'vitest'
import { memory } from '../../src/engines/memory/index.ts'
import {
  type Idempotency,
  type IdempotencyOptions,
  type IdempotentRequest,
  idempotency,
} from '../../src/recipes/http/index.ts'
import { closeAll, locksOn } from './once-world.ts'

const closing: (() => Promise<unknown>)[] = []
afterEach(async () => {
  for (const close of closing.splice(0)) await close()
  await closeAll()
})

export function keysOf(options: Partial<IdempotencyOptions> = {}): Idempotency {
  const fingerprint = ({ url }: IdempotentRequest): string => url
  const headers = ['content-type', 'set-cookie']
  return idempotency(locksOn(memory()), { scope: () => '', wait: '50ms', headers, fingerprint, ...options })
}

export async function portOf(server: Server): Promise<number> {
  closing.push(async () => {
    server.closeAllConnections()
    server.close()
    await once(server, 'close')
  })
  if (!server.listening) await once(server, 'listening')
  return (server.address() as AddressInfo).port
}

export const serving = (handle: RequestListener): Promise<number> => portOf(createServer(handle).listen(0, '127.0.0.1'))

export async function ask(
  port: number,
  signal?: AbortSignal,
): Promise<{ status: number; body: string; headers: Headers }> {
  const headers = { 'idempotency-key': 'k', 'content-type': 'text/plain' }
  const request = { method: 'POST', body: 'ten', headers, ...(signal === undefined ? {} : { signal }) }
  const response = await fetch(`http://127.0.0.1:${port}/`, request)
  return { status: response.status, body: await response.text(), headers: response.headers }
}

/** Asks until `begun`, and goes then. */
export async function goWhen(begun: Promise<unknown>, port: number): Promise<void> {
  const leaving = new AbortController()
  const asked = ask(port, leaving.signal).catch(() => {})
  await begun
  leaving.abort()
  await asked
}
