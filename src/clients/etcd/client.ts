/**
 * A client of etcd: the few calls that locks need, on whichever member answers.
 *
 * Every call has a limit. What a member refused, or could not be sent, goes to another one within it; what may have
 * been done is never sent again: the caller decides. A call asks for a member that knows a leader, so that one that is
 * cut off says so at once. With a user, a token is fetched when it is first needed and whenever it is rejected; a
 * rejected call has done nothing and is repeated.
 */
import { type Clock, systemClock } from '../../core/clock.ts'
import type { Connection, Endpoint, RpcStream, StreamHandler, Tls } from './connection.ts'
import { Endpoints } from './endpoints.ts'
import {
  type Deletion,
  type DeletionAnswer,
  type Header,
  type Range,
  type RangeAnswer,
  readDeletion,
  readPlain,
  readRange,
  readText,
  readTxn,
  type Txn,
  type TxnAnswer,
  writeDeletion,
  writeRange,
  writeTxn,
} from './messages.ts'
import { Reader, Writer } from './proto.ts'
import { RpcError, STATUS } from './rpc-error.ts'

export interface User {
  readonly name: string
  readonly password: string
}

export interface EtcdClientOptions {
  readonly endpoints: readonly Endpoint[]
  readonly user?: User
  readonly tls?: Tls
  readonly clock?: Clock
}

export interface AuthorizedStream extends RpcStream {
  /** The token that it was begun with may be too old: the next one is to have another. */
  distrust(): void
}

export interface CallOptions {
  readonly signal?: AbortSignal | undefined
}

/** What a lease has left, and what it was granted, in whole seconds. */
export interface LeaseTime {
  /** Below 0: there is no such lease. */
  readonly leftSeconds: number
  readonly grantedSeconds: number
}

/**
 * An election takes one to two seconds, and what was asked before it is over is answered by nobody: to ask again soon
 * after it is to go on soon.
 */
const CALL_LIMIT_MS = 2_500

export class EtcdClient {
  readonly #endpoints: Endpoints
  readonly #clock: Clock
  readonly #user: User | undefined
  #token: string | undefined
  #authenticating: Promise<void> | undefined

  constructor({ endpoints, user, tls, clock = systemClock }: EtcdClientOptions) {
    this.#endpoints = new Endpoints(endpoints, tls, clock)
    this.#clock = clock
    this.#user = user
  }

  async connect(): Promise<void> {
    await this.#endpoints.connect()
    await this.#authenticated()
  }

  async txn(txn: Txn, options: CallOptions = {}): Promise<TxnAnswer> {
    const writer = new Writer()
    writeTxn(writer, txn)
    return readTxn(new Reader(await this.call('/etcdserverpb.KV/Txn', writer, options)))
  }

  async range(range: Range, options: CallOptions = {}): Promise<RangeAnswer & { readonly header: Header }> {
    const writer = new Writer()
    writeRange(writer, range)
    return readRange(new Reader(await this.call('/etcdserverpb.KV/Range', writer, options)))
  }

  async delete(deletion: Deletion): Promise<DeletionAnswer> {
    const writer = new Writer()
    writeDeletion(writer, deletion)
    return readDeletion(new Reader(await this.call('/etcdserverpb.KV/DeleteRange', writer)))
  }

  /** Seconds are what etcd counts leases in. It may grant more. */
  async grant(
    seconds: number,
    options: CallOptions = {},
  ): Promise<{ readonly lease: bigint; readonly seconds: number }> {
    const answer = await this.call('/etcdserverpb.Lease/LeaseGrant', new Writer().number(1, seconds), options)
    const { numbers } = readPlain(new Reader(answer), [2, 3])
    return { lease: numbers.get(2) ?? 0n, seconds: Number(numbers.get(3) ?? 0n) }
  }

  /**
   * Keep a lease alive: how many seconds it has from now, 0 if there is none. The leader answers by itself: see
   * class-lease.ts before believing it.
   *
   * etcd has a stream for this. One question on one stream is a call like others, with its limit and its fail-over.
   */
  async keepAlive(
    lease: bigint,
    options: CallOptions = {},
  ): Promise<{ readonly seconds: number; readonly header: Header }> {
    const answer = await this.call('/etcdserverpb.Lease/LeaseKeepAlive', new Writer().number(1, lease), options)
    const { header, numbers } = readPlain(new Reader(answer), [3])
    return { seconds: Number(numbers.get(3) ?? 0n), header }
  }

  async timeOf(lease: bigint, options: CallOptions = {}): Promise<LeaseTime> {
    const answer = await this.call('/etcdserverpb.Lease/LeaseTimeToLive', new Writer().number(1, lease), options)
    const { numbers } = readPlain(new Reader(answer), [3, 4])
    return { leftSeconds: Number(numbers.get(3) ?? 0n), grantedSeconds: Number(numbers.get(4) ?? 0n) }
  }

  /** End a lease, and every key under it, in one step. */
  async revoke(lease: bigint): Promise<void> {
    await this.call('/etcdserverpb.Lease/LeaseRevoke', new Writer().number(1, lease), {})
  }

  /** The version of the member that is asked. */
  async version(): Promise<string> {
    return readText(new Reader(await this.call('/etcdserverpb.Maintenance/Status', new Writer(), {})), 2)
  }

  /** A stream both ways, to whichever member answers. `ended` is also called if it could not be begun. */
  async stream(path: string, handler: StreamHandler): Promise<AuthorizedStream> {
    const connection = await this.#endpoints.connect()
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
      // Others may have fetched another one meanwhile.
      if (this.#token === token) this.#token = undefined
    }
    return { ...stream, distrust }
  }

  close(): void {
    this.#endpoints.close()
  }

  /** Any call of one question and one answer. */
  async call(path: string, writer: Writer, { signal }: CallOptions = {}): Promise<Buffer> {
    const message = writer.framed()
    const giveUpAt = this.#clock.now() + CALL_LIMIT_MS
    for (let attempt = 1; ; attempt += 1) {
      if (this.#user !== undefined && this.#token === undefined) await this.#authenticated()
      const connection = this.#endpoints.current ?? (await this.#endpoints.connect())
      const leftMs = giveUpAt - this.#clock.now()
      if (leftMs <= 0) throw new RpcError(STATUS.deadlineExceeded, 'no connection in time', { refused: true })
      try {
        return await connection.call(path, message, this.#headers(), leftMs, signal)
      } catch (error) {
        if (!(error instanceof RpcError)) throw error
        this.#learn(connection, error)
        const again = error.tokenRejected ? this.#user !== undefined : error.refused && error.elsewhere
        if (!again || attempt > this.#endpoints.size || signal?.aborted === true || this.#clock.now() >= giveUpAt)
          throw error
      }
    }
  }

  #learn(connection: Connection, error: RpcError): void {
    if (error.tokenRejected) this.#token = undefined
    else if (error.elsewhere) this.#endpoints.doubt(connection)
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

  async #authenticate({ name, password }: User): Promise<void> {
    const connection = await this.#endpoints.connect()
    const message = new Writer().text(1, name).text(2, password).framed()
    try {
      const answer = await connection.call(
        '/etcdserverpb.Auth/Authenticate',
        message,
        { hasleader: 'true' },
        CALL_LIMIT_MS,
      )
      this.#token = readText(new Reader(answer), 2)
    } catch (error) {
      if (!(error instanceof RpcError)) throw error
      this.#learn(connection, error)
      // A server that asks nobody who they are: nothing to show it.
      if (error.status === STATUS.failedPrecondition && error.message.includes('not enabled')) this.#token = ''
      // Nothing of the call that wanted a token was sent.
      else throw new RpcError(error.status, error.message, { refused: true, lasting: error.lasting, cause: error })
    }
  }
}
