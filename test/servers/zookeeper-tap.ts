/**
 * A way to a server of ZooKeeper on which messages are read as they pass: which requests clients send, and of what they
 * are told. A request can be made another one, as a server would see it that knows other numbers. Or it can be kept
 * back, as on a way that is slow between two messages.
 */
import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net'
import { JuteFrames, JuteReader } from '../../src/clients/zookeeper/jute.ts'
import { readEvent, readHead, SPECIAL_XID } from '../../src/clients/zookeeper/messages.ts'

export class ZooKeeperTap implements AsyncDisposable {
  readonly host = '127.0.0.1'
  readonly port: number
  /** The numbers of requests, in order. */
  readonly requests: number[] = []
  /** The paths of events, in order. */
  readonly events: string[] = []
  /** The numbers of answers, in order. */
  readonly answers: number[] = []
  readonly #listener: Server
  readonly #sockets = new Set<Socket>()
  /** Requests of this number, and all behind them, are kept back. */
  #keptBack: number | undefined
  readonly #kept: (() => void)[] = []

  /** `opcode`: which number the server is to see. */
  static async start(
    target: { readonly port: number },
    opcode: (sent: number) => number = (sent) => sent,
  ): Promise<ZooKeeperTap> {
    const listener = createServer((client) =>
      tap.#accept(client, connect({ host: '127.0.0.1', port: target.port }), opcode),
    )
    listener.listen(0, '127.0.0.1')
    await once(listener, 'listening')
    const tap = new ZooKeeperTap(listener)
    return tap
  }

  private constructor(listener: Server) {
    this.#listener = listener
    this.port = (listener.address() as AddressInfo).port
  }

  get url(): string {
    return `zookeeper://${this.host}:${this.port}`
  }

  /** From now on, keep back requests of this number, and all that come behind them, until the answer is called. */
  keepBack(opcode: number): () => void {
    this.#keptBack = opcode
    return () => {
      this.#keptBack = undefined
      for (const pass of this.#kept.splice(0)) pass()
    }
  }

  /** How many requests are kept back. */
  get keptCount(): number {
    return this.#kept.length
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) socket.destroy()
    this.#listener.close()
    await once(this.#listener, 'close')
  }

  #accept(client: Socket, server: Socket, opcode: (sent: number) => number): void {
    this.#pass(client, server, (message, pass) => {
      const sent = message.readInt32BE(4)
      this.requests.push(sent)
      message.writeInt32BE(opcode(sent), 4)
      if (sent === this.#keptBack || this.#kept.length > 0) this.#kept.push(pass)
      else pass()
    })
    this.#pass(server, client, (message, pass) => {
      const reader = new JuteReader(message)
      const { xid } = readHead(reader)
      if (xid === SPECIAL_XID.event) this.events.push(readEvent(reader).path)
      else this.answers.push(xid)
      pass()
    })
  }

  /** The first message each way is that of the handshake. */
  #pass(from: Socket, to: Socket, read: (message: Buffer, pass: () => void) => void): void {
    let begun = false
    const frames = new JuteFrames((piece) => {
      const message = Buffer.from(piece)
      const pass = (): void => {
        const length = Buffer.alloc(4)
        length.writeInt32BE(message.length)
        to.write(Buffer.concat([length, message]))
      }
      if (begun) read(message, pass)
      else pass()
      begun = true
    })
    this.#sockets.add(from)
    from.setNoDelay(true)
    from.on('data', (piece) => frames.push(piece))
    from.on('error', () => to.destroy())
    from.on('close', () => {
      this.#sockets.delete(from)
      to.end()
    })
  }
}
