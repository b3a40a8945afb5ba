/**
 * Faults on the way to a server, without root: a TCP proxy that delays, swallows, cuts or refuses.
 *
 * It behaves like a network, not like a filter. Bytes of an open connection are never thrown away: what a black hole
 * swallows is delivered late, in order, when the network heals, as TCP would retransmit it; a command can so arrive
 * long after its caller gave up. Cutting a connection (`reset`, `refuse`, `close`) loses what is under way.
 * `blackHole('replies')` and then `reset()` is the unknown outcome: the command was applied, the answer never came.
 *
 * `forget` is what a NAT or a balancer does that has lost track of a flow: its connections stay open, and nothing gets
 * through on them any more, whatever heals.
 *
 * One difference remains: a new connection into a black hole is accepted (by the kernel, before us) and then met by
 * silence.
 */
import { once } from 'node:events'
import { connect, createServer, type Server, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { freePort } from './ports.ts'

export type Way = 'requests' | 'replies'

interface Conditions {
  delayMs: number
  readonly swallow: Set<Way>
}

/**
 * What travels: data, the orderly end of a stream, or the news that the other side is gone. A black hole holds all
 * three.
 */
type Parcel = Buffer | 'end' | 'reset'

/** One way of one connection. */
class Flow {
  readonly #way: Way
  readonly #conditions: Conditions
  readonly #to: Socket
  readonly #cut: () => void
  readonly #queue: { readonly parcel: Parcel; readonly takenAt: number }[] = []
  #timer: NodeJS.Timeout | undefined
  #forgotten = false

  constructor(
    way: Way,
    conditions: Conditions,
    from: Socket,
    to: Socket,
    cut: () => void,
    greeting = (bytes: Buffer): Buffer => bytes,
  ) {
    this.#way = way
    this.#conditions = conditions
    this.#to = to
    this.#cut = cut
    let greeted = false
    from.on('data', (bytes) => {
      this.#take(greeted ? bytes : greeting(bytes))
      greeted = true
    })
    from.on('end', () => this.#take('end'))
    from.on('error', () => this.#take('reset'))
  }

  get heldBytes(): number {
    return this.#queue.reduce((sum, { parcel }) => sum + (typeof parcel === 'string' ? 0 : parcel.length), 0)
  }

  #take(parcel: Parcel): void {
    if (this.#forgotten) return
    this.#queue.push({ parcel, takenAt: performance.now() })
    this.pass()
  }

  /** Pass on what is due. Called again whenever the conditions change. */
  pass(): void {
    clearTimeout(this.#timer)
    while (!this.#conditions.swallow.has(this.#way)) {
      const [next] = this.#queue
      if (next === undefined) return
      const waitMs = next.takenAt + this.#conditions.delayMs - performance.now()
      if (waitMs > 0) {
        this.#timer = setTimeout(() => this.pass(), waitMs)
        return
      }
      this.#queue.shift()
      if (next.parcel === 'reset') this.#cut()
      else if (next.parcel === 'end') this.#to.end()
      else if (this.#to.writable) this.#to.write(next.parcel)
    }
  }

  stop(): void {
    clearTimeout(this.#timer)
    this.#queue.length = 0
  }

  /** Lose what is under way, and all that comes. */
  forget(): void {
    this.stop()
    this.#forgotten = true
  }
}

interface Connection {
  readonly client: Socket
  readonly server: Socket
  readonly requests: Flow
  readonly replies: Flow
}

export interface Target {
  readonly port: number
  readonly host?: string
  /** What the first piece of data that a client sends is to be for the server: it may name an address to answer to. */
  greeting?(bytes: Buffer): Buffer
  /**
   * How long a connection waits for a server that does not listen yet. A proxy is connected to before its server is; a
   * client that would try again, if it were refused, takes a cut for more than that.
   */
  readonly patienceMs?: number
}

export class FaultProxy implements AsyncDisposable {
  /** Where clients connect, on 127.0.0.1; the same for the life of the proxy. */
  readonly port: number
  readonly #target: Target
  readonly #conditions: Conditions = { delayMs: 0, swallow: new Set() }
  readonly #connections = new Set<Connection>()
  #listener: Server | undefined

  static async start(target: Target): Promise<FaultProxy> {
    const proxy = new FaultProxy(target, await freePort())
    await proxy.#listen()
    return proxy
  }

  private constructor(target: Target, port: number) {
    this.#target = target
    this.port = port
  }

  /** Bytes that are in the proxy's hands, delayed or swallowed. */
  heldBytes(way: Way): number {
    let sum = 0
    for (const connection of this.#connections) sum += connection[way].heldBytes
    return sum
  }

  /** How many connections are open through the proxy. */
  get size(): number {
    return this.#connections.size
  }

  /** Each piece of data takes this much longer, both ways, also what is under way; the order is kept. */
  delay(delayMs: number): void {
    this.#conditions.delayMs = delayMs
    this.#passAll()
  }

  /** Nothing gets through: both ways unless one is named. Connections stay open. */
  blackHole(...ways: readonly Way[]): void {
    for (const way of ways.length === 0 ? (['requests', 'replies'] as const) : ways) this.#conditions.swallow.add(way)
  }

  /** Cut every open connection with RST. New ones are taken. */
  reset(): void {
    for (const connection of this.#connections) this.#cut(connection)
  }

  /** Lose, without a word, all that is and will be sent on the connections that are open now. New ones are well. */
  forget(): void {
    for (const { requests, replies } of this.#connections) {
      requests.forget()
      replies.forget()
    }
  }

  /** Cut every open connection and refuse new ones (ECONNREFUSED). */
  async refuse(): Promise<void> {
    const listener = this.#listener
    this.#listener = undefined
    const closed = listener === undefined ? undefined : once(listener, 'close')
    listener?.close()
    this.reset()
    await closed
  }

  /** An ordinary network again. What was swallowed or delayed arrives now. */
  async heal(): Promise<void> {
    this.#conditions.delayMs = 0
    this.#conditions.swallow.clear()
    this.#passAll()
    if (this.#listener === undefined) await this.#listen()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.refuse()
  }

  #passAll(): void {
    for (const { requests, replies } of this.#connections) {
      requests.pass()
      replies.pass()
    }
  }

  async #listen(): Promise<void> {
    const listener = createServer({ allowHalfOpen: true, noDelay: true }, (client) => void this.#accept(client))
    listener.listen(this.port, '127.0.0.1')
    await once(listener, 'listening')
    this.#listener = listener
  }

  async #accept(client: Socket): Promise<void> {
    const { patienceMs = 0 } = this.#target
    if (patienceMs === 0) {
      this.#join(client, this.#connect())
      return
    }
    const giveUpAt = performance.now() + patienceMs
    const ignore = (): void => undefined
    client.on('error', ignore)
    let server = await this.#connected()
    while (server === undefined && !client.destroyed && performance.now() < giveUpAt) {
      await sleep(20)
      server = await this.#connected()
    }
    client.off('error', ignore)
    if (client.destroyed) server?.destroy()
    else if (server === undefined) cut(client)
    else this.#join(client, server)
  }

  /** Undefined: it does not listen. */
  async #connected(): Promise<Socket | undefined> {
    const server = this.#connect()
    try {
      await once(server, 'connect')
      return server
    } catch {
      return undefined
    }
  }

  #connect(): Socket {
    const { port, host = '127.0.0.1' } = this.#target
    return connect({ port, host, allowHalfOpen: true, noDelay: true })
  }

  #join(client: Socket, server: Socket): void {
    const cut = (): void => this.#cut(connection)
    const connection: Connection = {
      client,
      server,
      requests: new Flow('requests', this.#conditions, client, server, cut, this.#target.greeting),
      replies: new Flow('replies', this.#conditions, server, client, cut),
    }
    this.#connections.add(connection)
    for (const socket of [client, server]) {
      socket.on('close', (afterError) => {
        if (!afterError && client.destroyed && server.destroyed) cut()
      })
    }
  }

  #cut(connection: Connection): void {
    if (!this.#connections.delete(connection)) return
    connection.requests.stop()
    connection.replies.stop()
    cut(connection.client)
    cut(connection.server)
  }
}

/**
 * One that is about to end cannot be reset: libuv refuses (EINVAL), and Node forgets the handle without closing it, so
 * that the process would never end.
 */
function cut(socket: Socket): void {
  if (socket.writableEnded) socket.destroy()
  else socket.resetAndDestroy()
}
