/**
 * One connection to one member: gRPC over HTTP/2, as much of it as etcd needs
 * (https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md).
 *
 * It counts as open when the member has sent its settings. To be accepted is not enough: the kernel of a frozen member
 * still accepts connections. While an answer is missing, liveness.ts pings the member and gives the connection up if it
 * is dead. So a call ends within its own limit, and the next one goes to another member. A connection never keeps the
 * process alive: the client does, while it has a call to answer.
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
import { isUntrusted } from '../shared/driver-errors.ts'
import type { Endpoint, TlsCertificates } from '../shared/endpoint.ts'
import { GRPC_STATUS, RpcError } from './errors.ts'
import { LivenessCheck } from './liveness.ts'
import { FrameReader } from './proto.ts'

/** How long the server has to end the connection, too: a frozen one does not. */
const CLOSE_LIMIT_MS = 1_000
/** The member does not accept our certificate, or asks for one. */
const OURS_REFUSED = /^ERR_SSL_.*_ALERT_.*CERTIFICATE/

const { HTTP2_HEADER_METHOD, HTTP2_HEADER_PATH, NGHTTP2_CANCEL, NGHTTP2_REFUSED_STREAM } = constants

export interface RpcStreamHandler {
  message(bytes: Buffer): void
  /** The stream is over, and not because this process has closed it. */
  ended(error: RpcError): void
}

export interface RpcStream {
  send(message: Buffer): void
  close(): void
}

export class EtcdConnection {
  readonly endpoint: Endpoint
  /** Resolves when the member has sent its settings. */
  readonly ready: Promise<void>
  /** Resolves when the connection is closed, with its socket. */
  readonly closed: Promise<void>
  readonly #session: ClientHttp2Session
  readonly #clock: Clock
  readonly #streams = new Set<ClientHttp2Stream>()
  #calls = 0
  #open = false
  #retired = false
  readonly #liveness: LivenessCheck
  #failure: Error | undefined
  #socket: Socket | undefined
  #closeTimer: Timer | undefined

  constructor(endpoint: Endpoint, tls: TlsCertificates | undefined, clock: Clock) {
    this.endpoint = endpoint
    this.#clock = clock
    const { host, port } = endpoint
    const authority = `${host.includes(':') ? `[${host}]` : host}:${port}`
    this.#session = tls === undefined ? connect(`http://${authority}`) : connect(`https://${authority}`, { ...tls })
    this.#session.unref()
    this.#liveness = new LivenessCheck(clock, {
      expects: () => (this.#calls > 0 ? 'calls' : this.#streams.size > 0 ? 'streams' : 'nothing'),
      ping: (pong) => void this.#session.ping((error) => error === null && pong()),
      dead: () => {
        this.#failure ??= new Error('the server does not answer a ping')
        this.#session.destroy(this.#failure)
      },
    })
    this.#session.on('error', (error) => this.#failed(error))
    this.#session.on('goaway', () => this.#failed(new Error('the server ends the connection')))
    this.closed = new Promise((resolve) => {
      this.#session.once('close', resolve)
      this.#session.once('connect', (_, socket) => {
        this.#socket = socket
        // Frames are small, and follow each other: none is to wait until the one before is acknowledged.
        socket.setNoDelay(true)
        // A server that refuses our certificate ends the socket by an alert of TLS. Node's session does not report it.
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
        this.#liveness.stop()
        this.#closeTimer?.cancel()
        reject(this.#lost('not connected', true))
      })
    })
    // A caller that does not wait for `ready` learns of the failure from its call.
    this.ready.catch(() => {})
  }

  /** Whether calls can be sent on it. */
  get usable(): boolean {
    return this.#open && !this.#retired && !this.#session.closed && !this.#session.destroyed
  }

  /** One request, one response. */
  call(
    path: string,
    message: Buffer,
    headers: Readonly<Record<string, string>>,
    limitMs: number,
    signal?: AbortSignal,
  ): Promise<Buffer> {
    return new Promise((resolve, reject) => {
      if (signal?.aborted)
        return reject(new RpcError(GRPC_STATUS.deadlineExceeded, 'given up before it was sent', { refused: true }))
      const stream = this.#request(path, { ...headers, 'grpc-timeout': `${Math.ceil(limitMs)}m` })
      if (stream instanceof RpcError) return reject(stream)
      this.#calls += 1
      if (this.#calls === 1) this.#liveness.begin()
      let answer: Buffer | undefined
      let over = false
      const settle = (error: RpcError | undefined): void => {
        if (over) return
        over = true
        this.#calls -= 1
        limit.cancel()
        signal?.removeEventListener('abort', abort)
        if (error !== undefined) reject(error)
        else if (answer === undefined)
          reject(new RpcError(GRPC_STATUS.unavailable, `${path}: the response of the server has no message`))
        else resolve(answer)
        this.#closeIfDone()
      }
      const giveUp = (why: string): void => {
        settle(new RpcError(GRPC_STATUS.deadlineExceeded, why))
        stream.close(NGHTTP2_CANCEL)
      }
      const abort = (): void => giveUp('given up')
      const limit = this.#clock.timer(limitMs, () => giveUp(`no answer within ${Math.round(limitMs)} ms`))
      signal?.addEventListener('abort', abort)
      const messages = new FrameReader((bytes) => {
        answer ??= bytes
      })
      this.#listen(stream, messages, settle)
      stream.end(message)
      this.#liveness.watch()
      return undefined
    })
  }

  /** Messages both ways, until one side ends the stream. */
  stream(path: string, headers: Readonly<Record<string, string>>, handler: RpcStreamHandler): RpcStream {
    const stream = this.#request(path, headers)
    if (stream instanceof RpcError) throw stream
    this.#streams.add(stream)
    let over = false
    const end = (error: RpcError | undefined): void => {
      this.#streams.delete(stream)
      if (over) return
      over = true
      handler.ended(error ?? new RpcError(GRPC_STATUS.unavailable, 'the server ended the stream'))
      this.#closeIfDone()
    }
    this.#listen(stream, new FrameReader((bytes) => handler.message(bytes)), end)
    this.#liveness.watch()
    return {
      send: (message) => void stream.write(message),
      close: () => {
        over = true
        stream.close(NGHTTP2_CANCEL)
      },
    }
  }

  /** Send no more calls on it. Its streams end; calls under way may still be answered. */
  retire(): void {
    if (this.#retired) return
    this.#retired = true
    for (const stream of this.#streams) stream.close(NGHTTP2_CANCEL)
    this.#closeIfDone()
  }

  close(): void {
    this.#session.destroy()
    this.#closeSoon()
  }

  #closeIfDone(): void {
    if (!this.#retired || this.#calls > 0 || this.#streams.size > 0) return
    this.#session.close()
    this.#closeSoon()
  }

  /** Node waits until the server ends the connection, too. We do not. */
  #closeSoon(): void {
    this.#closeTimer ??= this.#clock.timer(CLOSE_LIMIT_MS, () => this.#socket?.destroy())
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
      return new RpcError(GRPC_STATUS.unavailable, `not sent: ${(cause as Error).message}`, { refused: true, cause })
    }
  }

  /** The status of gRPC is in the trailers; in the headers, if the response has no message. */
  #listen(stream: ClientHttp2Stream, messages: FrameReader, settle: (error: RpcError | undefined) => void): void {
    let status: IncomingHttpHeaders = {}
    let failure: Error | undefined
    const note = (headers: IncomingHttpHeaders): void => {
      this.#liveness.answered()
      if (headers['grpc-status'] !== undefined) status = headers
    }
    stream.on('response', note)
    stream.on('trailers', note)
    stream.on('data', (bytes: Buffer) => {
      this.#liveness.answered()
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
    return new RpcError(GRPC_STATUS.unavailable, `${host}:${port}: ${what}${why}`, {
      refused,
      lasting: isUntrusted(cause, OURS_REFUSED),
      cause,
    })
  }

  #failed(error: Error): void {
    this.#failure ??= error
    this.retire()
  }
}

/** gRPC percent-encodes messages of errors. */
function decoded(message: string): string {
  try {
    return decodeURIComponent(message)
  } catch {
    return message
  }
}
