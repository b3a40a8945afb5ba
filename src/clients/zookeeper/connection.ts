/**
 * One connection to one server: the handshake, and requests that are answered in the order in which they were sent.
 *
 * A server that says nothing any more is left (silence-watch.ts). A connection never keeps the process alive: the
 * session does, while a call is open.
 */
import type { Socket } from 'node:net'
import type { Clock, Timer } from '../../core/clock.ts'
import { isUntrusted } from '../shared/driver-errors.ts'
import type { Endpoint, TlsCertificates } from '../shared/endpoint.ts'
import { answeredError, connectionLost, ZOOKEEPER_CODE, ZooKeeperError } from './errors.ts'
import { JuteError, JuteFrames, JuteReader, type JuteWriter } from './jute.ts'
import {
  authMessage,
  type ConnectRequest,
  type ConnectResponse,
  connectMessage,
  type NodeEvent,
  OPCODE,
  pingMessage,
  type ReplyHeader,
  readConnect,
  readEvent,
  readHead,
  requestHead,
  SPECIAL_XID,
} from './messages.ts'
import { SilenceWatch } from './silence-watch.ts'
import { openSocket } from './socket.ts'

/** The server does not accept our certificate, or asks for one. */
const OURS_REFUSED = /^(?:ERR_SSL_|EPROTO)/

export interface ZooKeeperConnectionOptions {
  readonly endpoint: Endpoint
  readonly tls?: TlsCertificates | undefined
  readonly clock: Clock
  /** Sent first, before the server has said anything. */
  readonly request: ConnectRequest
  /** How long the server has for the handshake. */
  readonly limitMs: number
  /** The number of the next request. No two requests of a session have the same: session-connection.ts says why. */
  nextXid(): number
  /** Something was sent. */
  sent(at: number): void
  event(event: NodeEvent): void
  /** A response carries the number of the last transaction that the server has done. */
  zxid(zxid: bigint): void
}

/** A request, and how its response is read. */
export interface RequestPlan<Answer> {
  readonly opcode: number
  /** For messages of errors. */
  readonly what: string
  /** Adds what belongs to the request. */
  write(writer: JuteWriter): void
  /** Reads what belongs to its response. */
  read(reader: JuteReader): Answer
}

/** A request that is under way. */
interface Pending {
  readonly xid: number
  readonly sentAt: number
  answer(reader: JuteReader, code: number): void
  fail(error: ZooKeeperError): void
}

const NEVER = Number.POSITIVE_INFINITY

export class ZooKeeperConnection {
  readonly endpoint: Endpoint
  /** What the server answers to the handshake. Rejects if the connection fails before. */
  readonly ready: Promise<ConnectResponse>
  /** Resolves when the connection has ended, with the reason. */
  readonly closed: Promise<ZooKeeperError>
  readonly #options: ZooKeeperConnectionOptions
  readonly #clock: Clock
  readonly #socket: Socket
  readonly #pending: Pending[] = []
  /** Pings, credentials and watches, which have no number of their own: when the oldest of them was sent. */
  #unnumberedSince: number | undefined
  /** How many messages that set watches again are not answered. What these have missed is told before the answer. */
  #watchesUnanswered = 0
  #timeoutMs: number | undefined
  readonly #handshakeLimit: Timer
  #silence: SilenceWatch | undefined
  #failure: ZooKeeperError | undefined
  #end!: (error: ZooKeeperError) => void
  #welcome!: (response: ConnectResponse) => void
  #authFailed = false

  constructor(options: ZooKeeperConnectionOptions) {
    this.#options = options
    this.#clock = options.clock
    this.endpoint = options.endpoint
    this.closed = new Promise((resolve) => {
      this.#end = resolve
    })
    this.ready = new Promise((resolve, reject) => {
      this.#welcome = resolve
      void this.closed.then(reject)
    })
    // A caller that does not wait for it learns of the failure from its call.
    this.ready.catch(() => {})
    this.#socket = openSocket(options.endpoint, options.tls)
    this.#socket.unref()
    const frames = new JuteFrames((message) => this.#hear(new JuteReader(message)))
    this.#socket.on('data', (piece: Buffer) => this.#take(frames, piece))
    this.#socket.on('error', (error) => this.#fail(error.message, error))
    this.#socket.on('close', () => this.#fail('the server has ended the connection'))
    this.#socket.write(connectMessage(options.request))
    this.#handshakeLimit = this.#clock.timer(options.limitMs, () =>
      this.#fail(`no answer as of a ZooKeeper server within ${Math.round(options.limitMs)} ms`),
    )
  }

  get usable(): boolean {
    return this.#failure === undefined && this.#timeoutMs !== undefined
  }

  /** `answered`: the server has answered, be it with the code of an error, what was sent at that time. */
  request<Answer>(
    { opcode, what, write, read }: RequestPlan<Answer>,
    answered?: (sentAt: number, code: number) => void,
  ): Promise<Answer> {
    return new Promise((resolve, reject) => {
      if (this.#failure !== undefined) {
        reject(connectionLost(this.#failure.message, { refused: true, cause: this.#failure }))
        return
      }
      const sentAt = this.#clock.now()
      const xid = this.#options.nextXid()
      const writer = requestHead(xid, opcode)
      write(writer)
      this.#pending.push({
        xid,
        sentAt,
        answer: (reader, code) => {
          answered?.(sentAt, code)
          if (code !== 0) reject(answeredError(code, what))
          else resolve(read(reader))
        },
        fail: reject,
      })
      this.#write(writer.framed(), sentAt)
    })
  }

  /** Say who we are. A server that refuses ends the connection. */
  authenticate(scheme: string, credentials: string): void {
    this.#sendUnnumbered(authMessage(scheme, credentials))
  }

  setWatches(messages: readonly Buffer[]): void {
    this.#watchesUnanswered += messages.length
    for (const message of messages) this.#sendUnnumbered(message)
  }

  /** End the session, with all its ephemeral nodes, and then the connection. */
  async closeSession(): Promise<void> {
    const plan = { opcode: OPCODE.closeSession, what: 'close', write: () => undefined, read: () => undefined }
    await this.request(plan).catch(() => undefined)
    this.close()
  }

  close(): void {
    this.#fail('closed by this process')
  }

  /** Frames of one turn of the event loop go out together. */
  #write(message: Buffer, now: number): void {
    if (this.#socket.writableCorked === 0) {
      this.#socket.cork()
      process.nextTick(() => this.#socket.uncork())
    }
    this.#socket.write(message)
    this.#silence?.sent(now)
    this.#options.sent(now)
  }

  #sendUnnumbered(message: Buffer): void {
    if (this.#failure !== undefined) return
    const now = this.#clock.now()
    this.#unnumberedSince ??= now
    this.#write(message, now)
  }

  #take(frames: JuteFrames, piece: Buffer): void {
    if (this.#failure !== undefined) return
    this.#silence?.heard(this.#clock.now())
    try {
      frames.push(piece)
    } catch (error) {
      if (!(error instanceof JuteError)) throw error
      // Not a ZooKeeper server, or not a whole one. What is under way is of unknown outcome.
      this.#fail(`the answer is not that of a ZooKeeper server: ${error.message}`, error, this.#timeoutMs === undefined)
    }
  }

  #hear(reader: JuteReader): void {
    if (this.#failure !== undefined) return
    if (this.#timeoutMs === undefined) {
      const response = readConnect(reader)
      this.#handshakeLimit.cancel()
      this.#timeoutMs = Math.max(response.timeoutMs, 0)
      this.#welcome(response)
      if (this.#timeoutMs > 0) this.#silence = this.#watchSilence(this.#timeoutMs)
      return
    }
    const head = readHead(reader)
    // One transaction can have several events. The number of one of them does not say that we have heard the others.
    if (head.xid === SPECIAL_XID.event) {
      this.#options.event({ ...readEvent(reader), inOrder: this.#watchesUnanswered === 0 })
      return
    }
    // With several messages that set watches under way, the zxid waits for the answer to the last: what the others have
    // missed is not told yet.
    const hasMore = head.xid === SPECIAL_XID.setWatches && this.#watchesUnanswered > 1
    if (head.zxid > 0n && !hasMore) this.#options.zxid(head.zxid)
    if (head.xid < 0) this.#hearUnnumbered(head)
    else this.#hearAnswer(head, reader)
  }

  #hearUnnumbered({ xid, code }: ReplyHeader): void {
    this.#unnumberedSince = undefined
    if (xid === SPECIAL_XID.setWatches) this.#watchesUnanswered -= 1
    if (xid !== SPECIAL_XID.auth || code === 0) return
    this.#authFailed = true
    this.#fail('the server refuses the credentials')
  }

  #hearAnswer({ xid, code }: ReplyHeader, reader: JuteReader): void {
    if (code === ZOOKEEPER_CODE.unimplemented) {
      // Said out of turn, before the answers to what was sent earlier; and then the server hangs up.
      this.#pending.find((one) => one.xid === xid)?.answer(reader, code)
      this.#fail('the server does not know a request, and hangs up')
      return
    }
    const pending = this.#pending.shift()
    if (pending?.xid !== xid) {
      if (pending !== undefined) this.#pending.unshift(pending)
      throw new JuteError(`an answer to request ${xid}, where ${pending?.xid ?? 'none'} is the next`)
    }
    try {
      pending.answer(reader, code)
    } catch (error) {
      if (!(error instanceof Error)) throw error
      pending.fail(
        error instanceof ZooKeeperError ? error : connectionLost(error.message, { refused: false, cause: error }),
      )
      // The server has answered something, but not what we can read.
      if (error instanceof JuteError) throw error
    }
  }

  #watchSilence(timeoutMs: number): SilenceWatch {
    const { host, port } = this.endpoint
    return new SilenceWatch({
      clock: this.#clock,
      timeoutMs,
      unansweredSince: () => Math.min(this.#pending[0]?.sentAt ?? NEVER, this.#unnumberedSince ?? NEVER),
      ping: () => this.#sendUnnumbered(pingMessage()),
      silent: () => this.#fail(`${host}:${port} does not answer any more`),
    })
  }

  #fail(why: string, cause?: Error, lasting = false): void {
    if (this.#failure !== undefined) return
    const { host, port } = this.endpoint
    const message = why.startsWith(`${host}:`) ? why : `${host}:${port}: ${why}`
    const code = this.#authFailed ? ZOOKEEPER_CODE.authFailed : ZOOKEEPER_CODE.connectionLoss
    this.#failure = new ZooKeeperError(code, message, {
      refused: this.#timeoutMs === undefined || this.#authFailed,
      lasting: lasting || this.#authFailed || isUntrusted(cause, OURS_REFUSED),
      cause,
    })
    this.#handshakeLimit.cancel()
    this.#silence?.stop()
    this.#socket.destroy()
    const lost = this.#authFailed ? this.#failure : connectionLost(message, { refused: false, cause })
    for (const pending of this.#pending.splice(0)) pending.fail(lost)
    this.#end(this.#failure)
  }
}
