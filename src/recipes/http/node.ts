/** For `node:http` and Express: the response is held back until it is stored, and errors go where they would go. */
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Http2ServerRequest } from 'node:http2'
import { thrownText } from '../../core/thrown.ts'
import { type DoorRequest, type DoorVerdict, type IdempotencyDoor, NotBegun } from './door.ts'
import type { MadeResponse } from './exchange.ts'
import { removeBody } from './head.ts'
import { HeldResponse, isBegun, send } from './held-response.ts'

/** Middleware of Express, and of whatever has its shape. */
export type NodeMiddleware = (
  request: IncomingMessage,
  response: ServerResponse,
  next: (error?: unknown) => void,
) => void

export function nodeMiddleware(door: IdempotencyDoor): NodeMiddleware {
  return (request, response, next) => {
    let held: HeldResponse | undefined
    const handle = (): Promise<MadeResponse> => {
      // Its handler could not end what is ended: the key would be in progress until `handlerTimeout`.
      if (isBegun(response)) throw new NotBegun()
      const holding = new HeldResponse(request, response, door.boundsOf(request))
      held = holding
      const work = run(next)
      holding.follow(work)
      work.catch((error: unknown) => {
        // What is on its way to its client is not handled again; its end settles it.
        if (holding.hasOverflown && !holding.isLeft) answer500(response, error)
        else if (holding.isOver) warn(error)
        else holding.fail(error)
      })
      return holding.made
    }
    const answer = (verdict: DoorVerdict): Promise<void> | undefined => {
      if (verdict.state === 'pass') return run(next)
      if (verdict.state === 'handled') held?.send()
      else if (held !== undefined) held.sendInstead(verdict.response, verdict.replayed)
      else if (!response.writableEnded) send(response, verdict.response, verdict.replayed)
      return undefined
    }
    const fail = (error: unknown): void => {
      // Its handler knows, and there is no connection left to answer on.
      if (held?.isDestroyed === true) return
      held?.forget()
      // Its client was answered before, by a time-out for example. Nothing was done, and the key is free.
      if (error instanceof NotBegun && response.writableEnded) return
      failRequest(request, response, next, error)
    }
    void door.judge(describe(request), handle).then(answer).catch(fail)
  }
}

type Next = Parameters<NodeMiddleware>[2]

/** With node:http, the rest may be an async function: what it rejects with is told by nothing else. */
export async function run(next: () => unknown): Promise<void> {
  await next()
}

/** Tells the framework; where there is none, the log and the client. Never throws: that would end the process. */
export function failRequest(request: IncomingMessage, response: ServerResponse, next: Next, error: unknown): void {
  // A `next` of node:http that takes no error would handle the request, and nothing would guard it.
  if (next.length > 0 || 'originalUrl' in request) {
    run(() => next(errorOf(error))).catch((thrown: unknown) => answer500(response, thrown))
    return
  }
  answer500(response, error)
}

/** Anything can be thrown. What `next` takes for no error, or Express for its way on, would be handled unguarded. */
export function errorOf(thrown: unknown): unknown {
  const isError = Boolean(thrown) && thrown !== 'route' && thrown !== 'router'
  return isError ? thrown : new Error(`what was thrown is no error: ${thrownText(thrown)}`)
}

export function answer500(response: ServerResponse, error: unknown): void {
  warn(error)
  if (response.writableEnded) return
  try {
    if (!response.headersSent) {
      response.statusCode = 500
      // What it was may be what could not be sent.
      response.statusMessage = ''
      // Its handler may have said these of a body that does not come.
      removeBody(response)
      response.end()
      return
    }
  } catch (thrown) {
    // Middleware may have wrapped what is called here.
    warn(thrown)
  }
  // The client must not take what it has for the whole response.
  response.destroy()
}

export function warn(error: unknown): void {
  process.emitWarning(error instanceof Error ? error : thrownText(error))
}

function describe(request: IncomingMessage): DoorRequest {
  const { originalUrl, body } = request as { originalUrl?: string; body?: unknown }
  return {
    method: request.method ?? '',
    // Express cuts off what a router has matched.
    url: originalUrl ?? request.url ?? '',
    header: (name) => {
      const value = request.headers[name.toLowerCase()]
      return Array.isArray(value) ? value.join(', ') : value
    },
    body: isPlaceholder(body) && !request.readableDidRead ? undefined : body,
    hasBody: () => hasBody(request),
    raw: request,
  }
}

/** With HTTP/2, a body may have no header that tells of it: what comes after the head does. */
export function hasBody(request: IncomingMessage | Http2ServerRequest): boolean | Promise<boolean> {
  const { 'transfer-encoding': encoding, 'content-length': length } = request.headers
  if (request.httpVersionMajor > 1 && 'stream' in request && length === undefined)
    return !request.stream.endAfterHeaders && hasContent(request)
  return encoding !== undefined || Number(length) > 0
}

/** Many clients send the end of a request without a body by itself. What is looked at here can still be read. */
async function hasContent(request: Http2ServerRequest): Promise<boolean> {
  // What came together with the head is handed on by then. Who listens for `readable` before would end a request whose
  // end is there, and its handler would wait for that in vain.
  await new Promise((resolve) => void setImmediate(resolve))
  const { stream, readableLength, readableDidRead } = request
  if (readableLength === 0 && !readableDidRead && !stream.readableEnded && !stream.destroyed)
    await new Promise<void>((resolve) => void request.once('readable', resolve).once('close', resolve))
  if (!request.readableDidRead && request.readableLength === 0) return request.aborted
  // It is refused, and what is not read of it would keep its stream open.
  request.resume()
  return true
}

/** What Express 4 has in the place of a body that no parser has read. */
function isPlaceholder(body: unknown): boolean {
  return typeof body === 'object' && body !== null && Object.keys(body).length === 0
}
