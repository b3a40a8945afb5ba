/**
 * A stand-in for a MongoDB server, test code only: enough of the wire protocol, the commands and the change streams for
 * the official driver and for our engine, one process, one member. What it answers is held to recordings of a real 5.0
 * (recordings.test.ts). It is not a database, and a result on it is never called a result on MongoDB.
 *
 * What it lacks: a second member, so nothing is ever rolled back and a majority is always there; users and rights; TLS;
 * compression. A double with a whole value becomes an int. What a retryable write answered is forgotten when it is
 * killed. A path in an expression may go by the place in an array, which a server does not do.
 *
 * Read wire.ts, then this file, then reads.ts and writes.ts. The language of pipelines is in evaluate.ts and
 * operators.ts.
 */
import { createServer, type Server, type Socket } from 'node:net'
import { Binary, Double, ObjectId } from 'bson'
import { ADMIN } from './admin.ts'
import { Call, type Command } from './calls.ts'
import { Data } from './data.ts'
import { asCommandError, CommandError, nameOfCode } from './errors.ts'
import { ConnectionClosed, FailPoint } from './failpoints.ts'
import { HELLO } from './hello.ts'
import { type Cursor, READS } from './reads.ts'
import { Session, sessionKey, Transactions } from './sessions.ts'
import type { Document } from './values.ts'
import { bytesOfAnswer, type Request, takeRequests } from './wire.ts'
import { WRITES } from './writes.ts'

const COMMANDS: Readonly<Record<string, Command>> = { ...HELLO, ...READS, ...WRITES, ...ADMIN }

/** These may be repeated under their number, or be part of a transaction. */
const NUMBERED = new Set([
  ...Object.keys(WRITES),
  'find',
  'aggregate',
  'count',
  'distinct',
  'getMore',
  'commitTransaction',
  'abortTransaction',
])
const WRITING = new Set([
  ...Object.keys(WRITES),
  'createIndexes',
  'dropIndexes',
  'create',
  'drop',
  'renameCollection',
  'dropDatabase',
])
const NOT_PRIMARY = new Set([91, 189, 10107, 11602])
const RETRYABLE = new Set([...NOT_PRIMARY, 6, 7, 89, 262, 9001, 11600, 13435, 13436])

export class StandInServer {
  readonly data: Data = new Data()
  readonly transactions: Transactions = new Transactions()
  readonly cursors: Map<bigint, Cursor> = new Map()
  readonly failPoint: FailPoint = new FailPoint()
  readonly processId: ObjectId = new ObjectId()
  readonly isReplicaSet: boolean
  isPrimary = true
  /** What the configuration of the set was changed to. */
  reconfigured: Document = {}
  topologyCounter = 0n
  electionId: ObjectId = new ObjectId('7fffffff0000000000000001')
  readonly #sessions = new Map<string, Session>()
  readonly #sockets = new Set<Socket>()
  readonly #parameters: Document = { ttlMonitorSleepSecs: 60 }
  readonly #listener: Server
  readonly #topologyWaiters = new Set<() => void>()
  #port = 0
  #connections = 0
  #answers = 0
  #sweeper: NodeJS.Timeout | undefined

  constructor(isReplicaSet: boolean) {
    this.isReplicaSet = isReplicaSet
    if (isReplicaSet) this.topologyCounter = 6n
    this.#listener = createServer({ noDelay: true }, (socket) => this.#serve(socket))
  }

  get address(): string {
    return `127.0.0.1:${this.#port}`
  }

  get connections(): number {
    return this.#sockets.size
  }

  async listen(port: number): Promise<number> {
    await new Promise<void>((resolve, reject) => {
      this.#listener.once('error', reject).listen(port, '127.0.0.1', resolve)
    })
    this.#port = (this.#listener.address() as { port: number }).port
    this.#sweepLater()
    return this.#port
  }

  async close(): Promise<void> {
    clearTimeout(this.#sweeper)
    for (const socket of this.#sockets) socket.destroy()
    for (const session of this.#sessions.values()) session.transaction?.abort()
    this.cursors.clear()
    this.data.wake()
    this.#changeTopology()
    await new Promise((resolve) => this.#listener.close(resolve))
    this.data.close()
  }

  session(id: Document): Session {
    const key = sessionKey(id)
    const found = this.#sessions.get(key) ?? new Session(id)
    this.#sessions.set(key, found)
    return found
  }

  endSession(key: string): void {
    this.#sessions.get(key)?.transaction?.abort()
    this.#sessions.delete(key)
    for (const [id, { session }] of this.cursors) if (session === key) this.cursors.delete(id)
    this.data.wake()
  }

  /** What a member of a set adds to the answer of a write. */
  writeTime(): Document {
    return this.isReplicaSet ? { electionId: this.electionId, opTime: { ts: this.data.last, t: 1n } } : {}
  }

  /** Resolves when another member would have to be asked, or when the time is over. */
  async topologyChange(limitMs: number): Promise<void> {
    await new Promise<void>((resolve) => {
      const done = (): void => {
        clearTimeout(timer)
        this.#topologyWaiters.delete(done)
        resolve()
      }
      const timer = setTimeout(done, limitMs)
      this.#topologyWaiters.add(done)
    })
  }

  /** A set of one elects itself again when the seconds are over. */
  stepDown(seconds: number): Document {
    this.isPrimary = false
    this.#changeTopology()
    setTimeout(() => {
      this.isPrimary = true
      this.electionId = new ObjectId(
        Buffer.concat([this.electionId.id.subarray(0, 8), Buffer.from([0, 0, 0, Number(this.electionId.id[11]) + 1])]),
      )
      this.#changeTopology()
    }, seconds * 1_000)
    return {}
  }

  mechanisms(command: Document): Document {
    return command.saslSupportedMechs === undefined ? {} : { saslSupportedMechs: [] }
  }

  parameters(command: Document): Document {
    const all = command.getParameter === '*'
    return Object.fromEntries(Object.entries(this.#parameters).filter(([name]) => all || name in command))
  }

  setParameter(command: Document): Document {
    for (const name of Object.keys(this.#parameters)) if (name in command) this.#parameters[name] = command[name]
    this.#sweepLater()
    return {}
  }

  #changeTopology(): void {
    this.topologyCounter += 1n
    for (const done of this.#topologyWaiters) done()
  }

  /** The monitor of indexes with `expireAfterSeconds`. */
  #sweepLater(): void {
    clearTimeout(this.#sweeper)
    this.#sweeper = setTimeout(() => {
      for (const { db, name: collection, records, indexes } of this.data.collections.values())
        for (const { key, expireAfterSeconds } of indexes) {
          const [field] = Object.keys(key)
          if (expireAfterSeconds === undefined || field === undefined) continue
          const before = Date.now() - Number(expireAfterSeconds) * 1_000
          for (const stored of [...records.values()]) {
            const value: unknown = stored.document[field]
            const id = stored.document._id
            if (value instanceof Date && value.getTime() < before)
              this.data.commit([{ kind: 'delete', db, collection, id, before: stored }])
          }
        }
      this.#sweepLater()
    }, Number(this.#parameters.ttlMonitorSleepSecs) * 1_000)
    this.#sweeper.unref()
  }

  #serve(socket: Socket): void {
    this.#connections += 1
    const connection = this.#connections
    let rest: Buffer = Buffer.alloc(0)
    this.#sockets.add(socket)
    socket.on('error', () => undefined)
    socket.on('close', () => this.#sockets.delete(socket))
    socket.on('data', (bytes) => {
      try {
        const taken = takeRequests(Buffer.concat([rest, bytes]))
        rest = taken.rest
        for (const request of taken.requests) void this.#reply(socket, connection, request)
      } catch {
        socket.destroy()
      }
    })
  }

  async #reply(socket: Socket, connection: number, request: Request): Promise<void> {
    const streams = request.takesMany && 'maxAwaitTimeMS' in request.command
    let { id: to, command } = request
    do {
      const document = await this.answer(command, connection).catch((error: unknown) => {
        if (!(error instanceof ConnectionClosed)) throw error
        socket.destroy()
      })
      if (document === undefined || !request.wantsAnswer || socket.destroyed) return
      this.#answers += 1
      const id = this.#answers
      socket.write(bytesOfAnswer(request, { id, to, document, moreToCome: streams }))
      to = id
      command = { ...command, topologyVersion: document.topologyVersion }
    } while (streams && !socket.destroyed && this.#listener.listening)
  }

  /** The whole answer to a command, errors included. */
  async answer(command: Document, connection: number): Promise<Document> {
    const call = new Call(this, command, connection)
    try {
      const added = await this.failPoint.meet(call.name)
      const result = await this.#run(call)
      const failed = unmetConcern(call)
      const concern = (added.writeConcernError ?? failed) as Document | undefined
      const topology = this.#topologyAt(concern?.code)
      return {
        ...{ ...result, ...(failed && { writeConcernError: failed }), ...added },
        ...{ ok: new Double(1), ...topology, ...this.#times() },
      }
    } catch (error) {
      if (error instanceof ConnectionClosed) throw error
      const failure = asCommandError(error)
      call.transaction?.abort()
      const { message: errmsg, code, codeName, details } = failure
      const labels = labelsOf(call, failure)
      return {
        ok: new Double(0),
        errmsg,
        code,
        codeName,
        ...details,
        ...(labels.length > 0 && { errorLabels: labels }),
        ...this.#topologyAt(code),
        ...this.#times(),
      }
    }
  }

  async #run(call: Call): Promise<Document> {
    const command = COMMANDS[call.name]
    if (command === undefined) throw new CommandError(59, `no such command: '${call.name}'`)
    if (call.number !== undefined && !this.isReplicaSet)
      throw new CommandError(20, 'Transaction numbers are only allowed on a replica set member or mongos')
    if (!this.isPrimary && (WRITING.has(call.name) || isOnPrimary(call))) throw new CommandError(10107, 'not primary')
    if (call.number !== undefined && NUMBERED.has(call.name)) enterTransaction(call)
    const w = concernOf(call).w
    if (!this.isReplicaSet && typeof w === 'number' && w > 1)
      throw new CommandError(2, "cannot use 'w' > 1 when a host is not replicated")
    return await command(call)
  }

  /**
   * A driver that knows of this change of the set already does not give the server up for such an error. Not recorded:
   * so the drivers' specification of monitoring has it for servers from 4.4 on.
   */
  #topologyAt(code: unknown): Document {
    if (!this.isReplicaSet || !NOT_PRIMARY.has(Number(code))) return {}
    return { topologyVersion: { processId: this.processId, counter: this.topologyCounter } }
  }

  #times(): Document {
    if (!this.isReplicaSet) return {}
    const signature = { hash: new Binary(Buffer.alloc(20)), keyId: 0n }
    return { $clusterTime: { clusterTime: this.data.last, signature }, operationTime: this.data.last }
  }
}

/** A read that the client wants from the primary. */
function isOnPrimary({ name, command }: Call): boolean {
  const mode = (command.$readPreference as Document | undefined)?.mode
  return ['find', 'aggregate', 'count', 'distinct'].includes(name) && (mode === undefined || mode === 'primary')
}

function enterTransaction(call: Call): void {
  const { session, number, command, server, name } = call
  if (session === undefined || number === undefined) return
  if (command.autocommit !== false) {
    session.advance(number)
    return
  }
  if (name === 'commitTransaction' || name === 'abortTransaction') return
  call.transaction =
    command.startTransaction === true
      ? session.begin(server.data, server.transactions, number)
      : session.current(number)
  if (call.transaction.state === 'committed') throw new CommandError(256, `Transaction ${number} has been committed.`)
}

function concernOf({ command }: Call): Document {
  return (command.writeConcern as Document | undefined) ?? {}
}

/** There is one member: more than it cannot confirm. */
function unmetConcern(call: Call): Document | undefined {
  const { w, wtimeout = 0 } = concernOf(call)
  if (!WRITING.has(call.name) || typeof w !== 'number' || w <= 1) return undefined
  const writeConcern = { w, wtimeout, provenance: 'clientSupplied' }
  return { code: 100, codeName: nameOfCode(100), errmsg: 'Not enough data-bearing nodes', errInfo: { writeConcern } }
}

/** A driver decides by these whether it tries again. */
function labelsOf(call: Call, { code, labels }: CommandError): readonly string[] {
  if (labels.length > 0) return labels
  if (call.command.autocommit === false) {
    if (call.name === 'commitTransaction') return RETRYABLE.has(code) ? ['RetryableWriteError'] : []
    return NOT_PRIMARY.has(code) ? ['TransientTransactionError'] : []
  }
  return call.number !== undefined && RETRYABLE.has(code) ? ['RetryableWriteError'] : []
}
