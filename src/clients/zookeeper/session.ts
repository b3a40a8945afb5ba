/**
 * A session: what a client of ZooKeeper is to the ensemble. It outlives its connections. Read it first in this folder;
 * then session-connection.ts (how it goes on), connection.ts (one connection to one server), session-life.ts (how long
 * the session surely lives), messages.ts and jute.ts (what is sent and read), errors.ts (what a failure means).
 *
 * Watches tell once. After a reconnect they are set again, and the server tells what they have missed.
 *
 * Two ends are final. *Expired*: the server has ended the session, with all its ephemeral nodes. *Refused*: the server
 * does not accept our credentials. Then every call is rejected, and a new session has to be begun.
 */
import type { Clock } from '../../core/clock.ts'
import type { ZooKeeperEndpoint } from './connection.ts'
import { hasCode, ZooKeeperError } from './errors.ts'
import {
  type CreatedNode,
  type CreateRequest,
  type MultiStep,
  type NodeData,
  type NodeEvent,
  type NodeStat,
  OPCODE,
  readChildren,
  readCreated,
  readData,
  readMulti,
  readStat,
  setWatchesMessage,
  writeCreate,
  writeMulti,
} from './messages.ts'
import { SessionConnection, type ZooKeeperServers } from './session-connection.ts'

export interface ZooKeeperSessionOptions {
  readonly servers: ZooKeeperServers
  readonly clock: Clock
  /** How long the session is to live without a word of ours. The server may grant more or less: see `timeoutMs`. */
  readonly timeoutMs: number
  event?(event: NodeEvent): void
  /** The session goes on, with a new connection. */
  reconnected?(): void
  /** It has ended, and not because this process has ended it. */
  ended?(error: ZooKeeperError): void
}

/** A path of ours has 2,500 bytes at most, beside that of the chroot. */
const WATCHES_AT_ONCE = 200

type WatchKind = 'data' | 'exist' | 'child'

export class ZooKeeperSession {
  readonly #chroot: string
  readonly #connection: SessionConnection
  readonly #watches: Readonly<Record<WatchKind, Set<string>>> = { data: new Set(), exist: new Set(), child: new Set() }

  constructor({ servers, clock, timeoutMs, event, reconnected, ended }: ZooKeeperSessionOptions) {
    this.#chroot = servers.chroot
    this.#connection = new SessionConnection({
      servers,
      clock,
      timeoutMs,
      event: (heard) => {
        const path = this.#short(heard.path)
        for (const watches of Object.values(this.#watches)) watches.delete(path)
        event?.({ ...heard, path })
      },
      watches: (lastZxid) => this.#watchesMessages(lastZxid),
      reconnected: () => reconnected?.(),
      ended: (error) => ended?.(error),
    })
  }

  /** 0 before the first connection. */
  get id(): bigint {
    return this.#connection.id
  }

  /** As the server has granted it. */
  get timeoutMs(): number {
    return this.#connection.timeoutMs
  }

  /** Why it has ended, if it has. */
  get end(): ZooKeeperError | undefined {
    return this.#connection.end
  }

  /** How long it lives from `at` on, at least. */
  leftMs(at: number): number {
    return this.#connection.life.leftMs(at)
  }

  /** The server that it is connected to. */
  get endpoint(): ZooKeeperEndpoint | undefined {
    return this.#connection.endpoint
  }

  connect(): Promise<void> {
    return this.#connection.connect()
  }

  // ---- requests ----

  create(request: CreateRequest): Promise<CreatedNode> {
    return this.#connection.call({
      opcode: request.mode === 'container' ? OPCODE.createContainer : OPCODE.create2,
      what: `create ${request.path}`,
      writes: true,
      write: (writer) => writeCreate(writer, { ...request, path: this.#full(request.path) }),
      read: (reader) => this.#inChroot(readCreated(reader)),
    })
  }

  /** `version`: only if the node has this one; -1 for any. */
  async delete(path: string, version = -1): Promise<void> {
    await this.#connection.call({
      opcode: OPCODE.delete,
      what: `delete ${path}`,
      writes: true,
      write: (writer) => writer.text(this.#full(path)).int(version),
      read: () => undefined,
    })
  }

  /** Undefined: there is no such node; a watch then tells when it is created. */
  async exists(path: string, options: { readonly watch?: boolean } = {}): Promise<NodeStat | undefined> {
    const watch = options.watch === true
    try {
      return await this.#connection.call({
        opcode: OPCODE.exists,
        what: `look at ${path}`,
        writes: false,
        write: (writer) => writer.text(this.#full(path)).bool(watch),
        read: (reader) => {
          if (watch) this.#watches.data.add(path)
          return readStat(reader)
        },
      })
    } catch (error) {
      if (!hasCode(error, 'noNode')) throw error
      if (watch) this.#watches.exist.add(path)
      return undefined
    }
  }

  /** A watch tells once that the data has changed, or that the node is gone. Without a node there is no watch. */
  async getData(path: string, options: { readonly watch?: boolean } = {}): Promise<NodeData> {
    const watch = options.watch === true
    return await this.#connection.call({
      opcode: OPCODE.getData,
      what: `read ${path}`,
      writes: false,
      write: (writer) => writer.text(this.#full(path)).bool(watch),
      read: (reader) => {
        if (watch) this.#watches.data.add(path)
        return readData(reader)
      },
    })
  }

  async setData(path: string, data: Buffer, version = -1): Promise<void> {
    await this.#connection.call({
      opcode: OPCODE.setData,
      what: `write ${path}`,
      writes: true,
      write: (writer) => writer.text(this.#full(path)).bytes(data).int(version),
      read: readStat,
    })
  }

  /** The names of its children, in no order. A watch tells once that a child has come or gone, or the node itself. */
  async getChildren(path: string, options: { readonly watch?: boolean } = {}): Promise<string[]> {
    const watch = options.watch === true
    return await this.#connection.call({
      opcode: OPCODE.getChildren2,
      what: `list ${path}`,
      writes: false,
      write: (writer) => writer.text(this.#full(path)).bool(watch),
      read: (reader) => {
        if (watch) this.#watches.child.add(path)
        return readChildren(reader)
      },
    })
  }

  /** All steps or none, in one transaction. */
  async multi(steps: readonly MultiStep[]): Promise<void> {
    await this.#connection.call({
      opcode: OPCODE.multi,
      what: 'multi',
      writes: true,
      write: (writer) =>
        writeMulti(
          writer,
          steps.map((step) => this.#fullStep(step)),
        ),
      read: readMulti,
    })
  }

  /**
   * A write that changes nothing. Its answer proves that the session lives; and what is read after it, on the same
   * session, is no older than anything that was done before it.
   */
  async confirm(): Promise<void> {
    try {
      await this.multi([{ check: { path: '/', version: -1 } }])
    } catch (error) {
      // Refused, it has been decided by most servers all the same.
      if (!(error instanceof ZooKeeperError) || !error.refused || error.code > -100 || this.end !== undefined)
        throw error
    }
  }

  /** End it, with all its ephemeral nodes. */
  close(): Promise<void> {
    return this.#connection.close()
  }

  /** Let it run out by itself: its ephemeral nodes stay for the whole session time from now on. */
  abandon(): void {
    this.#connection.abandon()
  }

  /** Each of them well below 1 MiB, which is the longest message that a server takes. */
  #watchesMessages(lastZxid: bigint): readonly Buffer[] {
    const kinds: readonly WatchKind[] = ['data', 'exist', 'child']
    const all = kinds.flatMap((kind) => [...this.#watches[kind]].map((path) => ({ kind, path: this.#full(path) })))
    const messages: Buffer[] = []
    for (let from = 0; from < all.length; from += WATCHES_AT_ONCE) {
      const some = all.slice(from, from + WATCHES_AT_ONCE)
      const of = (kind: WatchKind): string[] => some.filter((one) => one.kind === kind).map(({ path }) => path)
      messages.push(setWatchesMessage(lastZxid, { data: of('data'), exist: of('exist'), child: of('child') }))
    }
    return messages
  }

  // ---- paths ----

  #full(path: string): string {
    return path === '/' && this.#chroot !== '' ? this.#chroot : this.#chroot + path
  }

  #short(path: string): string {
    return path === this.#chroot ? '/' : path.slice(this.#chroot.length)
  }

  #fullStep(step: MultiStep): MultiStep {
    if ('check' in step) return { check: { ...step.check, path: this.#full(step.check.path) } }
    if ('delete' in step) return { delete: { ...step.delete, path: this.#full(step.delete.path) } }
    return { create: { ...step.create, path: this.#full(step.create.path) } }
  }

  #inChroot(node: CreatedNode): CreatedNode {
    return { ...node, path: this.#short(node.path) }
  }
}
