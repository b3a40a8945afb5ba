/**
 * The head of a response of `node:http` or HTTP/2 that is not sent yet: its status and its headers, as they are read
 * from it, put back into it, and given to `writeHead`.
 */
import { type OutgoingHttpHeader, type OutgoingHttpHeaders, type ServerResponse, validateHeaderValue } from 'node:http'
import type { Http2ServerResponse } from 'node:http2'
import { type MadeResponse, pairsOf } from './exchange.ts'

/** What is said of a body, and of no other. */
const HEADERS_OF_BODY: readonly string[] = [
  'content-disposition',
  'content-encoding',
  'content-language',
  'content-length',
  'content-range',
  'content-type',
  'etag',
  'trailer',
  'transfer-encoding',
]

/** Status and headers of a response that is not sent yet. */
export interface Head {
  readonly status: number
  readonly message: string
  readonly headers: OutgoingHttpHeaders
}

/** As Node does when it sends it, which is too late: it would be stored by then, and each retry would be told so. */
export function checkStatus(status: unknown, message: string | undefined): void {
  const number = Math.trunc(Number(status))
  if (!(number >= 100 && number <= 999))
    throw new RangeError(`the status of a response is 100 to 999; got ${String(status)}`)
  if (message !== undefined) validateHeaderValue('status message', message)
}

export function isHttp2(response: ServerResponse): boolean {
  return 'stream' in response
}

/** Whether its head was sent by the stream that is under it, and its end was not asked for: with HTTP/2 only. */
export function isSentByStream(response: ServerResponse): boolean {
  return isHttp2(response) && streamOf(response).headersSent && !response.writableEnded
}

function streamOf(response: ServerResponse): Http2ServerResponse['stream'] {
  return (response as unknown as Http2ServerResponse).stream
}

/** HTTP/2 has none, and warns of those who ask. */
export function messageOf(response: ServerResponse): string {
  return isHttp2(response) ? '' : response.statusMessage
}

export function setMessage(response: ServerResponse, message: string): void {
  if (message !== messageOf(response)) response.statusMessage = message
}

export function headOf(response: ServerResponse): Head {
  const headers = Object.entries(response.getHeaders()).map(([name, value]) => [
    name,
    Array.isArray(value) ? [...value] : value,
  ])
  // As Node does: a program in JavaScript may have set a string.
  return {
    status: Math.trunc(Number(response.statusCode)),
    message: messageOf(response),
    headers: Object.fromEntries(headers),
  }
}

/** As it was sent: by the stream that is under it, there is another one than the response has. */
export function sentHeadOf(response: ServerResponse): Head {
  const head = headOf(response)
  const sent = isHttp2(response) ? streamOf(response).sentHeaders?.[':status'] : undefined
  return sent === undefined ? head : { ...head, status: Number(sent) }
}

/** What is as it was is left alone: its name may have capitals. */
export function setHead(response: ServerResponse, { status, message, headers }: Head): void {
  response.statusCode = status
  setMessage(response, message)
  for (const name of response.getHeaderNames()) if (headers[name] === undefined) response.removeHeader(name)
  for (const [name, value] of Object.entries(headers))
    if (value !== undefined && response.getHeader(name) !== value) response.setHeader(name, value)
}

export function madeOf({ status, headers }: Head, body: Buffer | undefined): MadeResponse {
  return { status, headers: pairsOf(headers), body }
}

/** Headers as `writeHead` takes them: an object, names and values in turn, or pairs of them. */
export function headerPairs(
  headers: OutgoingHttpHeaders | readonly OutgoingHttpHeader[] | undefined,
): readonly (readonly [string, unknown])[] {
  if (headers === undefined) return []
  if (!Array.isArray(headers)) return Object.entries(headers).filter(([, value]) => value !== undefined)
  // A name may come more than once: cookies do.
  const values = new Map<string, unknown[]>()
  const turns: readonly unknown[] = Array.isArray(headers[0]) ? headers.flat() : headers
  for (let index = 0; index + 1 < turns.length; index += 2) {
    const name = String(turns[index])
    values.set(name, [...(values.get(name) ?? []), turns[index + 1]])
  }
  return [...values].map(([name, all]) => [name, all.length === 1 ? all[0] : all])
}

/** Take back what was said of a body, and has not been said again. Express adds a `charset` to a type that is there. */
export function takeBackBody(response: ServerResponse, said: Head, before: Head): void {
  for (const name of HEADERS_OF_BODY) {
    const value = before.headers[name]
    if (bare(response.getHeader(name)) !== bare(said.headers[name])) continue
    if (value === undefined) removeHeader(response, name)
    else response.setHeader(name, value)
  }
}

/** Where it is not, Node would take it for forbidden: without a length, it would close a connection that is kept. */
function removeHeader(response: ServerResponse, name: string): void {
  if (response.hasHeader(name)) response.removeHeader(name)
}

/** Take back what was said of a body that does not come. */
export function removeBody(response: ServerResponse): void {
  for (const name of HEADERS_OF_BODY) removeHeader(response, name)
}

function bare(value: OutgoingHttpHeader | undefined): string | undefined {
  return String(value).split(';')[0]
}
