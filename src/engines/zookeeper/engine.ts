/**
 * The engine: its calls and their answers. Entering is in enter.ts, renewing in renew.ts, leaving in leave.ts, evicting
 * and releasing for later in removals.ts. How waiters hear is in listen.ts.
 */
import type { NodeAcl } from '../../clients/zookeeper/messages.ts'
import type { ZooKeeperServers } from '../../clients/zookeeper/session-connection.ts'
import type { Clock } from '../../core/clock.ts'
import type {
  Claim,
  Engine,
  EntryName,
  Finding,
  Line,
  LineSummary,
  News,
  Place,
  Standing,
  Traits,
} from '../../core/engine.ts'
import { LeaseLostError } from '../../core/errors.ts'
import { failingAs } from '../../core/failed-call.ts'
import type { Lease } from '../../core/lease.ts'
import type { Store } from '../../core/store.ts'
import type { ZooKeeperContext } from './class-session.ts'
import { ClassSessions } from './class-sessions.ts'
import { LINE_BOUND } from './codec.ts'
import { diagnose } from './diagnose.ts'
import { ZooKeeperEnterCalls } from './enter.ts'
import { asEngineError, ENGINE } from './errors.ts'
import { inspectLine, listLines } from './inspect.ts'
import { ZooKeeperLeaveCalls } from './leave.ts'
import { type ZooKeeperLayout, ZooKeeperNames } from './names.ts'
import { LineObservers } from './observers.ts'
import { EntryRemovals } from './removals.ts'
import { ZooKeeperRenewCalls } from './renew.ts'
import { ZooKeeperStore } from './store.ts'

const traits: Traits = {
  order: 'fifo',
  fencing: true,
  sharing: 'full',
  ttl: 'class',
  minTtlMs: 2_000,
  lossBeforeNext: true,
  lineBound: LINE_BOUND,
  batchLimit: 256,
  splitFrom: 32,
  takesSignal: [],
  tokensSurvive: 'what the data of the ensemble survive: a token is the number of a transaction of ZooKeeper',
  survives:
    'the death of any client, and of any minority of servers; cut off from the majority, no lock is granted to any client',
}

/** A condition for a `multi` of your own: that a node has a version. */
export interface ZooKeeperGuardCondition {
  /** The whole path, with that of the chroot. */
  readonly path: string
  readonly version: number
}

/** An engine on ZooKeeper; `zookeeper(options)` makes one. */
export class ZooKeeperEngine implements Engine {
  readonly name: string = ENGINE
  readonly traits: Traits = traits
  readonly store: Store
  readonly #context: ZooKeeperContext
  readonly #sessions: ClassSessions
  readonly #observers: LineObservers
  readonly #removals: EntryRemovals
  readonly #enters: ZooKeeperEnterCalls
  readonly #renewals: ZooKeeperRenewCalls
  readonly #leaves: ZooKeeperLeaveCalls
  readonly #records: ZooKeeperStore
  #listener: ((news: News) => void) | undefined

  /** @internal */
  constructor(
    servers: ZooKeeperServers,
    options: {
      readonly path: string
      readonly layout: ZooKeeperLayout
      readonly acl: NodeAcl
      readonly clock: Clock
    },
  ) {
    const { clock, acl } = options
    this.#context = {
      servers,
      clock,
      acl,
      names: new ZooKeeperNames(options.path, options.layout),
      tell: (news) => this.#listener?.(news),
      lineChanged: (path) => this.#observers.changed(path),
      reconnected: () => this.#listener?.({ gap: true }),
      ended: (session) => {
        this.#sessions.ended(session)
        this.#observers.ended(session)
      },
    }
    this.#sessions = new ClassSessions(this.#context)
    this.#observers = new LineObservers(this.#sessions, this.#context.names, clock)
    this.#removals = new EntryRemovals(this.#context, this.#sessions)
    this.#renewals = new ZooKeeperRenewCalls(this.#context, this.#sessions, this.#removals)
    this.#leaves = new ZooKeeperLeaveCalls(this.#sessions)
    this.#records = new ZooKeeperStore(this.#context, this.#sessions)
    this.store = this.#records
    this.#enters = new ZooKeeperEnterCalls(this.#context, this.#sessions, (places) =>
      this.#renewals.renew('enter', places),
    )
  }

  enter(claims: readonly Claim[]): Promise<readonly Standing[]> {
    return this.#enters.enter(claims)
  }

  renew(places: readonly Place[]): Promise<readonly Standing[]> {
    return this.#renewals.renew('renew', places)
  }

  leave(places: readonly EntryName[]): Promise<readonly boolean[]> {
    return this.#leaves.leave(places)
  }

  async evict(key: string, token: bigint, how: 'expire' | 'now'): Promise<boolean> {
    return await failingAs(asEngineError, 'evict', this.#removals.evict(key, token, how))
  }

  async inspect(key: string): Promise<Line> {
    const session = await this.#sessions.any('inspect')
    return await failingAs(asEngineError, 'inspect', inspectLine(this.#context, session, key))
  }

  async *list(prefix: string, onProgress?: () => void): AsyncIterable<LineSummary> {
    try {
      yield* listLines(this.#context, await this.#sessions.any('list'), prefix, onProgress)
    } catch (error) {
      throw asEngineError('list', error)
    }
  }

  /** News come on the sessions by which entries live: there is nothing to prepare. */
  async subscribe(listener: (news: News) => void): Promise<AsyncDisposable> {
    this.#listener = listener
    return {
      [Symbol.asyncDispose]: async () => {
        if (this.#listener === listener) this.#listener = undefined
      },
    }
  }

  async watch(key: string, listener: () => void): Promise<AsyncDisposable> {
    return await failingAs(asEngineError, 'watch', this.#observers.add(key, listener))
  }

  /**
   * What to check in a `multi` of your own, so that it is done only while this lease is held: a guard for data in
   * ZooKeeper itself. Throws `LeaseLostError` if this engine knows that the lease has ended.
   */
  guard({ key, token }: Pick<Lease, 'key' | 'token'>): ZooKeeperGuardCondition {
    for (const session of this.#sessions.all) {
      for (const entry of session.entries.values()) {
        // The data of the node are written only to evict the entry.
        if (entry.key === key && entry.token === token && !entry.evicted && !entry.doubtful)
          return { path: this.#context.servers.chroot + session.pathOf(entry), version: 0 }
      }
    }
    throw new LeaseLostError(key, token, 'released')
  }

  /** What about these servers could break the promises of locks on them. */
  async diagnose(): Promise<readonly Finding[]> {
    const session = await this.#sessions.any('diagnose')
    return await failingAs(asEngineError, 'diagnose', diagnose(this.#context, session))
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#listener = undefined
    this.#observers.stop()
    await this.#records.finish()
    await this.#sessions.close()
  }
}
