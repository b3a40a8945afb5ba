/**
 * For Fastify: a plugin of hooks. `preHandler` lets the handler run as the work of `once`; `onSend` hears what it has
 * made, and waits until that is stored. `onRoute` stands around the handler, for the replies that never come to
 * `onSend`: those of clients that have gone, and those that are sent past Fastify.
 */
import type { IncomingMessage } from 'node:http'
import type { Http2ServerRequest } from 'node:http2'
import { Readable } from 'node:stream'
import { never } from '../../core/never.ts'
import { readUpTo } from './body.ts'
import { type DoorVerdict, type IdempotencyDoor, NotBegun } from './door.ts'
import { bytesOf, type MadeResponse, pairsOf, REPLAYED_HEADER, valuesOf } from './exchange.ts'
import { hasBody } from './node.ts'

/** What Fastify has of a request. */
export interface IdempotentFastifyRequest {
  readonly raw: IncomingMessage | Http2ServerRequest
  readonly socket: { readonly destroyed: boolean } | undefined
  readonly routeOptions: { readonly config: object }
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
  send(body?: unknown): unknown
  readonly sent: boolean
  readonly raw: {
    readonly statusCode: number
    readonly headersSent: boolean
    /** It takes a body, an encoding and a callback, each of them or none. */
    end(...given: never[]): unknown
    /** It takes an error, or none. */
    destroy(...given: never[]): unknown
  }
  then(fulfilled: () => void, rejected: (error: Error) => void): void
}

/** What Fastify has of a route that is declared. */
export interface IdempotentFastifyRoute {
  /** Its parameters have types of the application. */
  handler(...given: never[]): unknown
  config?: object
}

/** What Fastify has of an application, as far as it is used here. */
export interface IdempotentFastify {
  addHook(name: 'onRoute', hook: (route: IdempotentFastifyRoute) => void): unknown
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

/** A request whose handler runs, or is the next to run. */
interface Handling {
  /** What hooks had set before it. */
  readonly headers: MadeResponse['headers']
  made(response: MadeResponse): void
  /** There is no response to store: a later hook has answered it, or it was destroyed. */
  failed(error: unknown): void
  readonly verdict: Promise<DoorVerdict>
  hasBegun: boolean
  /** The reply was awaited, or has come to `onSend`: it is not sent by what the handler returns. */
  isUnderWay: boolean
  /** What the reply is was decided: it waits until that is stored. */
  isMade: boolean
}

/** In the config of a route: its handler was wrapped, so it tells that it begins. */
const WRAPPED = Symbol('holdfast: idempotency')

export function fastifyPlugin(door: IdempotencyDoor): FastifyPlugin {
  const handlings = new WeakMap<object, Handling>()

  const preHandler = async (request: IdempotentFastifyRequest, reply: IdempotentFastifyReply): Promise<unknown> => {
    const verdict = await new Promise<DoorVerdict | 'begun'>((resolve, reject) => {
      const judged: Promise<DoorVerdict> = door.judge(describe(request), () => {
        // Fastify calls no handler then, and nothing would end the work.
        if (isSent(reply)) throw new NotBegun()
        const headers = pairsOf(reply.getHeaders())
        const response = new Promise<MadeResponse>((made, failed) => {
          const state = { hasBegun: false, isUnderWay: false, isMade: false }
          handlings.set(request, { headers, made, failed, verdict: judged, ...state })
        })
        onEnd(reply, (failure) => endedPastFastify(request, reply, failure))
        // The hook ends, and the handler runs.
        resolve('begun')
        return response
      })
      judged.then(resolve, reject)
      judged
        .then(
          (judgement) => {
            if (judgement.state === 'answer')
              sendInstead(request, reply, (handling) => applyInstead(reply, handling, judgement))
          },
          (error: unknown) => sendInstead(request, reply, () => error),
        )
        .catch((error: unknown) => process.emitWarning(error instanceof Error ? error : String(error)))
    })
    if (verdict === 'begun' || verdict.state !== 'answer' || isSent(reply)) return undefined
    reply.send(apply(reply, verdict))
    return never()
  }

  /** The handler has had its time. What it has sent by then waits in `onSend`, and hears of the verdict there. */
  const sendInstead = (
    request: IdempotentFastifyRequest,
    reply: IdempotentFastifyReply,
    payload: (handling: Handling) => unknown,
  ): void => {
    const handling = handlings.get(request)
    handlings.delete(request)
    if (handling === undefined || handling.isMade || isSent(reply)) return
    // What `onSend` still reads is not sent over it.
    handling.isMade = true
    reply.send(payload(handling))
  }

  /** What has come to `onSend` before, and was made, stays as it is. */
  const endedPastFastify = (
    request: IdempotentFastifyRequest,
    reply: IdempotentFastifyReply,
    failure: Error | undefined,
  ): void => {
    const handling = handlings.get(request)
    if (handling === undefined) return
    handlings.delete(request)
    if (!handling.hasBegun && WRAPPED in request.routeOptions.config) handling.failed(new NotBegun())
    else if (failure !== undefined) handling.failed(failure)
    else handling.made({ status: reply.raw.statusCode, headers: [], body: undefined })
  }

  const onRoute = (route: IdempotentFastifyRoute): void => {
    const { handler } = route
    route.config = { ...route.config, [WRAPPED]: true }
    route.handler = function (this: unknown, ...given: unknown[]): unknown {
      const [request, reply] = given as [IdempotentFastifyRequest, IdempotentFastifyReply]
      const handling = handlings.get(request)
      if (handling === undefined) return Reflect.apply(handler, this, given)
      handling.hasBegun = true
      onAwait(reply, () => {
        handling.isUnderWay = true
      })
      const answered: unknown = Reflect.apply(handler, this, given)
      // Fastify sends nothing where the handler returned nothing and its client has gone. Then its work would not end.
      const sendIfGone = (value: unknown): void => {
        if (value === undefined && isLeftAlone(request, reply) && !handling.isUnderWay) reply.send()
      }
      if (answered instanceof Promise) answered.then(sendIfGone, () => {})
      return answered
    }
  }

  const onSend = async (
    request: IdempotentFastifyRequest,
    reply: IdempotentFastifyReply,
    payload: unknown,
  ): Promise<unknown> => {
    const handling = handlings.get(request)
    if (handling === undefined) return payload
    handling.isUnderWay = true
    const content = unwrapped(reply, payload)
    const head = { status: reply.statusCode, headers: pairsOf(reply.getHeaders()) }
    const { body, payload: replaced } = await bodyOf(content, door.maxBody).catch((error: unknown) => {
      // If a stream breaks here, Fastify sends an error instead, and this hook hears of that one.
      if (!handling.isMade) throw error
      return never()
    })
    // A handler may send twice, or send and then throw. Fastify refuses what comes after a reply that was sent: here,
    // after one that waits to be sent.
    if (handling.isMade) {
      leaveUnread(replaced)
      return never()
    }
    handling.isMade = true
    handling.made({ ...head, body })
    // What cannot be told to a client is told to the log of the application, by this hook.
    const verdict = await handling.verdict
    handlings.delete(request)
    if (verdict.state !== 'answer') {
      // Its handler may have gone on, and set others: what is stored is what is sent.
      reply.code(head.status)
      setHeaders(reply, head.headers)
      return replaced
    }
    leaveUnread(replaced)
    return applyInstead(reply, handling, verdict)
  }

  const plugin: FastifyPlugin = async (app) => {
    app.addHook('onRoute', onRoute)
    app.addHook('preHandler', preHandler)
    app.addHook('onSend', onSend)
  }
  // As `fastify-plugin` does: the hooks are for the application itself, not for an inner one.
  return Object.assign(plugin, { [Symbol.for('skip-override')]: true })
}

function describe(request: IdempotentFastifyRequest) {
  const { method, url, headers, body, raw } = request
  const header = (name: string): string | undefined => {
    const value = headers[name.toLowerCase()]
    return Array.isArray(value) ? value.join(', ') : value
  }
  return { method, url, header, body, hasBody: hasBody(raw), raw: request }
}

type AnswerVerdict = Extract<DoorVerdict, { state: 'answer' }>

function apply(reply: IdempotentFastifyReply, { response, replayed }: AnswerVerdict): Buffer {
  reply.code(response.status)
  for (const [name, value] of valuesOf(response.headers)) reply.header(name, value)
  if (replayed) reply.header(REPLAYED_HEADER, 'true')
  return bytesOf(response)
}

/** With nothing of what its handler has set. */
function applyInstead(reply: IdempotentFastifyReply, { headers }: Handling, answer: AnswerVerdict): Buffer {
  setHeaders(reply, headers)
  return apply(reply, answer)
}

/** These, and no others. */
function setHeaders(reply: IdempotentFastifyReply, headers: MadeResponse['headers']): void {
  for (const name of Object.keys(reply.getHeaders())) reply.removeHeader(name)
  for (const [name, value] of valuesOf(headers)) reply.header(name, value)
}

/** It was hijacked, or was ended past Fastify, by a time-out for example. */
function isSent(reply: IdempotentFastifyReply): boolean {
  return reply.sent
}

/** Whether Fastify sends no reply where a handler has returned nothing: as Fastify asks it. */
function isLeftAlone({ raw, socket }: IdempotentFastifyRequest, reply: IdempotentFastifyReply): boolean {
  return !isSent(reply) && !reply.raw.headersSent && (raw.aborted || socket === undefined || socket.destroyed)
}

/**
 * Of a response whose connection has ended, no event tells that it was ended. One whose client has gone is destroyed,
 * too, but not by a call.
 */
function onEnd({ raw }: IdempotentFastifyReply, ended: (failure: Error | undefined) => void): void {
  const { end, destroy } = raw
  raw.end = (...given: unknown[]) => {
    const answer: unknown = Reflect.apply(end, raw, given)
    ended(undefined)
    return answer
  }
  raw.destroy = (...given: unknown[]) => {
    const answer: unknown = Reflect.apply(destroy, raw, given)
    ended((given[0] as Error | undefined) ?? new Error('its handler has destroyed the response to this request'))
    return answer
  }
}

/** An `async` handler that returns its reply awaits it. */
function onAwait(reply: IdempotentFastifyReply, awaited: () => void): void {
  const { then } = reply
  // biome-ignore lint/suspicious/noThenProperty: Fastify's replies have one.
  reply.then = (fulfilled, rejected) => {
    awaited()
    then.call(reply, fulfilled, rejected)
  }
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

/** Its source ends with it. */
function leaveUnread(payload: unknown): void {
  if (payload instanceof Readable) payload.destroy()
}
