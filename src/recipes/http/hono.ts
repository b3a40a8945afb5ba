/** For Hono, and for frameworks that answer with a `Response` likewise: the response is read, stored, and answered. */
import { Readable } from 'node:stream'
import { readUpTo } from './body.ts'
import type { IdempotencyDoor, IdempotentRequest } from './door.ts'
import { bytesOf, type MadeResponse, REPLAYED_HEADER, type StoredResponse } from './exchange.ts'

/** What Hono has of a context. */
export interface IdempotentHonoContext {
  readonly req: {
    readonly method: string
    readonly url: string
    header(name: string): string | undefined
    arrayBuffer(): Promise<ArrayBuffer>
  }
  res: Response
}

/** Middleware of Hono. */
export type HonoMiddleware = (
  context: IdempotentHonoContext,
  next: () => Promise<void>,
) => Promise<Response | undefined>

export function honoMiddleware(door: IdempotencyDoor): HonoMiddleware {
  return async (context, next) => {
    const verdict = await door.judge(await describe(context), async () => {
      await next()
      return makeResponse(context, door.maxBody)
    })
    if (verdict.state === 'pass') await next()
    if (verdict.state !== 'answer') return undefined
    const response = responseOf(verdict.response, verdict.replayed)
    // Hono adds the headers of what it replaces, which are those of another response.
    context.res = undefined as unknown as Response
    context.res = response
    return response
  }
}

async function describe(context: IdempotentHonoContext): Promise<IdempotentRequest> {
  const { req } = context
  // Hono keeps what it has read, so that the handler can read it again.
  const body = new Uint8Array(await req.arrayBuffer())
  return { method: req.method, url: req.url, header: (name) => req.header(name), body, raw: context }
}

async function makeResponse(context: IdempotentHonoContext, most: number): Promise<MadeResponse> {
  const { res } = context
  const made = { status: res.status, headers: [...res.headers] }
  if (res.body === null) return { ...made, body: Buffer.alloc(0) }
  const read = await readUpTo(res.body as unknown as AsyncIterable<unknown>, most)
  const body = read.state === 'whole' ? read.bytes : (Readable.toWeb(Readable.from(read.chunks())) as ReadableStream)
  const again = new Response(body as ReadableStream, {
    status: res.status,
    statusText: res.statusText,
    headers: res.headers,
  })
  context.res = undefined as unknown as Response
  context.res = again
  return { ...made, body: read.state === 'whole' ? read.bytes : undefined }
}

function responseOf(stored: StoredResponse, replayed: boolean): Response {
  const headers = new Headers(stored.headers.map(([name, value]): [string, string] => [name, value]))
  if (replayed) headers.set(REPLAYED_HEADER, 'true')
  const bytes = bytesOf(stored)
  return new Response(bytes.length === 0 ? null : new Uint8Array(bytes), { status: stored.status, headers })
}
