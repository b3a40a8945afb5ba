/**
 * A client of etcd: the few calls that locks need, on any member that answers. Read it first in this folder; then
 * members.ts, connection.ts and liveness.ts (which member, and whether it lives), messages.ts and proto.ts (what is
 * sent and read), watch-stream.ts (what the server tells unasked), errors.ts (what a failure means).
 *
 * Every call has a time limit. Within it, a call that a member refused, or that could not be sent, goes to another
 * member. A call that may have been applied is never sent again: its caller decides. A call asks for a member that
 * knows a leader, so that a member that is cut off says so at once. With a user, a token is fetched when it is first
 * needed and whenever the server rejects it. A call with a rejected token was not applied, and is sent again.
 *
 * A call keeps the process alive until it is answered, or its time is over. Connections and streams do not.
 */
import { type Clock, systemClock } from '../../core/clock.ts'
import { KeepAlive } from '../../core/keep-alive.ts'
import type { Endpoint, TlsCertificates } from '../shared/endpoint.ts'
import type { EtcdConnection, RpcStream, RpcStreamHandler } from './connection.ts'
import { GRPC_STATUS, RpcError } from './errors.ts'
import { EtcdMembers } from './members.ts'
import {
  type DeleteRequest,
  type DeleteResponse,
  type RangeRequest,
  type RangeResponse,
  type ResponseHeader,
  readDelete,
  readNumbers,
  readRange,
  readText,
  readTxn,
  type TxnRequest,
  type TxnResponse,
  writeDelete,
  writeRange,
  writeTxn,
} from './messages.ts'
import { ProtoReader, ProtoWriter } from './proto.ts'

/** The account with which to ask etcd. */
export interface EtcdUser {
  readonly name: string
  readonly password: string
}

export interface EtcdClientOptions {
  readonly endpoints: readonly Endpoint[]
  readonly user?: EtcdUser
  readonly tls?: TlsCertificates
  readonly clock?: Clock
}

export interface AuthorizedStream extends RpcStream {
  /** The token that this stream was begun with may be too old: begin the next stream with another token. */
  distrust(): void
}

export interface EtcdCallOptions {
  readonly signal?: AbortSignal | undefined
}

/** What a lease has left, and what it was granted, in whole seconds. */
export interface LeaseTime {
  /** Below 0: there is no such lease. */
  readonly leftSeconds: number
  readonly grantedSeconds: number
}

/**
 * An election takes one to two seconds, and no member answers what was asked before it is over. So the limit is little
 * longer: the caller can ask again soon after the election.
 */
const CALL_LIMIT_MS = 2_500

export class EtcdClient {
  readonly #members: EtcdMembers
  readonly #clock: Clock
  readonly #keepAlive: KeepAlive
  readonly #user: EtcdUser | undefined
  #token: string | undefined
  #authenticating: Promise<void> | undefined

  constructor({ endpoints, user, tls, clock = systemClock }: EtcdClientOptions) {
    this.#members = new EtcdMembers(endpoints, tls, clock)
    this.#clock = clock
    this.#keepAlive = new KeepAlive(clock)
    this.#user = user
  }

  async connect(): Promise<void> {
    this.#keepAlive.begin()
    try {
      await this.#members.connect()
      await this.#authenticated()
    } finally {
      this.#keepAlive.end()
    }
  }

  async txn(txn: TxnRequest, options: EtcdCallOptions = {}): Promise<TxnResponse> {
    const writer = new ProtoWriter()
    writeTxn(writer, txn)
    return readTxn(new ProtoReader(await this.call('/etcdserverpb.KV/Txn', writer, options)))
  }

  async range(
    range: RangeRequest,
    options: EtcdCallOptions = {},
  ): Promise<RangeResponse & { readonly header: ResponseHeader }> {
    const writer = new ProtoWriter()
    writeRange(writer, range)
    return readRange(new ProtoReader(await this.call('/etcdserverpb.KV/Range', writer, options)))
  }

  async delete(deletion: DeleteRequest): Promise<DeleteResponse> {
    const writer = new ProtoWriter()
    writeDelete(writer, deletion)
    return readDelete(new ProtoReader(await this.call('/etcdserverpb.KV/DeleteRange', writer)))
  }

  /** Grant a lease. etcd counts leases in whole seconds, and may grant more than it was asked for. */
  async grant(
    seconds: number,
    options: EtcdCallOptions = {},
  ): Promise<{ readonly lease: bigint; readonly seconds: number }> {
    const answer = await this.call('/etcdserverpb.Lease/LeaseGrant', new ProtoWriter().number(1, seconds), options)
    const { numbers } = readNumbers(new ProtoReader(answer), [2, 3])
    return { lease: numbers.get(2) ?? 0n, seconds: Number(numbers.get(3) ?? 0n) }
  }

  /**
   * Keep a lease alive. Answers how many seconds it has from now on; 0 if there is no such lease. A leader answers this
   * without asking the other members: engines/etcd/leases.ts says when the answer can be believed.
   *
   * etcd has a stream for keep-alives. Here, one question on one stream is a call like others, with a time limit and
   * fail-over.
   */
  async keepAlive(
    lease: bigint,
    options: EtcdCallOptions = {},
  ): Promise<{ readonly seconds: number; readonly header: ResponseHeader }> {
    const answer = await this.call('/etcdserverpb.Lease/LeaseKeepAlive', new ProtoWriter().number(1, lease), options)
    const { header, numbers } = readNumbers(new ProtoReader(answer), [3])
    return { seconds: Number(numbers.get(3) ?? 0n), header }
  }

  async timeOf(lease: bigint, options: EtcdCallOptions = {}): Promise<LeaseTime> {
    const answer = await this.call('/etcdserverpb.Lease/LeaseTimeToLive', new ProtoWriter().number(1, lease), options)
    const { numbers } = readNumbers(new ProtoReader(answer), [3, 4])
    return { leftSeconds: Number(numbers.get(3) ?? 0n), grantedSeconds: Number(numbers.get(4) ?? 0n) }
  }

  /** End a lease, and every key under it, in one step. */
  async revoke(lease: bigint): Promise<void> {
    await this.call('/etcdserverpb.Lease/LeaseRevoke', new ProtoWriter().number(1, lease), {})
  }

  /** The version of the member that is asked. */
  async version(): Promise<string> {
    return readText(new ProtoReader(await this.call('/etcdserverpb.Maintenance/Status', new ProtoWriter(), {})), 2)
  }

  /** A stream both ways, to any member that answers. Rejects if no member does. */
  async stream(path: string, handler: RpcStreamHandler): Promise<AuthorizedStream> {
    const connection = await this.#members.connect()
    await this.#authenticated()
    const token = this.#token
    const stream = connection.stream(path, this.#headers(), {
      message: (bytes) => handler.message(bytes),
      ended: (error) => {
        this.#learn(connection, error)
        handler.ended(error)
      },
    })
    const distrust = (): void => {
      // Another call may have fetched a new token meanwhile.
      if (this.#token === token) this.#token = undefined
    }
    return { ...stream, distrust }
  }

  close(): void {
    this.#members.close()
  }

  /** Any call with one request and one response; `path` names the method of gRPC. */
  async call(path: string, writer: ProtoWriter, { signal }: EtcdCallOptions = {}): Promise<Buffer> {
    this.#keepAlive.begin()
    try {
      const message = writer.framed()
      const giveUpAt = this.#clock.now() + CALL_LIMIT_MS
      for (let attempt = 1; ; attempt += 1) {
        if (this.#user !== undefined && this.#token === undefined) await this.#authenticated()
        const connection = this.#members.current ?? (await this.#members.connect())
        const leftMs = giveUpAt - this.#clock.now()
        if (leftMs <= 0) throw new RpcError(GRPC_STATUS.deadlineExceeded, 'no connection in time', { refused: true })
        try {
          return await connection.call(path, message, this.#headers(), leftMs, signal)
        } catch (error) {
          if (!(error instanceof RpcError)) throw error
          this.#learn(connection, error)
          const again = error.tokenRejected ? this.#user !== undefined : error.refused && error.elsewhere
          if (!again || attempt > this.#members.size || signal?.aborted === true || this.#clock.now() >= giveUpAt)
            throw error
        }
      }
    } finally {
      this.#keepAlive.end()
    }
  }

  #learn(connection: EtcdConnection, error: RpcError): void {
    if (error.tokenRejected) this.#token = undefined
    else if (error.elsewhere) this.#members.doubt(connection)
  }

  #headers(): Record<string, string> {
    return this.#token === undefined || this.#token === ''
      ? { hasleader: 'true' }
      : { hasleader: 'true', token: this.#token }
  }

  #authenticated(): Promise<void> {
    if (this.#user === undefined || this.#token !== undefined) return Promise.resolve()
    this.#authenticating ??= this.#authenticate(this.#user).finally(() => {
      this.#authenticating = undefined
    })
    return this.#authenticating
  }

  async #authenticate({ name, password }: EtcdUser): Promise<void> {
    const connection = await this.#members.connect()
    const message = new ProtoWriter().text(1, name).text(2, password).framed()
    try {
      const answer = await connection.call(
        '/etcdserverpb.Auth/Authenticate',
        message,
        { hasleader: 'true' },
        CALL_LIMIT_MS,
      )
      this.#token = readText(new ProtoReader(answer), 2)
    } catch (error) {
      if (!(error instanceof RpcError)) throw error
      this.#learn(connection, error)
      // This server has no users: calls need no token.
      if (error.status === GRPC_STATUS.failedPrecondition && error.message.includes('not enabled')) this.#token = ''
      // The call that needed the token was not sent.
      else throw new RpcError(error.status, error.message, { refused: true, lasting: error.lasting, cause: error })
    }
  }
}
