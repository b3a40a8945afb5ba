/**
 * A response of `node:http` that is held back until it is stored. What the handler writes is collected, and goes out in
 * one piece afterwards; beyond the largest body that is stored, it goes out as it comes.
 *
 * The end of the work is the end of the response, not that of the connection: a handler goes on when its client has
 * gone, and so does the charge.
 */
import type { IncomingMessage, OutgoingHttpHeader, OutgoingHttpHeaders, ServerResponse } from 'node:http'
import { ClientLeaving, type Source } from './client-leaving.ts'
import { bytesOf, type MadeResponse, REPLAYED_HEADER, type StoredResponse, valuesOf } from './exchange.ts'
import {
  checkStatus,
  type Head,
  headerPairs,
  headOf,
  isHttp2,
  isSentByStream,
  madeOf,
  messageOf,
  sentHeadOf,
  setHead,
  setMessage,
  takeBackBody,
} from './head.ts'
import { HiddenClose } from './hidden-close.ts'
import { quietWhenAnswered } from './late-handler.ts'

/** Whether its head is on its way, or its end was asked for. */
export function isBegun(response: ServerResponse): boolean {
  return response.headersSent || response.writableEnded
}

/** Send what is stored, with `headers` of those who came before. */
export function send(
  response: ServerResponse,
  stored: StoredResponse,
  replayed: boolean,
  headers: StoredResponse['headers'] = [],
): void {
  response.statusCode = stored.status
  for (const [name, value] of [...valuesOf(headers), ...valuesOf(stored.headers)]) response.setHeader(name, value)
  if (replayed) response.setHeader(REPLAYED_HEADER, 'true')
  endWith(response, bytesOf(stored))
}

/**
 * Without a chunk where there is no body: Node can be told to refuse it where the status allows none. And without a
 * callback, here as everywhere: the `end` of middleware before this one may take it for a chunk, or drop it.
 */
function endWith(response: ServerResponse, body: Buffer): void {
  const { statusCode } = response
  const allowsBody = statusCode >= 200 && statusCode !== 204 && statusCode !== 304
  if (body.length > 0 && allowsBody) response.end(body)
  else response.end()
}

type Callback = () => void

/** How far a response is held back. */
export interface HoldBounds {
  /** How large a body is held back. */
  readonly most: number
  /** Whether another execution may have taken the place of this one: then a larger one waits for the verdict, too. */
  hasLost(): boolean
}

/** A stream that is piped into it. */
interface Piped extends Source {
  unpipe?(from: ServerResponse): unknown
}

/** What its handler calls, and the one that tells it of events. */
type Functions = Pick<ServerResponse, 'write' | 'end' | 'writeHead' | 'flushHeaders' | 'destroy' | 'emit'>

export class HeldResponse {
  /** What the handler has made of it, when it has ended. Rejects with what the handler has failed with instead. */
  readonly made: Promise<MadeResponse>
  readonly #response: ServerResponse
  readonly #bounds: HoldBounds
  readonly #own: Functions
  readonly #chunks: Buffer[] = []
  readonly #callbacks: Callback[] = []
  /** As it was before the handler. */
  readonly #before: Head
  /** As it was when a first part of its body was written. */
  #atFirst: Head | undefined
  /** As it was when the handler ended it: that is stored, and that is sent, whatever is set afterwards. */
  #atEnd: Head | undefined
  #state: 'held' | 'waiting' | 'overflown' | 'let go' | 'ended' | 'destroyed' | 'forgotten' = 'held'
  #bytes = 0
  readonly #writeHeld = (...given: unknown[]): boolean => this.#write(given)
  #isCompleting = false
  #isWritten = false
  readonly #close: HiddenClose
  #settle!: (made: MadeResponse) => void
  #fail!: (error: unknown) => void
  /** Of one that goes out as it comes: it counts as done, and cannot be stored. */
  #settleAsSent: Callback = () => {}
  readonly #leaving: ClientLeaving
  readonly #piped = new Set<Piped>()

  constructor({ socket }: IncomingMessage, response: ServerResponse, bounds: HoldBounds) {
    this.#response = response
    this.#leaving = new ClientLeaving(response, socket, this.#piped, {
      settle: () => this.#settleAsSent(),
      fail: (error) => this.#fail(error),
    })
    this.#bounds = bounds
    this.#before = headOf(response)
    const { write, end, writeHead, flushHeaders, destroy, emit } = response
    this.#own = { write, end, writeHead, flushHeaders, destroy, emit }
    this.made = new Promise((settle, fail) => {
      this.#settle = settle
      this.#fail = fail
    })
    Object.assign(response, {
      write: this.#writeHeld,
      end: (...given: unknown[]) => this.#end(given),
      writeHead: (...given: unknown[]) => this.#writeHead(given),
      flushHeaders: () => void (this.hasOverflown && this.#callOwn('flushHeaders', [])),
      destroy: (error?: Error) => this.#destroy(error),
      emit: (...given: unknown[]) => this.#emit(given),
    })
    this.#close = new HiddenClose(response)
  }

  /** It is no longer that of the handler: ended, destroyed, or taken from it. */
  get isOver(): boolean {
    return this.#state !== 'held' && this.#state !== 'waiting' && !this.hasOverflown
  }

  /** It was too large to be held back, or was let go: it goes out as it comes. */
  get hasOverflown(): boolean {
    return this.#state === 'overflown' || this.#state === 'let go'
  }

  /** It goes out as it comes, and its client has gone. */
  get isLeft(): boolean {
    return this.#leaving.hasLeft
  }

  /** Its handler has cut its client off. */
  get isDestroyed(): boolean {
    return this.#state === 'destroyed'
  }

  /**
   * Its head, or a part of it, was written, by one who may have left: to those who ask from now on it counts as sent.
   * It does not before, because an error may still take its place.
   */
  showWritten(): void {
    if (this.#isWritten && (this.#state === 'held' || this.#state === 'waiting'))
      Object.defineProperty(this.#response, 'headersSent', { value: true, configurable: true })
  }

  /**
   * What its handler does. When its client has left one that goes out as it comes, a handler that works goes on: it is
   * done when that has ended it or has returned, and has failed when that does.
   */
  follow(work: Promise<unknown>): void {
    this.#leaving.follow(work)
  }

  /** Its handler has failed before it has ended it. */
  fail(error: unknown): void {
    // It was made already, and will not be whole.
    if (this.#state === 'waiting') this.#destroy(undefined)
    this.#fail(error)
  }

  /** It is not for the framework: it goes out as it comes, and its end or that of its connection is heard of. */
  letGo(): void {
    if (this.#state !== 'held') return
    this.#passOn('let go', () => madeOf(sentHeadOf(this.#response), undefined))
    for (const chunk of this.#chunks.splice(0)) this.#callOwn('write', [chunk])
  }

  /** Send what was held back. */
  send(): void {
    if (this.hasOverflown) return
    if (this.#state === 'waiting') {
      this.#overflow()
      this.#response.emit('drain')
      return
    }
    this.#restore()
    const response = this.#response
    // Middleware that had wrapped the response before this one has sent one: that is what its client has.
    if (isBegun(response)) {
      this.#callBack()
      return
    }
    if (this.#atEnd !== undefined) setHead(response, this.#atEnd)
    const body = Buffer.concat(this.#chunks)
    // A handler that fails in the middle has written a part, and then an error with the length of that error.
    if (body.length > 0 && response.hasHeader('content-length')) response.setHeader('content-length', body.length)
    response.once('finish', () => this.#callBack())
    endWith(response, body)
  }

  /** Another execution has taken the place of this one, and its response is the one that counts. */
  sendInstead(stored: StoredResponse, replayed: boolean, headers: StoredResponse['headers'] = []): void {
    if (this.hasOverflown) return
    this.forget()
    if (!isBegun(this.#response)) send(this.#response, stored, replayed, headers)
    this.#callBack()
  }

  /** The response is as it was before the handler, which may still work: another answer takes its place. */
  forget(): void {
    if (this.hasOverflown) return
    this.#state = 'forgotten'
    for (const source of [...this.#piped]) source.unpipe?.(this.#response)
    this.#restore()
    if (!isBegun(this.#response)) setHead(this.#response, this.#before)
    quietWhenAnswered(this.#response)
  }

  /** What middleware behind this one has wrapped around it goes, too: that belongs to the handler. */
  #restore(): void {
    Object.assign(this.#response, this.#own)
    Reflect.deleteProperty(this.#response, 'writableEnded')
    Reflect.deleteProperty(this.#response, 'headersSent')
    this.#tellClose()
  }

  #tellClose(): void {
    this.#close.show((tell) => this.#leaving.tell(tell))
  }

  #callBack(): void {
    for (const callback of this.#callbacks.splice(0)) callback()
  }

  #callOwn<Result>(name: keyof Functions, given: readonly unknown[]): Result {
    return Reflect.apply(this.#own[name], this.#response, given) as Result
  }

  /**
   * The handler is told that its client has gone when it has made its response. Of HTTP/2, Node tells `finish` of that
   * as well, right before, and a stream that is piped into it stops at it in the same way.
   */
  #emit(given: readonly unknown[]): boolean {
    const [event, source] = given
    const response = this.#response
    const isOfClose = event === 'close' || (event === 'finish' && isHttp2(response))
    if (isOfClose) this.#noticeSent()
    if (event === 'pipe') this.#piped.add(source as Piped)
    // One that is unpiped by itself, when it is told of the close, is still of interest to that.
    if (event === 'unpipe' && !this.isLeft) this.#piped.delete(source as Piped)
    if (!isOfClose || (this.hasOverflown && response.writableEnded)) return this.#callOwn('emit', given)
    if (this.hasOverflown) return this.#leaving.tell(() => this.#callOwn('emit', given))
    this.#close.hide()
    return true
  }

  /** By the stream of HTTP/2 that is under it: it goes out as it comes, and its close is its end. */
  #noticeSent(): void {
    if (this.#state === 'held' && isSentByStream(this.#response)) this.letGo()
  }

  #write(given: readonly unknown[]): boolean {
    this.#noticeSent()
    if (this.hasOverflown) return this.#callOwn('write', this.#leaving.listening(given))
    if (this.isOver) return false
    this.#isWritten = true
    this.#makeWay()
    const [chunk, encoding] = given
    const callback = callbackOf(given)
    const bytes = bytesIn(chunk, encoding)
    if (bytes.length > 0) this.#atFirst ??= headOf(this.#response)
    const overflows = this.#state === 'held' && this.#bytes + bytes.length > this.#bounds.most
    // If that throws, nothing was written.
    if (overflows) this.#completeHead()
    this.#bytes += bytes.length
    this.#chunks.push(bytes)
    if (callback !== undefined) process.nextTick(callback)
    if (overflows && !this.#bounds.hasLost()) return this.#overflow()
    if (overflows) this.#await()
    return this.#state === 'held'
  }

  /** Its request may have been answered elsewhere: what is sent of it is decided by that. */
  #await(): void {
    this.#state = 'waiting'
    this.#settle(madeOf(headOf(this.#response), undefined))
  }

  /**
   * Too large to be stored: from now on it is a response like any other, and its end is heard of. Its functions stay
   * where they are: middleware behind this one may have wrapped them, and the handler still writes.
   */
  #overflow(): boolean {
    const made = madeOf(headOf(this.#response), undefined)
    this.#passOn('overflown', () => made)
    return this.#callOwn('write', [Buffer.concat(this.#chunks.splice(0))])
  }

  #passOn(state: 'overflown' | 'let go', made: () => MadeResponse): void {
    this.#settleAsSent = () => {
      this.#leaving.end()
      this.#settle(made())
    }
    this.#leaving.begin()
    this.#state = state
    Reflect.deleteProperty(this.#response, 'headersSent')
    this.#tellClose()
  }

  #end(given: readonly unknown[]): ServerResponse {
    this.#noticeSent()
    if (this.isOver) return this.#response
    if (this.#state === 'let go') {
      this.#callOwn('end', given)
      this.#settleAsSent()
      return this.#response
    }
    this.#makeWay()
    // If that throws, nothing was written.
    if (!this.hasOverflown) this.#completeHead()
    const [chunk, encoding] = given
    const callback = callbackOf(given)
    // Node takes what is false or 0 for no chunk, too.
    if (chunk && typeof chunk !== 'function') this.#write(typeof encoding === 'string' ? [chunk, encoding] : [chunk])
    if (this.hasOverflown) {
      if (callback !== undefined) this.#response.once('finish', callback)
      this.#callOwn('end', [])
      this.#settleAsSent()
      return this.#response
    }
    this.#atEnd = headOf(this.#response)
    this.#state = 'ended'
    // As of any other: Fastify calls no handler then.
    Object.defineProperty(this.#response, 'writableEnded', { value: true, configurable: true })
    if (callback !== undefined) this.#callbacks.push(callback)
    this.#settle(madeOf(this.#atEnd, Buffer.concat(this.#chunks)))
    return this.#response
  }

  /** An error takes the place of what was written before it, and of what was said about that. */
  #makeWay(): void {
    const response = this.#response
    const isError = response.statusCode >= 400 && response.statusCode !== this.#atFirst?.status
    // Middleware behind this one may compress: what it writes after its beginning cannot be read alone.
    const isWrapped = response.write !== this.#writeHeld
    if (this.#atFirst === undefined || !isError || isWrapped || this.#state !== 'held') return
    takeBackBody(response, this.#atFirst, this.#before)
    this.#atFirst = undefined
    this.#chunks.length = 0
    this.#bytes = 0
  }

  /** As Node does when a handler has not: middleware behind this one may wait for it, to set headers. */
  #completeHead(): void {
    this.#isCompleting = true
    try {
      this.#response.writeHead(this.#response.statusCode)
    } finally {
      this.#isCompleting = false
    }
  }

  /** Remember it, without sending. */
  #writeHead(given: readonly unknown[]): ServerResponse {
    if (this.hasOverflown) return this.#callOwn('writeHead', given)
    const response = this.#response
    if (this.isOver) return response
    this.#isWritten = true
    const [status, ...rest] = given
    const message = typeof rest[0] === 'string' ? rest[0] : messageOf(response)
    checkStatus(status, message)
    response.statusCode = status as number
    setMessage(response, message)
    const headers = rest.find((one) => typeof one === 'object' && one !== null)
    // It is the head of another response, an error of Fastify for example: what came before it is no part of that.
    // Unless it is the head of this one, to which middleware behind this one has added some.
    if (headers !== undefined && !this.#isCompleting) {
      this.#chunks.length = 0
      this.#bytes = 0
    }
    const pairs = headerPairs(headers as OutgoingHttpHeaders | readonly OutgoingHttpHeader[] | undefined)
    for (const [name, value] of pairs) response.setHeader(name, value as string)
    if (this.#isCompleting) return response
    this.#makeWay()
    // Of an error, Fastify says anew what type it has, and repeats the rest.
    const type = pairs.find(([name]) => name.toLowerCase() === 'content-type')
    if (type !== undefined) response.setHeader(type[0], type[1] as string)
    return response
  }

  /** By the handler, but for one case: of a client that goes, Node tells otherwise. */
  #destroy(error: Error | undefined): ServerResponse {
    // It has no client to be cut off: that is no verdict.
    if (this.isLeft) return this.#callOwn('destroy', [error])
    if (isOfNode(this.#response, error)) {
      const destroyed = this.#callOwn<ServerResponse>('destroy', [error])
      if (!this.hasOverflown) this.#close.hide()
      return destroyed
    }
    if (!this.isOver && this.#state !== 'overflown') {
      this.#state = 'destroyed'
      this.#restore()
      this.#fail(error ?? new Error('its handler has destroyed the response to this request'))
    }
    this.#settleAsSent()
    return this.#callOwn('destroy', [error])
  }
}

/** Newer versions of Node destroy what waits behind another response when their connection closes. */
function isOfNode({ socket }: ServerResponse, error: Error | undefined): boolean {
  return socket === null && (error as NodeJS.ErrnoException | undefined)?.code === 'ECONNRESET'
}

function callbackOf(given: readonly unknown[]): Callback | undefined {
  return given.find((one) => typeof one === 'function') as Callback | undefined
}

function bytesIn(chunk: unknown, encoding: unknown): Buffer {
  if (typeof chunk === 'string') return Buffer.from(chunk, typeof encoding === 'string' ? (encoding as 'utf8') : 'utf8')
  return Buffer.from(chunk as Uint8Array)
}
