/**
 * A session: what a client of ZooKeeper is to the ensemble. It outlives its connections. Read it first in this folder;
 * then session-connection.ts (how it goes on), connection.ts (one connection to one server), silence-watch.ts (when a
 * server is left), session-life.ts (how long the session surely lives), messages.ts and jute.ts (what is sent and
 * read), errors.ts (what a failure means).
 *
 * Watches tell once. After a reconnect they are set again, and the server tells what they have missed.
 *
 * Two ends are final. *Expired*: the server has ended the session, with all its ephemeral nodes; or none has taken it
 * up again for so long that it counts as ended. *Refused*: the server does not accept our credentials. Then every call
 * is rejected, and a new session has to be begun.
 */
import type { Clock } from '../../core/clock.ts'
import type { Endpoint } from '../shared/endpoint.ts'
import { answeredError, hasCode, wasDecided, wasRefused, type ZooKeeperError } from './errors.ts'
import { JuteError } from './jute.ts'
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
  readSteps,
  type StepAnswer,
  writeCreate,
  writeMulti,
  writeMultiRead,
  writeSetData,
} from './messages.ts'
import { NodeWatches } from './node-watches.ts'
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

/** A node that was created, and the transaction that has created it. */
export type NumberedNode = Pick<CreatedNode, 'path'> & Pick<NodeStat, 'czxid'>

export class ZooKeeperSession {
  readonly #chroot: string
  readonly #connection: SessionConnection
  readonly #watches = new NodeWatches()
  /** The server is older than 3.6, and cannot list several nodes in one request. */
  #listsOneByOne = false

  constructor({ servers, clock, timeoutMs, event, reconnected, ended }: ZooKeeperSessionOptions) {
    this.#chroot = servers.chroot
    this.#connection = new SessionConnection({
      servers,
      clock,
      timeoutMs,
      event: (heard) => {
        const path = this.#short(heard.path)
        this.#watches.told(path)
        event?.({ ...heard, path })
      },
      watches: (lastZxid) => this.#watches.messages(lastZxid, (path) => this.#full(path)),
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
  get endpoint(): Endpoint | undefined {
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
          if (watch) this.#watches.add('data', path)
          return readStat(reader)
        },
      })
    } catch (error) {
      if (!hasCode(error, 'noNode')) throw error
      if (watch) this.#watches.add('exist', path)
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
        if (watch) this.#watches.add('data', path)
        return readData(reader)
      },
    })
  }

  async setData(path: string, data: Buffer, version = -1): Promise<void> {
    await this.#connection.call({
      opcode: OPCODE.setData,
      what: `write ${path}`,
      writes: true,
      write: (writer) => writeSetData(writer, { path: this.#full(path), data, version }),
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
        if (watch) this.#watches.add('child', path)
        return readChildren(reader)
      },
    })
  }

  /**
   * The names of the children of several nodes, in no order, in one request; or for a node of which the server does not
   * tell them, why.
   */
  async getChildrenOfAll(paths: readonly string[]): Promise<readonly (readonly string[] | ZooKeeperError)[]> {
    if (this.#listsOneByOne) {
      const lists = await Promise.allSettled(paths.map((path) => this.getChildren(path)))
      return lists.map((list) => (list.status === 'fulfilled' ? list.value : (list.reason as ZooKeeperError)))
    }
    try {
      const answers = await this.#connection.call({
        opcode: OPCODE.multiRead,
        what: `list ${paths.length} nodes`,
        writes: false,
        write: (writer) =>
          writeMultiRead(
            writer,
            paths.map((path) => this.#full(path)),
          ),
        read: readSteps,
      })
      return answers.map(({ code, children }, index) => children ?? answeredError(code, `list ${paths[index]}`))
    } catch (error) {
      if (!hasCode(error, 'unimplemented')) throw error
      this.#listsOneByOne = true
      return await this.getChildrenOfAll(paths)
    }
  }

  /**
   * All of them or none, in one transaction: they have one `czxid`. A server does not tell it of nodes that a `multi`
   * creates, but of one that a `multi` writes. So one more node is created, written and deleted in the same step. No
   * client ever sees it.
   */
  async createAll(requests: readonly CreateRequest[]): Promise<readonly NumberedNode[]> {
    const [first] = requests as readonly [CreateRequest]
    const path = `${first.path}told`
    const answers = await this.multi([
      ...requests.map((create) => ({ create })),
      { create: { ...first, path, mode: 'ephemeral' } },
      { setData: { path, data: first.data, version: -1 } },
      { delete: { path, version: -1 } },
    ])
    const czxid = answers.at(-2)?.stat?.czxid
    if (czxid === undefined) throw new JuteError('a multi without an answer to each of its steps')
    return answers.slice(0, requests.length).map((answer) => ({ path: this.#short(answer.path as string), czxid }))
  }

  /** All of them or none, in one transaction. */
  async deleteAll(paths: readonly string[]): Promise<void> {
    await this.multi(paths.map((path) => ({ delete: { path, version: -1 } })))
  }

  /** All steps or none, in one transaction. Paths in its answers have that of the chroot before them. */
  multi(steps: readonly MultiStep[]): Promise<readonly StepAnswer[]> {
    return this.#connection.call({
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

  /** All steps or none. Answers what the server knows of the node that the step at this index has written. */
  async multiStat(steps: readonly MultiStep[], index: number): Promise<NodeStat> {
    const stat = (await this.multi(steps))[index]?.stat
    if (stat === undefined) throw new JuteError('a multi without an answer to each of its steps')
    return stat
  }

  /**
   * A write that changes nothing. Its answer proves that the session lives; and what is read after it, on the same
   * session, is no older than anything that was done before it.
   */
  async confirm(): Promise<void> {
    try {
      await this.multi([{ check: { path: '/', version: -1 } }])
    } catch (error) {
      // Refused, it has been decided by most servers all the same; unless one has throttled it.
      if (!wasRefused(error) || !wasDecided(error.code) || this.end !== undefined) throw error
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
    if ('setData' in step) return { setData: { ...step.setData, path: this.#full(step.setData.path) } }
    return { create: { ...step.create, path: this.#full(step.create.path) } }
  }

  #inChroot(node: CreatedNode): CreatedNode {
    return { ...node, path: this.#short(node.path) }
  }
}
