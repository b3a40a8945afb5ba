/** A way to a server on which round trips are counted: how often a client had to hear something before it went on. */
import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'

/** Replies come so late that whatever a client sends without waiting for them is sent before. */
const REPLY_DELAY_MS = 10
const TRIES = 4

/** Counts over all connections: what is sent on two of them without hearing anything in between is one round trip. */
export class CountedWire implements AsyncDisposable {
  readonly #target: URL
  readonly #server = createServer((client) => this.#carry(client))
  readonly #clients = new Set<Socket>()
  #turns = 0
  /** A reply was heard since the last request. */
  #heard = true

  static async to(url: string): Promise<CountedWire> {
    const wire = new CountedWire(new URL(url))
    wire.#server.listen(0, '127.0.0.1')
    await once(wire.#server, 'listening')
    return wire
  }

  private constructor(target: URL) {
    this.#target = target
  }

  get url(): string {
    const url = new URL(this.#target)
    url.host = `127.0.0.1:${(this.#server.address() as AddressInfo).port}`
    return url.href
  }

  #carry(client: Socket): void {
    this.#clients.add(client)
    const target = connect(Number(this.#target.port), this.#target.hostname)
    client.on('data', (bytes) => {
      if (this.#heard) this.#turns += 1
      this.#heard = false
      target.write(bytes)
    })
    target.on('data', (bytes) => {
      setTimeout(() => {
        this.#heard = true
        client.write(bytes)
      }, REPLY_DELAY_MS)
    })
    for (const [one, other] of [[client, target] as const, [target, client] as const]) {
      one.on('error', () => other.destroy())
      one.on('close', () => other.destroy())
    }
  }

  /** How many there were until now. */
  get turns(): number {
    return this.#turns
  }

  /** The fewest of some tries: the first one prepares statements, and a busy machine may come in between. */
  async roundTrips(work: () => Promise<unknown>): Promise<number> {
    let fewest = Number.POSITIVE_INFINITY
    for (let tries = 0; tries < TRIES; tries += 1) {
      const before = this.#turns
      await work()
      fewest = Math.min(fewest, this.#turns - before)
    }
    return fewest
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.close()
    for (const client of this.#clients) client.destroy()
    await once(this.#server, 'close')
  }
}
