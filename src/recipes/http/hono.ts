/** For Hono, and for frameworks that answer with a `Response` likewise: the response is read, stored, and answered. */
import { readUpTo } from './body.ts'
import { type DoorRequest, type IdempotencyDoor, NotBegun } from './door.ts'
import { bytesOf, type MadeResponse, REPLAYED_HEADER, type StoredResponse } from './exchange.ts'

/** What Hono has of a context. */
export interface IdempotentHonoContext {
  readonly req: {
    readonly method: string
    readonly url: string
    header(name: string): string | undefined
    arrayBuffer(): Promise<ArrayBuffer>
    /** The request that came in. */
    readonly raw?: Request
  }
  res: Response
  /** Of Node's server, what a handler may write to past Hono: `outgoing`. */
  readonly env?: unknown
  /** Whether it has a response. */
  readonly finalized: boolean
}

/** Middleware of Hono. */
export type HonoMiddleware = (
  context: IdempotentHonoContext,
  next: () => Promise<void>,
) => Promise<Response | undefined>

export function honoMiddleware(door: IdempotencyDoor): HonoMiddleware {
  return async (context, next) => {
    let handled = false
    // Another response takes the place of what the handler makes.
    const overtaken = new AbortController()
    const handle = async (): Promise<MadeResponse> => {
      // Hono would run its handler, and drop what that answers.
      if (context.finalized) throw new NotBegun()
      handled = true
      await next()
      // What is there now is what was answered instead of it.
      overtaken.signal.throwIfAborted()
      const { made, response } = await readResponse(context, door.maxBody, overtaken.signal)
      if (overtaken.signal.aborted) leaveUnread(response)
      else replace(context, response)
      return made
    }
    const verdict = await door.judge(await describe(door, context), handle).catch((error: unknown) => {
      overtaken.abort(error)
      throw error
    })
    if (verdict.state === 'pass') await next()
    if (verdict.state !== 'answer') return undefined
    overtaken.abort()
    leaveUnread(context.res)
    const response = responseOf(verdict.response, verdict.replayed)
    // With the headers of middleware before this one, and none of a handler.
    if (!handled) addHeaders(response.headers, context.res.headers)
    replace(context, response)
    return response
  }
}

/** Setting `context.res` would merge in the headers of the response before it, over ours: so that one goes first. */
function replace(context: IdempotentHonoContext, response: Response): void {
  context.res = undefined as unknown as Response
  context.res = response
}

/** Its source ends with it. */
function leaveUnread({ body }: Response): void {
  // It is locked where it is being read: it is left by its reader then.
  body?.cancel().catch(() => {})
}

/** What has a name that is not there yet. Of one name there may be several: cookies. */
function addHeaders(to: Headers, from: Headers): void {
  const own = new Set(to.keys())
  for (const [name, value] of from) if (!own.has(name)) to.append(name, value)
}

async function describe(door: IdempotencyDoor, context: IdempotentHonoContext): Promise<DoorRequest> {
  const { req } = context
  // Without the host: behind a proxy, each server may see its own, and a retry at another one is the same request.
  const { pathname, search } = new URL(req.url)
  const header = (name: string): string | undefined => req.header(name)
  const described = { method: req.method, url: `${pathname}${search}`, header, raw: context }
  const body = door.hasKey(described) ? new Uint8Array(await bodyOf(req)) : undefined
  return { ...described, body, hasBody: () => body !== undefined && body.length > 0 }
}

/** Of a copy: the handler may want the stream of the request itself. What was read before, Hono has kept. */
function bodyOf(req: IdempotentHonoContext['req']): Promise<ArrayBuffer> {
  return req.raw === undefined || req.raw.bodyUsed ? req.arrayBuffer() : req.raw.clone().arrayBuffer()
}

/** In the response to Node's server: the handler has written one to `context.env.outgoing`. */
const ALREADY_SENT = 'x-hono-already-sent'

/** What it is, and what to send instead of it, since it was read. */
async function readResponse(
  { res: read, env }: IdempotentHonoContext,
  most: number,
  unwanted: AbortSignal,
): Promise<{ made: MadeResponse; response: Response }> {
  const { status, statusText, headers } = read
  const head = { status, headers: [...headers] }
  if (headers.has(ALREADY_SENT)) {
    const { outgoing } = (env ?? {}) as { readonly outgoing?: { readonly statusCode: number } }
    return { made: { ...head, status: outgoing?.statusCode ?? status, body: undefined }, response: read }
  }
  if (read.body === null) return { made: { ...head, body: Buffer.alloc(0) }, response: read }
  const found = await readUpTo(read.body, most, unwanted)
  const body = found.state === 'whole' ? new Uint8Array(found.bytes) : found.stream
  const response = new Response(body, { status, statusText, headers })
  return { made: { ...head, body: found.state === 'whole' ? found.bytes : undefined }, response }
}

function responseOf(stored: StoredResponse, replayed: boolean): Response {
  const headers = new Headers(stored.headers.map(([name, value]): [string, string] => [name, value]))
  if (replayed) headers.set(REPLAYED_HEADER, 'true')
  const bytes = bytesOf(stored)
  return new Response(bytes.length === 0 ? null : new Uint8Array(bytes), { status: stored.status, headers })
}
