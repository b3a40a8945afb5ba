/**
 * The smallest Redis client that serves our tests: one connection, commands in order, messages of subscriptions.
 *
 * Tests of facts about the server must not depend on a client library's opinion of them (retries, queues, transformed
 * replies), so this one has none. RESP2: https://redis.io/docs/latest/develop/reference/protocol-spec/
 */
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'

/** An error inside an array (of EXEC, say) is a value; one by itself rejects. */
export type Reply = string | number | bigint | null | RespError | readonly Reply[]

/** An answer that began with `-`. */
export class RespError extends Error {
  override readonly name = 'RespError'
}

interface Waiting {
  resolve(reply: Reply): void
  reject(error: Error): void
}

export interface RespOptions {
  readonly port: number
  readonly host?: string
  readonly password?: string | undefined
  /** Give up when the server has been silent for this long. */
  readonly silenceMs?: number
}

export class Resp implements AsyncDisposable {
  /** Called with channel and message of every published message that arrives. */
  onMessage: (channel: string, message: string) => void = () => undefined
  readonly #socket: Socket
  readonly #waiting: Waiting[] = []
  #received = Buffer.alloc(0)
  #ended: Error | undefined

  static async connect(options: RespOptions): Promise<Resp> {
    const socket = connect({ port: options.port, host: options.host ?? '127.0.0.1', noDelay: true })
    if (options.silenceMs !== undefined)
      socket.setTimeout(options.silenceMs, () => socket.destroy(new Error('no answer')))
    await once(socket, 'connect')
    const client = new Resp(socket)
    if (options.password !== undefined) await client.command('AUTH', options.password)
    return client
  }

  private constructor(socket: Socket) {
    this.#socket = socket
    socket.on('data', (chunk) => {
      this.#received = Buffer.concat([this.#received, chunk])
      this.#deliver()
    })
    socket.on('error', (error) => this.#end(error))
    socket.on('close', () => this.#end(new Error('the connection was closed')))
  }

  /** Rejects with `RespError` for an error reply, and with the socket's error when the connection ends first. */
  async command(...words: readonly (string | number | bigint)[]): Promise<Reply> {
    if (this.#ended !== undefined) throw this.#ended
    let text = `*${words.length}\r\n`
    for (const word of words) text += `$${Buffer.byteLength(String(word))}\r\n${word}\r\n`
    this.#socket.write(text)
    return await new Promise((resolve, reject) => this.#waiting.push({ resolve, reject }))
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#socket.destroyed) return
    this.#socket.destroy()
    await once(this.#socket, 'close')
  }

  #deliver(): void {
    for (;;) {
      const parsed = parse(this.#received, 0)
      if (parsed === undefined) return
      this.#received = this.#received.subarray(parsed.end)
      const { value } = parsed
      if (Array.isArray(value) && value[0] === 'message') {
        this.onMessage(String(value[1]), String(value[2]))
        continue
      }
      const waiting = this.#waiting.shift()
      if (value instanceof RespError) waiting?.reject(value)
      else waiting?.resolve(value)
    }
  }

  #end(error: Error): void {
    this.#ended ??= error
    for (const waiting of this.#waiting.splice(0)) waiting.reject(this.#ended)
  }
}

/** The value that starts at `start`, and where it ends; undefined while it is incomplete. */
function parse(bytes: Buffer, start: number): { value: Reply; end: number } | undefined {
  const lineEnd = bytes.indexOf('\r\n', start)
  if (lineEnd < 0) return undefined
  const kind = String.fromCharCode(bytes[start] as number)
  const line = bytes.toString('utf8', start + 1, lineEnd)
  const end = lineEnd + 2
  if (kind === '+') return { value: line, end }
  if (kind === '-') return { value: new RespError(line), end }
  if (kind === ':') return { value: integer(line), end }
  const length = Number(line)
  if (kind !== '$' && kind !== '*') throw new Error(`not RESP: ${kind}${line}`)
  if (length < 0) return { value: null, end }
  if (kind === '*') return parseArray(bytes, end, length)
  if (bytes.length < end + length + 2) return undefined
  return { value: bytes.toString('utf8', end, end + length), end: end + length + 2 }
}

function parseArray(bytes: Buffer, start: number, length: number): { value: Reply; end: number } | undefined {
  const values: Reply[] = []
  let end = start
  for (let index = 0; index < length; index += 1) {
    const parsed = parse(bytes, end)
    if (parsed === undefined) return undefined
    values.push(parsed.value)
    end = parsed.end
  }
  return { value: values, end }
}

/** A number where it is exact, else a bigint. */
function integer(line: string): number | bigint {
  const number = Number(line)
  return Number.isSafeInteger(number) ? number : BigInt(line)
}
