/**
 * ioredis, versions 5 and 6: one server, Sentinel, or a Cluster.
 *
 * Left to itself it queues commands while it is offline, and sends unanswered ones again when it is back, both seconds
 * late. A client that we make is told not to. With one that was brought, we look at its state before we send; what it
 * sends again all the same is harmless, since entering twice with one id is entering once.
 */

import type { Clock, Timer } from '../../core/clock.ts'
import { hasMethods, neverCrash } from '../shared/drivers.ts'
import type { ChannelListener, ListenConnection } from '../shared/listen.ts'
import { type IoredisClient, type IoredisCluster, IoredisListenConnection, isCluster } from './ioredis-listen.ts'
import { ConnectionLost, type RedisServer, type RedisWire, SilenceCheck } from './wire.ts'

const CONNECT_AGAIN_MS = 50

/** What we use of a client that we have made, and not of one that was brought. */
interface OwnClient {
  connect(): Promise<unknown>
}

export interface IoredisWireOptions {
  /** We have made the client, and end it. */
  readonly owned: boolean
  /** For clients of ours to one server: makes the commands that call scripts. One that was brought has its own. */
  readonly prepare?: PrepareEvalsha
}

export class IoredisWire implements RedisWire {
  readonly name = 'ioredis'
  readonly cluster: boolean
  readonly inOrder: boolean
  readonly keyPrefix: string
  connection = 0
  trouble: Error | undefined
  onChange: () => void = () => undefined
  readonly #client: IoredisClient | IoredisCluster
  readonly #clock: Clock
  readonly #owned: boolean
  readonly #prepare: PrepareEvalsha | undefined
  readonly silence?: SilenceCheck
  readonly #unanswered = new UnansweredCommands()
  readonly #listeners: Readonly<Record<string, (...args: unknown[]) => void>> = {
    ready: () => this.#connected(),
    error: (error) => this.#changed(error as Error),
    close: () => this.#closed(),
    end: () => this.#ended(),
  }
  #connectAgain: Timer | undefined

  constructor(client: IoredisClient | IoredisCluster, clock: Clock, options: IoredisWireOptions) {
    this.#client = client
    this.#clock = clock
    this.#owned = options.owned
    this.cluster = isCluster(client)
    // One that was brought is not ours to cut. In Cluster each connection is watched by itself: see connect.ts.
    if (options.owned && !this.cluster) this.silence = new SilenceCheck(clock, () => client.disconnect(true))
    this.inOrder = !this.cluster
    this.keyPrefix = client.options.keyPrefix || (isCluster(client) && client.options.redisOptions?.keyPrefix) || ''
    // Prepared commands bypass the key prefix of ioredis and its routing: they need a client without either.
    const plain = !this.cluster && this.keyPrefix === ''
    this.#prepare = options.prepare ?? (plain ? prepareFor(client) : undefined)
    neverCrash(client)
    for (const [event, listener] of Object.entries(this.#listeners)) client.on(event, listener)
  }

  get ready(): boolean {
    return this.#client.status === 'ready'
  }

  send(command: string, words: readonly string[]): Promise<unknown> {
    const reply = command === 'EVALSHA' ? this.#evalsha(words) : this.#client.call(command.toLowerCase(), [...words])
    // What our own client has under way it rejects itself when the connection ends.
    return this.#owned ? reply : this.#unanswered.track(reply)
  }

  #evalsha(words: readonly string[]): Promise<unknown> {
    if (this.#prepare !== undefined) return (this.#client as unknown as CommandSender).sendCommand(this.#prepare(words))
    // By the name of the command, in lower case, ioredis knows where its keys are.
    return this.#client.call('evalsha', words as string[])
  }

  async servers(): Promise<readonly RedisServer[]> {
    const nodes = isCluster(this.#client) ? this.#client.nodes('master') : [this.#client]
    return nodes.map((node) => ({ send: (command, words) => node.call(command.toLowerCase(), words as string[]) }))
  }

  readonly listen = (channel: string, listener: ChannelListener): Promise<ListenConnection> =>
    IoredisListenConnection.open(this.#client, this.#clock, channel, listener)

  async close(): Promise<void> {
    for (const [event, listener] of Object.entries(this.#listeners)) this.#client.off(event, listener)
    this.silence?.stop()
    this.#connectAgain?.cancel()
    if (this.#owned) this.#client.disconnect()
  }

  #connected(): void {
    this.connection += 1
    this.#changed(undefined)
  }

  #changed(trouble: Error | undefined): void {
    this.trouble = trouble
    this.onChange()
  }

  #closed(): void {
    this.#unanswered.lost(this.trouble)
    this.onChange()
  }

  /**
   * A client of ours connects again and again until it is closed, and then this is not called any more. But ioredis
   * gives up for good where a sentinel announces a fail-over while another one is asked for the master: it takes its
   * own look-out for fail-overs for a user that disconnects.
   */
  #ended(): void {
    this.#closed()
    if (!this.#owned) return
    this.#connectAgain?.cancel()
    this.#connectAgain = this.#clock.timer(CONNECT_AGAIN_MS, () => {
      // What fails is told by the events.
      ;(this.#client as unknown as OwnClient).connect().catch(() => {})
    })
  }
}

/**
 * Commands under way, so that they can be failed at once when their connection ends: clients keep some of them for
 * ever, and send others again.
 */
class UnansweredCommands {
  /** An array, in no order: a Set that is changed all the time is slow to collect. */
  readonly #commands: UnansweredCommand[] = []

  track(reply: Promise<unknown>): Promise<unknown> {
    return new Promise((resolve, reject) => {
      const command: UnansweredCommand = { at: this.#commands.length, reject }
      this.#commands.push(command)
      reply.then(
        (value) => {
          this.#forget(command)
          resolve(value)
        },
        (error: unknown) => {
          this.#forget(command)
          reject(error)
        },
      )
    })
  }

  /** The last one takes its place. */
  #forget(command: UnansweredCommand): void {
    // A command that was lost is answered all the same, if ioredis has sent it again.
    if (this.#commands[command.at] !== command) return
    const last = this.#commands.pop() as UnansweredCommand
    if (last === command) return
    this.#commands[command.at] = last
    last.at = command.at
  }

  /** The connection has ended. */
  lost(cause: unknown): void {
    for (const { reject } of this.#commands.splice(0))
      reject(new ConnectionLost('the connection ended before the answer came', { cause }))
  }
}

interface UnansweredCommand {
  /** Its place in the array. */
  at: number
  readonly reject: (error: Error) => void
}

// ---- EVALSHA, prepared ----

/**
 * Makes the command that calls a script with these words, which are not changed any more once they are here. Each
 * server needs a command of its own.
 *
 * This is the shortest way to one server: the words are put into the form of the protocol here, and ioredis
 * writes them as they are. What ioredis does for any other command (look for keys, for other types than strings, for
 * what was meant by the arguments) takes a tenth of the time that a single caller's process has for a lock. And one
 * call that goes to several servers in the same words is put into form once.
 */
export type PrepareEvalsha = (words: readonly string[]) => InstanceType<IoredisCommand>

/** What a client to one server has besides, unless it was wrapped in something else. */
interface CommandSender {
  sendCommand(command: object): Promise<unknown>
}

/** What we use of the class `Command` of ioredis. */
type IoredisCommand = new (name: string, args: string[], options: object) => { toWritable(socket: object): unknown }

const NO_WORDS: string[] = []
const COMMAND_OPTIONS = { replyEncoding: 'utf8' } as const

export function prepareEvalsha(Command: IoredisCommand): PrepareEvalsha {
  class Prepared extends Command {
    readonly #text: string

    constructor(text: string) {
      super('evalsha', NO_WORDS, COMMAND_OPTIONS)
      this.#text = text
    }

    override toWritable(): string {
      return this.#text
    }
  }
  let last: readonly string[] = NO_WORDS
  let text = ''
  return (words) => {
    if (words !== last) text = protocolText(words)
    last = words
    return new Prepared(text)
  }
}

/** By the class of commands that the client itself uses: a program may have several ioredis. */
function prepareFor(client: object): PrepareEvalsha | undefined {
  const { Command } = client.constructor as { readonly Command?: IoredisCommand }
  const fits = typeof Command?.prototype?.toWritable === 'function' && hasMethods(client, 'sendCommand')
  return fits ? prepareEvalsha(Command as IoredisCommand) : undefined
}

/** As the protocol has it: https://redis.io/docs/latest/develop/reference/protocol-spec/#arrays */
export function protocolText(words: readonly string[]): string {
  let text = `*${words.length + 1}\r\n$7\r\nevalsha\r\n`
  for (const word of words) text += `$${Buffer.byteLength(word)}\r\n${word}\r\n`
  return text
}
