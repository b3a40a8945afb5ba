/** Servers of a test for `idempotency()`, and what one client with one key is told. */
import { once } from 'node:events'
import { createServer, type RequestListener, type Server } from 'node:http'
import { connect } from 'node:http2'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
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
  for (const close of closing.splice(0).reverse()) await close()
  await closeAll()
})

export function keysOf(options: Partial<IdempotencyOptions> = {}): Idempotency {
  const fingerprint = ({ url }: IdempotentRequest): string => url
  const headers = ['content-type', 'set-cookie']
  return idempotency(locksOn(memory()), { scope: () => '', wait: '50ms', headers, fingerprint, ...options })
}

export async function portOf(server: Server): Promise<number> {
  closing.push(async () => {
    // One of HTTP/2 has no such function: its clients have closed their sessions.
    server.closeAllConnections?.()
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

/** One client with one key. */
export interface Client {
  ask(): Promise<{ status: number; body: string }>
  /** Asks until `begun`, and goes then. */
  goWhen(begun: Promise<unknown>): Promise<void>
}

export const overHttp1 = (port: number): Client => ({
  ask: () => ask(port),
  goWhen: (begun) => goWhen(begun, port),
})

export function overHttp2(port: number): Client {
  const session = connect(`http://127.0.0.1:${port}`)
  closing.push(async () => session.destroy())
  const request = () => session.request({ ':method': 'POST', 'idempotency-key': 'k' }, { endStream: true })
  return {
    async ask() {
      const stream = request()
      const [head] = (await once(stream, 'response')) as [Record<string, number>]
      return { status: head[':status'] as number, body: await text(stream) }
    },
    async goWhen(begun) {
      const stream = request().on('error', () => {})
      await begun
      stream.close(8)
      // A server reads what it is sent in turn: by then it knows.
      await new Promise((resolve) => void session.ping(resolve))
    },
  }
}
