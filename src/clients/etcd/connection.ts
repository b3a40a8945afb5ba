/**
 * One connection to one member: gRPC over HTTP/2, as much of it as etcd needs
 * (https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md).
 *
 * It is open when the member has said something (its settings): a frozen one still accepts connections, by its kernel.
 * While an answer is missing it is asked for a sign of life, and given up if there is none; so a call on it ends within
 * its own limit, and the next one goes elsewhere. It never keeps the process alive.
 */
import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  connect,
  constants,
  type IncomingHttpHeaders,
} from 'node:http2'
import type { Socket } from 'node:net'
import type { Clock, Timer } from '../../core/clock.ts'
import { Messages } from './frames.ts'
import { Pulse } from './pulse.ts'
import { RpcError, STATUS } from './rpc-error.ts'

export interface Tls {
  readonly ca?: string | Buffer
  /** A certificate of our own, and its key. */
  readonly cert?: string | Buffer
  readonly key?: string | Buffer
}

export interface Endpoint {
  readonly host: string
  readonly port: number
}

/** How long the other side has to say goodbye: a frozen one does not. */
const GOODBYE_MS = 1_000

const { HTTP2_HEADER_METHOD, HTTP2_HEADER_PATH, NGHTTP2_CANCEL, NGHTTP2_REFUSED_STREAM } = constants

export interface StreamHandler {
  message(bytes: Buffer): void
  /** It is over; there is always a reason, since we never end one that is listened to. */
  ended(error: RpcError): void
}

export interface RpcStream {
  send(message: Buffer): void
  close(): void
}

export class Connection {
  readonly endpoint: Endpoint
  /** Resolves when the member has said something. */
  readonly ready: Promise<void>
  /** Resolves when nothing of it is left. */
  readonly closed: Promise<void>
  readonly #session: ClientHttp2Session
  readonly #clock: Clock
  readonly #streams = new Set<ClientHttp2Stream>()
  #calls = 0
  #open = false
  #retired = false
  readonly #pulse: Pulse
  #failure: Error | undefined
  #socket: Socket | undefined
  #goodbye: Timer | undefined

  constructor(endpoint: Endpoint, tls: Tls | undefined, clock: Clock) {
    this.endpoint = endpoint
    this.#clock = clock
    const { host, port } = endpoint
    const authority = `${host.includes(':') ? `[${host}]` : host}:${port}`
    this.#session = tls === undefined ? connect(`http://${authority}`) : connect(`https://${authority}`, { ...tls })
    this.#session.unref()
    this.#pulse = new Pulse(clock, {
      expects: () => (this.#calls > 0 ? 'calls' : this.#streams.size > 0 ? 'streams' : 'nothing'),
      ping: (pong) => void this.#session.ping((error) => error === null && pong()),
      dead: () => {
        this.#failure ??= new Error('no sign of life')
        this.#session.destroy(this.#failure)
      },
    })
    this.#session.on('error', (error) => this.#failed(error))
    this.#session.on('goaway', () => this.#failed(new Error('the server says goodbye')))
    this.closed = new Promise((resolve) => {
      this.#session.once('close', resolve)
      this.#session.once('connect', (_, socket) => {
        this.#socket = socket
        // Small frames one after the other: none of them is to wait until the one before is acknowledged.
        socket.setNoDelay(true)
        // A server that turns us down by an alert of TLS ends the socket, and Node's session does not say so.
        socket.once('error', (error) => {
          this.#failure ??= error
          resolve()
        })
      })
    })
    this.ready = new Promise((resolve, reject) => {
      this.#session.once('remoteSettings', () => {
        this.#open = true
        resolve()
      })
      void this.closed.then(() => {
        this.#open = false
        this.#pulse.stop()
        this.#goodbye?.cancel()
        reject(this.#lost('not connected', true))
      })
    })
    // Whoever does not wait for it is told by what it asks.
    this.ready.catch(() => {})
  }

  /** Whether something can be asked of it. */
  get usable(): boolean {
    return this.#open && !this.#retired && !this.#session.closed && !this.#session.destroyed
  }

  /** One question, one answer. */
  call(
    path: string,
    message: Buffer,
    headers: Readonly<Record<string, string>>,
    limitMs: number,
    signal?: AbortSignal,
  ): Promise<Buffer> {
    return new Promise((resolve, reject) => {
      if (signal?.aborted)
        return reject(new RpcError(STATUS.deadlineExceeded, 'given up before it was sent', { refused: true }))
      const stream = this.#request(path, { ...headers, 'grpc-timeout': `${Math.ceil(limitMs)}m` })
      if (stream instanceof RpcError) return reject(stream)
      this.#calls += 1
      if (this.#calls === 1) this.#pulse.begin()
      let answer: Buffer | undefined
      let over = false
      const settle = (error: RpcError | undefined): void => {
        if (over) return
        over = true
        this.#calls -= 1
        limit.cancel()
        signal?.removeEventListener('abort', abort)
        if (error !== undefined) reject(error)
        else if (answer === undefined) reject(new RpcError(STATUS.unavailable, 'an answer without a message'))
        else resolve(answer)
        this.#closeIfDone()
      }
      const giveUp = (why: string): void => {
        settle(new RpcError(STATUS.deadlineExceeded, why))
        stream.close(NGHTTP2_CANCEL)
      }
      const abort = (): void => giveUp('given up')
      const limit = this.#clock.timer(limitMs, () => giveUp(`no answer within ${Math.round(limitMs)} ms`))
      signal?.addEventListener('abort', abort)
      const messages = new Messages((bytes) => {
        answer ??= bytes
      })
      this.#listen(stream, messages, settle)
      stream.end(message)
      this.#pulse.watch()
      return undefined
    })
  }

  /** Messages both ways, until one side has enough. */
  stream(path: string, headers: Readonly<Record<string, string>>, handler: StreamHandler): RpcStream {
    const stream = this.#request(path, headers)
    if (stream instanceof RpcError) throw stream
    this.#streams.add(stream)
    let over = false
    const end = (error: RpcError | undefined): void => {
      this.#streams.delete(stream)
      if (over) return
      over = true
      handler.ended(error ?? new RpcError(STATUS.unavailable, 'the server ended the stream'))
      this.#closeIfDone()
    }
    this.#listen(stream, new Messages((bytes) => handler.message(bytes)), end)
    this.#pulse.watch()
    return {
      send: (message) => void stream.write(message),
      close: () => {
        over = true
        stream.close(NGHTTP2_CANCEL)
      },
    }
  }

  /** Nothing more is asked of it: streams end, calls may still be answered. */
  retire(): void {
    if (this.#retired) return
    this.#retired = true
    for (const stream of this.#streams) stream.close(NGHTTP2_CANCEL)
    this.#closeIfDone()
  }

  close(): void {
    this.#session.destroy()
    this.#sayGoodbye()
  }

  #closeIfDone(): void {
    if (!this.#retired || this.#calls > 0 || this.#streams.size > 0) return
    this.#session.close()
    this.#sayGoodbye()
  }

  /** Node waits until the other side ends the connection, too; we do not. */
  #sayGoodbye(): void {
    this.#goodbye ??= this.#clock.timer(GOODBYE_MS, () => this.#socket?.destroy())
  }

  #request(path: string, headers: Readonly<Record<string, string>>): ClientHttp2Stream | RpcError {
    if (!this.usable) return this.#lost('not connected', true)
    try {
      return this.#session.request({
        [HTTP2_HEADER_METHOD]: 'POST',
        [HTTP2_HEADER_PATH]: path,
        'content-type': 'application/grpc+proto',
        te: 'trailers',
        ...headers,
      })
    } catch (cause) {
      return new RpcError(STATUS.unavailable, `not sent: ${(cause as Error).message}`, { refused: true, cause })
    }
  }

  /** The status of gRPC is in the trailers, or, if there is nothing else, in the headers. */
  #listen(stream: ClientHttp2Stream, messages: Messages, settle: (error: RpcError | undefined) => void): void {
    let status: IncomingHttpHeaders = {}
    let failure: Error | undefined
    const note = (headers: IncomingHttpHeaders): void => {
      this.#pulse.answered()
      if (headers['grpc-status'] !== undefined) status = headers
    }
    stream.on('response', note)
    stream.on('trailers', note)
    stream.on('data', (bytes: Buffer) => {
      this.#pulse.answered()
      messages.take(bytes)
    })
    stream.on('error', (error) => {
      failure = error
    })
    stream.once('close', () => {
      const code = status['grpc-status']
      if (code === '0') settle(undefined)
      else if (code !== undefined) settle(new RpcError(Number(code), decoded(String(status['grpc-message'] ?? ''))))
      else settle(this.#lost(failure?.message ?? 'the stream was cut', stream.rstCode === NGHTTP2_REFUSED_STREAM))
    })
  }

  #lost(what: string, refused: boolean): RpcError {
    const cause = this.#failure
    const { host, port } = this.endpoint
    const why = cause === undefined || cause.message === what ? '' : `: ${cause.message}`
    return new RpcError(STATUS.unavailable, `${host}:${port}: ${what}${why}`, {
      refused,
      lasting: isUntrusted(cause),
      cause,
    })
  }

  #failed(error: Error): void {
    this.#failure ??= error
    this.retire()
  }
}

/** Node's codes for certificates that do not convince: theirs us, or ours them. */
function isUntrusted(error: Error | undefined): boolean {
  return /^(?:CERT_|ERR_TLS_CERT|DEPTH_ZERO_|SELF_SIGNED_|UNABLE_TO_|ERR_SSL_.*_ALERT_.*CERTIFICATE)/.test(
    String((error as NodeJS.ErrnoException | undefined)?.code),
  )
}

/** gRPC percent-encodes what is not plain. */
function decoded(message: string): string {
  try {
    return decodeURIComponent(message)
  } catch {
    return message
  }
}
