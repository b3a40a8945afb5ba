/**
 * For Fastify: a plugin of hooks. `preHandler` lets the handler run as the work of `once`, and holds back the response
 * of Node that is under its reply, as with `node:http`. So what has left all hooks of the application is stored, in
 * whatever way it came there. `onRoute` stands around the handler for the one reply that never comes there.
 */
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Http2ServerRequest, Http2ServerResponse } from 'node:http2'
import { type DoorRequest, type DoorVerdict, type IdempotencyDoor, NotBegun } from './door.ts'
import { bytesOf, type MadeResponse, pairsOf, type StoredResponse } from './exchange.ts'
import { HeldResponse, isBegun, send } from './held-response.ts'
import { answer500, errorOf, hasBody, warn } from './node.ts'

/** What Fastify has of a request. */
export interface IdempotentFastifyRequest {
  readonly raw: IncomingMessage | Http2ServerRequest
  readonly socket: { readonly destroyed: boolean } | undefined
  readonly method: string
  readonly url: string
  readonly headers: Readonly<Record<string, string | string[] | undefined>>
  readonly body?: unknown
  /** Whether it came to no route. */
  readonly is404: boolean
  readonly routeOptions: { readonly config: object }
}

/** What Fastify has of a reply. */
export interface IdempotentFastifyReply {
  code(status: number): unknown
  headers(fields: Readonly<Record<string, string>>): unknown
  getHeaders(): Readonly<Record<string, number | string | string[] | undefined>>
  send(body?: unknown): unknown
  hijack(): unknown
  readonly sent: boolean
  readonly raw: ServerResponse | Http2ServerResponse
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
}

/** A plugin of Fastify, for the application that it is registered with. */
export type FastifyPlugin = (app: IdempotentFastify) => Promise<void>

const ROUTE_NOT_SEEN =
  'this route was declared before idempotency() has registered its hooks, so it is not handled: ' +
  'put `await app.register(keys.fastify)` before the routes, with the await'

export function fastifyPlugin(door: IdempotencyDoor): FastifyPlugin {
  /** What is held back while a handler works. */
  const holding = new WeakMap<object, HeldResponse>()
  /** Replies that are on their way: hooks may wait before they are sent. */
  const underWay = new WeakSet<object>()
  /** In the config of a route: `onRoute` has seen it. Other hooks, of tracing for example, may wrap its handler. */
  const seen = Symbol('idempotency()')

  /**
   * Ends when the handler may run, or when the request was answered: Fastify looks whether it was. Never where it was
   * refused.
   */
  const preHandler = (request: IdempotentFastifyRequest, reply: IdempotentFastifyReply): Promise<void> =>
    new Promise((goOn, stop) => {
      const raw = reply.raw as ServerResponse
      let held: HeldResponse | undefined
      let before: MadeResponse['headers'] = []
      const handle = (): Promise<MadeResponse> => {
        // Fastify calls no handler then, and nothing would end the work.
        if (reply.sent || isBegun(raw)) throw new NotBegun()
        before = pairsOf(reply.getHeaders())
        held = new HeldResponse(request.raw as IncomingMessage, raw, door.boundsOf(request))
        holding.set(request, held)
        letGoWhenAsked(reply, held)
        const { send: sendReply } = reply
        reply.send = (...given) => {
          const answered = Reflect.apply(sendReply, reply, given)
          underWay.add(reply)
          return answered
        }
        goOn()
        return held.made
      }
      const answer = (verdict: DoorVerdict): void => {
        if (verdict.state === 'answer' && held === undefined) {
          answerUnhandled(verdict.response, verdict.replayed)
          return
        }
        if (verdict.state === 'answer') held?.sendInstead(verdict.response, verdict.replayed, before)
        else if (verdict.state === 'handled') held?.send()
        goOn()
      }
      const answerUnhandled = (response: StoredResponse, replayed: boolean): void => {
        // Its client was answered before, by a time-out for example: Fastify looks.
        if (reply.sent) goOn()
        else if (isBegun(raw)) stop(new NotBegun())
        else if (replayed) {
          send(raw, response, replayed, pairsOf(reply.getHeaders()))
          goOn()
        } else {
          // A reply like any other. Hooks may wait before it is sent, and Fastify would go on to the handler.
          reply.code(response.status)
          reply.headers(Object.fromEntries(response.headers))
          // As bytes: a serializer of the application is for strings and objects, and would write it as JSON again.
          reply.send(bytesOf(response))
        }
      }
      const fail = (error: unknown): void => {
        // Its handler knows, and there is no connection left to answer on.
        if (held?.isDestroyed === true) return
        held?.forget()
        // Its client was answered before, by a time-out for example. Nothing was done, and the key is free.
        if (error instanceof NotBegun && raw.writableEnded) goOn()
        else if (held === undefined) stop(error)
        else if (reply.sent) answer500(raw, error)
        else reply.send(errorOf(error))
      }
      const described = describe(request)
      // Fastify has hooks run for routes that were declared before as well, but tells `onRoute` of later ones only.
      if (door.hasKey(described) && !request.is404 && !(seen in request.routeOptions.config))
        stop(new TypeError(ROUTE_NOT_SEEN))
      else door.judge(described, handle).then(answer).catch(fail).catch(warn)
    })

  const onRoute = (route: IdempotentFastifyRoute): void => {
    const { handler } = route
    route.config = { ...route.config, [seen]: true }
    route.handler = function (this: unknown, ...given: unknown[]): unknown {
      const [request, reply] = given as [IdempotentFastifyRequest, IdempotentFastifyReply]
      const returned: unknown = Reflect.apply(handler, this, given)
      const held = holding.get(request)
      // The reply of a handler that answers later is one itself.
      if (held === undefined || returned === reply || !isThenable(returned)) return returned
      // A query that is not a promise yet is sent anew by each `then`, and Fastify calls one, too.
      const answered = Promise.resolve(returned)
      // It hears of its end before Fastify, which sends an empty reply where nothing was returned, unless a head was
      // sent. And none where its client has gone: then its work would not end.
      const settle = (value: unknown): void => {
        if (value !== undefined || reply.sent) return
        held.showWritten()
        if (underWay.has(reply) || !isLeftAlone(request, reply)) return
        try {
          reply.send()
        } catch (error) {
          // A header that cannot be sent, for example. Of what Fastify sends by itself, it catches that.
          held.fail(error)
        }
      }
      held.follow(answered)
      answered.then(settle, () => {})
      return answered
    }
  }

  const plugin: FastifyPlugin = async (app) => {
    app.addHook('onRoute', onRoute)
    app.addHook('preHandler', preHandler)
  }
  // As `fastify-plugin` does: the hooks are for the application itself, not for an inner one.
  return Object.assign(plugin, { [Symbol.for('skip-override')]: true })
}

function describe(request: IdempotentFastifyRequest): DoorRequest {
  const { method, url, headers, body, raw } = request
  const header = (name: string): string | undefined => {
    const value = headers[name.toLowerCase()]
    return Array.isArray(value) ? value.join(', ') : value
  }
  return { method, url, header, body, hasBody: () => hasBody(raw), raw: request }
}

function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof (value as { then?: unknown } | null | undefined)?.then === 'function'
}

/** What a handler sends past Fastify goes out as it comes, if it says so: events, for which its client waits. */
function letGoWhenAsked(reply: IdempotentFastifyReply, held: HeldResponse): void {
  const { hijack } = reply
  reply.hijack = () => {
    held.letGo()
    return hijack.call(reply)
  }
  const raw = reply.raw as ServerResponse
  const { flushHeaders } = raw
  raw.flushHeaders = () => {
    held.letGo()
    flushHeaders.call(raw)
  }
}

/** Whether Fastify sends no reply where a handler has returned nothing: as Fastify asks it. */
function isLeftAlone({ raw, socket }: IdempotentFastifyRequest, reply: IdempotentFastifyReply): boolean {
  return !reply.sent && !reply.raw.headersSent && (raw.aborted || socket === undefined || socket.destroyed)
}
