/**
 * For Fastify: a plugin of two hooks. `preHandler` lets the handler run as the work of `once`; `onSend` hears what it
 * has made, and waits until that is stored.
 */
import { Readable } from 'node:stream'
import { readUpTo } from './body.ts'
import { type DoorVerdict, type IdempotencyDoor, NotBegun } from './door.ts'
import { bytesOf, type MadeResponse, pairsOf, REPLAYED_HEADER, type StoredResponse, valuesOf } from './exchange.ts'

/** What Fastify has of a request. */
export interface IdempotentFastifyRequest {
  readonly method: string
  readonly url: string
  readonly headers: Readonly<Record<string, string | string[] | undefined>>
  readonly body?: unknown
}

/** What Fastify has of a reply. */
export interface IdempotentFastifyReply {
  readonly statusCode: number
  code(status: number): unknown
  header(name: string, value: string | string[]): unknown
  removeHeader(name: string): unknown
  getHeaders(): Readonly<Record<string, number | string | string[] | undefined>>
  send(body: unknown): unknown
}

/** What Fastify has of an application, as far as it is used here. */
export interface IdempotentFastify {
  addHook(
    name: 'preHandler',
    hook: (request: IdempotentFastifyRequest, reply: IdempotentFastifyReply) => Promise<unknown>,
  ): unknown
  addHook(
    name: 'onSend',
    hook: (request: IdempotentFastifyRequest, reply: IdempotentFastifyReply, payload: unknown) => Promise<unknown>,
  ): unknown
}

/** A plugin of Fastify, for the application that it is registered with. */
export type FastifyPlugin = (app: IdempotentFastify) => Promise<void>

/** A request whose handler runs. */
interface Handling {
  /** What hooks had set before it. */
  readonly headers: MadeResponse['headers']
  made(response: MadeResponse): void
  readonly verdict: Promise<DoorVerdict>
}

export function fastifyPlugin(door: IdempotencyDoor): FastifyPlugin {
  const handlings = new WeakMap<object, Handling>()

  const preHandler = async (request: IdempotentFastifyRequest, reply: IdempotentFastifyReply): Promise<unknown> => {
    const verdict = await new Promise<DoorVerdict | 'begun'>((resolve, reject) => {
      const judged: Promise<DoorVerdict> = door.judge(describe(request), () => {
        // Fastify calls no handler then, and nothing would end the work.
        if (isSent(reply)) throw new NotBegun()
        const headers = pairsOf(reply.getHeaders())
        const response = new Promise<MadeResponse>((made) => handlings.set(request, { headers, made, verdict: judged }))
        // The hook ends, and the handler runs.
        resolve('begun')
        return response
      })
      judged.then(resolve, reject)
      // The handler has had its time. (What has been sent by then is told by the other hook.)
      judged
        .catch((error: unknown) => {
          if (handlings.delete(request) && !isSent(reply)) reply.send(error)
        })
        .catch((error: unknown) => process.emitWarning(error instanceof Error ? error : String(error)))
    })
    if (verdict === 'begun' || verdict.state !== 'answer' || isSent(reply)) return undefined
    return reply.send(apply(reply, verdict.response, verdict.replayed))
  }

  const onSend = async (
    request: IdempotentFastifyRequest,
    reply: IdempotentFastifyReply,
    payload: unknown,
  ): Promise<unknown> => {
    const handling = handlings.get(request)
    if (handling === undefined) return payload
    // If a stream breaks here, Fastify sends an error instead, and this hook hears of that one.
    const { body, payload: replaced } = await bodyOf(unwrapped(reply, payload), door.maxBody)
    handlings.delete(request)
    const made = { status: reply.statusCode, headers: pairsOf(reply.getHeaders()), body }
    handling.made(made)
    // What cannot be told to a client is told to the log of the application, by this hook.
    const verdict = await handling.verdict
    if (verdict.state !== 'answer') {
      // Its handler may have gone on, and set others: what is stored is what is sent.
      reply.code(made.status)
      setHeaders(reply, made.headers)
      return replaced
    }
    setHeaders(reply, handling.headers)
    return apply(reply, verdict.response, verdict.replayed)
  }

  const plugin: FastifyPlugin = async (app) => {
    app.addHook('preHandler', preHandler)
    app.addHook('onSend', onSend)
  }
  // As `fastify-plugin` does: the hooks are for the application itself, not for an inner one.
  return Object.assign(plugin, { [Symbol.for('skip-override')]: true })
}

function describe(request: IdempotentFastifyRequest) {
  const { method, url, headers, body } = request
  const header = (name: string): string | undefined => {
    const value = headers[name.toLowerCase()]
    return Array.isArray(value) ? value.join(', ') : value
  }
  return { method, url, header, body, raw: request }
}

function apply(reply: IdempotentFastifyReply, stored: StoredResponse, replayed: boolean): Buffer {
  reply.code(stored.status)
  for (const [name, value] of valuesOf(stored.headers)) reply.header(name, value)
  if (replayed) reply.header(REPLAYED_HEADER, 'true')
  return bytesOf(stored)
}

/** These, and no others. */
function setHeaders(reply: IdempotentFastifyReply, headers: MadeResponse['headers']): void {
  for (const name of Object.keys(reply.getHeaders())) reply.removeHeader(name)
  for (const [name, value] of valuesOf(headers)) reply.header(name, value)
}

/** It was hijacked, or was ended past Fastify, by a time-out for example. */
function isSent(reply: IdempotentFastifyReply & { readonly sent?: boolean }): boolean {
  return reply.sent === true
}

/** Fastify takes a `Response` apart after its hooks, which is too late for what is stored. */
function unwrapped(reply: IdempotentFastifyReply, payload: unknown): unknown {
  if (!(payload instanceof Response)) return payload
  reply.code(payload.status)
  for (const [name, value] of payload.headers) reply.header(name, value)
  return payload.body
}

/** What to store of a payload, and what to send instead of it. */
async function bodyOf(payload: unknown, most: number): Promise<{ body: Buffer | undefined; payload: unknown }> {
  if (payload === undefined || payload === null) return { body: Buffer.alloc(0), payload }
  if (typeof payload === 'string' || payload instanceof Uint8Array) {
    const bytes = Buffer.from(payload as string)
    return { body: bytes.length <= most ? bytes : undefined, payload }
  }
  const read = await readUpTo(payload as AsyncIterable<unknown>, most)
  if (read.state === 'whole') return { body: read.bytes, payload: read.bytes }
  return { body: undefined, payload: Readable.from(read.chunks()) }
}
