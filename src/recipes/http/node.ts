/**
 * For `node:http` and Express: the response is held back until it is stored. What the handler writes is collected, and
 * goes out in one piece afterwards; beyond the largest body that is stored, it goes out as it comes.
 *
 * The end of the work is the end of the response, not that of the connection: a handler goes on when its client has
 * gone, and so does the charge.
 */
import type { IncomingMessage, OutgoingHttpHeader, OutgoingHttpHeaders, ServerResponse } from 'node:http'
import type { IdempotencyDoor, IdempotentRequest, Verdict } from './door.ts'
import { bytesOf, type MadeResponse, pairsOf, REPLAYED_HEADER, type StoredResponse, valuesOf } from './exchange.ts'

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
      held = new HeldResponse(response, door.maxBody)
      next()
      return held.made
    }
    const answer = (verdict: Verdict): void => {
      if (verdict.state === 'pass') next()
      else if (verdict.state === 'handled') held?.send()
      else if (held === undefined) send(response, verdict.response, verdict.replayed)
      else held.sendInstead(verdict.response, verdict.replayed)
    }
    const fail = (error: unknown): void => {
      held?.forget()
      // A `next` of node:http that takes no error would handle the request, and no key would guard it.
      if (next.length > 0 || 'originalUrl' in request) {
        next(error)
        return
      }
      process.emitWarning(error instanceof Error ? error : String(error))
      response.statusCode = 500
      response.end()
    }
    // What `next` throws where there is no key is the business of the server, as it would be without this.
    void door.judge(describe(request), handle).then(answer, fail)
  }
}

function describe(request: IncomingMessage): IdempotentRequest {
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
    raw: request,
  }
}

/** What Express 4 has in the place of a body that no parser has read. */
function isPlaceholder(body: unknown): boolean {
  return typeof body === 'object' && body !== null && Object.keys(body).length === 0
}

function send(response: ServerResponse, stored: StoredResponse, replayed: boolean): void {
  response.statusCode = stored.status
  for (const [name, value] of valuesOf(stored.headers)) response.setHeader(name, value)
  if (replayed) response.setHeader(REPLAYED_HEADER, 'true')
  response.end(bytesOf(stored))
}

type Callback = () => void

class HeldResponse {
  /** What the handler has made of it, when it has ended. */
  readonly made: Promise<MadeResponse>
  readonly #response: ServerResponse
  readonly #most: number
  readonly #own: Pick<ServerResponse, 'write' | 'end' | 'writeHead' | 'flushHeaders'>
  readonly #chunks: Buffer[] = []
  readonly #callbacks: Callback[] = []
  /** What was set before the handler. */
  readonly #headers: MadeResponse['headers']
  #bytes = 0
  #isOver = false
  #settle!: (made: MadeResponse) => void

  constructor(response: ServerResponse, most: number) {
    this.#response = response
    this.#most = most
    this.#headers = pairsOf(response.getHeaders())
    const { write, end, writeHead, flushHeaders } = response
    this.#own = { write, end, writeHead, flushHeaders }
    this.made = new Promise((settle) => {
      this.#settle = settle
    })
    Object.assign(response, {
      write: (chunk: unknown, ...rest: unknown[]) => this.#write(chunk, rest),
      end: (...given: unknown[]) => this.#end(given),
      writeHead: (status: number, ...rest: unknown[]) => this.#writeHead(status, rest),
      flushHeaders: () => {},
    })
  }

  /** Let go what was held back. */
  send(): void {
    if (this.#hasOverflown) return
    this.#restore()
    const body = Buffer.concat(this.#chunks)
    // A handler that fails in the middle has written a part, and then an error with the length of that error.
    if (body.length > 0 && this.#response.hasHeader('content-length'))
      this.#response.setHeader('content-length', body.length)
    this.#response.end(body, () => this.#callBack())
  }

  /** Another execution has taken the place of this one, and its response is the one that counts. */
  sendInstead(stored: StoredResponse, replayed: boolean): void {
    if (this.#hasOverflown) return
    this.forget()
    send(this.#response, stored, replayed)
    this.#callBack()
  }

  /** The response is as it was before the handler. */
  forget(): void {
    if (this.#hasOverflown) return
    this.#restore()
    for (const name of this.#response.getHeaderNames()) this.#response.removeHeader(name)
    for (const [name, value] of valuesOf(this.#headers)) this.#response.setHeader(name, value)
  }

  get #hasOverflown(): boolean {
    return this.#bytes > this.#most
  }

  #restore(): void {
    Object.assign(this.#response, this.#own)
  }

  #callBack(): void {
    for (const callback of this.#callbacks.splice(0)) callback()
  }

  #write(chunk: unknown, rest: readonly unknown[]): boolean {
    const callback = rest.find((one) => typeof one === 'function') as Callback | undefined
    const bytes = bytesIn(chunk, rest[0])
    this.#bytes += bytes.length
    this.#chunks.push(bytes)
    if (!this.#hasOverflown) {
      if (callback !== undefined) process.nextTick(callback)
      return true
    }
    // Too large to be stored: from now on it is a response like any other, and its end is heard of.
    this.#restore()
    const { status, headers } = this.#snapshot()
    const settle = (): void => this.#settle({ status, headers, body: undefined })
    // Its client may have gone before: then nothing more is heard.
    if (this.#response.destroyed) settle()
    else this.#response.once('close', settle)
    return this.#response.write(Buffer.concat(this.#chunks.splice(0)), () => callback?.())
  }

  #end(given: readonly unknown[]): ServerResponse {
    if (this.#isOver) return this.#response
    const callback = given.find((one) => typeof one === 'function') as Callback | undefined
    const [chunk, encoding] = given
    if (chunk !== undefined && chunk !== null && typeof chunk !== 'function') this.#write(chunk, [encoding])
    if (this.#hasOverflown) return this.#response.end(callback)
    this.#isOver = true
    if (callback !== undefined) this.#callbacks.push(callback)
    this.#settle({ ...this.#snapshot(), body: Buffer.concat(this.#chunks) })
    return this.#response
  }

  /** Remember it, without sending. */
  #writeHead(status: number, rest: readonly unknown[]): ServerResponse {
    const response = this.#response
    response.statusCode = status
    if (typeof rest[0] === 'string') response.statusMessage = rest[0]
    const headers = rest.find((one) => typeof one === 'object' && one !== null)
    for (const [name, value] of headerPairs(headers as OutgoingHttpHeaders | readonly OutgoingHttpHeader[] | undefined))
      response.setHeader(name, value as string)
    return response
  }

  #snapshot(): Omit<MadeResponse, 'body'> {
    return { status: this.#response.statusCode, headers: pairsOf(this.#response.getHeaders()) }
  }
}

/** Headers as `writeHead` takes them: an object, or names and values in turn. */
function headerPairs(
  headers: OutgoingHttpHeaders | readonly OutgoingHttpHeader[] | undefined,
): readonly (readonly [string, unknown])[] {
  if (headers === undefined) return []
  if (!Array.isArray(headers)) return Object.entries(headers).filter(([, value]) => value !== undefined)
  // A name may come more than once: cookies do.
  const values = new Map<string, unknown[]>()
  for (let index = 0; index + 1 < headers.length; index += 2) {
    const name = String(headers[index])
    values.set(name, [...(values.get(name) ?? []), headers[index + 1]])
  }
  return [...values].map(([name, all]) => [name, all.length === 1 ? all[0] : all])
}

function bytesIn(chunk: unknown, encoding: unknown): Buffer {
  if (typeof chunk === 'string') return Buffer.from(chunk, typeof encoding === 'string' ? (encoding as 'utf8') : 'utf8')
  return Buffer.from(chunk as Uint8Array)
}
