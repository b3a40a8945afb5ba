/**
 * The engine: its calls and their answers. Entering is in enter.ts, renewing in renew.ts, and leaving is here. How
 * waiters hear is in listen.ts; what leases are, in leases.ts.
 */

import type { EtcdClient } from '../../clients/etcd/client.ts'
import type { DeleteResponse } from '../../clients/etcd/messages.ts'
import { WatchStream } from '../../clients/etcd/watch-stream.ts'
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
import { LINE_BOUND } from './codec.ts'
import { diagnose } from './diagnose.ts'
import { EtcdEnterCalls } from './enter.ts'
import { EntryMarkers } from './entry-markers.ts'
import { asEngineError, ENGINE } from './errors.ts'
import { inspectLine, listLines } from './inspect.ts'
import { EtcdLeases } from './leases.ts'
import { EvictionWatcher, LineWatcher } from './listen.ts'
import { EtcdNames } from './names.ts'
import { observeLine } from './observers.ts'
import { EtcdOwnEntries } from './own-entries.ts'
import { EtcdRenewCalls, placeOf } from './renew.ts'
import { EtcdStore } from './store.ts'

const traits: Traits = {
  order: 'fifo',
  fencing: true,
  sharing: 'full',
  ttl: 'class',
  minTtlMs: 2_000,
  lossBeforeNext: true,
  lineBound: LINE_BOUND,
  batchLimit: 384,
  claimsPerLine: 8,
  splitFrom: 32,
  takesSignal: ['renew'],
  tokensSurvive:
    'what the data of the cluster survive, but not the restore of a snapshot: a token is a revision of etcd',
  survives:
    'the death of any client, and of any minority of members; cut off from the majority, no lock is granted to any client',
}

/**
 * A condition for a transaction of your own, in the words of etcd's `Compare`: true as long as the lease has not ended.
 * For a client that wants bytes, `Buffer.from(key)`.
 */
export interface EtcdGuardCondition {
  readonly key: string
  readonly target: 'CREATE'
  readonly result: 'EQUAL'
  /** A decimal number, as 64-bit numbers are written in JSON. */
  readonly create_revision: string
}

/** A server takes 128 operations in one transaction. */
const LEAVES_AT_ONCE = 120

/** An engine on etcd; `etcd(options)` makes one. */
export class EtcdEngine implements Engine {
  readonly name: string = ENGINE
  readonly traits: Traits = traits
  readonly store: Store
  readonly #client: EtcdClient
  readonly #clock: Clock
  readonly #names: EtcdNames
  readonly #leases: EtcdLeases
  readonly #entries: EtcdOwnEntries
  readonly #watches: WatchStream
  readonly #watcher: LineWatcher
  readonly #evictions: EvictionWatcher
  readonly #markers: EntryMarkers
  readonly #enterCalls: EtcdEnterCalls
  readonly #renewCalls: EtcdRenewCalls
  #listener: ((news: News) => void) | undefined

  /** @internal */
  constructor(client: EtcdClient, prefix: string, clock: Clock) {
    this.#client = client
    this.#clock = clock
    this.#names = new EtcdNames(prefix)
    this.#leases = new EtcdLeases(client, clock)
    this.#entries = new EtcdOwnEntries(this.#leases, clock)
    this.#watches = new WatchStream(client, clock)
    this.#watcher = new LineWatcher({
      client,
      watches: this.#watches,
      names: this.#names,
      tell: (news) => this.#listener?.(news),
      now: () => clock.now(),
    })
    this.#evictions = new EvictionWatcher({
      watches: this.#watches,
      names: this.#names,
      tell: (news) => this.#listener?.(news),
      has: (id) => this.#entries.get(id) !== undefined,
    })
    const context = {
      client,
      clock,
      names: this.#names,
      leases: this.#leases,
      entries: this.#entries,
      watcher: this.#watcher,
      evictions: this.#evictions,
    }
    this.#markers = new EntryMarkers(context)
    this.#renewCalls = new EtcdRenewCalls(context, this.#markers)
    this.store = new EtcdStore(context)
    this.#enterCalls = new EtcdEnterCalls(context, (claims) =>
      this.#renewCalls.renew(claims.map(placeOf), { call: 'enter' }),
    )
  }

  /** Takes no signal: to make one costs more than all the rest that this process does, and the client has a limit. */
  enter(claims: readonly Claim[]): Promise<readonly Standing[]> {
    return this.#enterCalls.enter(claims)
  }

  renew(places: readonly Place[], signal?: AbortSignal): Promise<readonly Standing[]> {
    return this.#renewCalls.renew(places, { call: 'renew', signal })
  }

  async leave(places: readonly EntryName[]): Promise<readonly boolean[]> {
    if (places.length <= LEAVES_AT_ONCE) return await this.#leaveTogether(places)
    const parts: Promise<readonly boolean[]>[] = []
    for (let from = 0; from < places.length; from += LEAVES_AT_ONCE)
      parts.push(this.#leaveTogether(places.slice(from, from + LEAVES_AT_ONCE)))
    return (await Promise.all(parts)).flat()
  }

  async #leaveTogether(places: readonly EntryName[]): Promise<readonly boolean[]> {
    const known = places.map(({ id }) => this.#entries.get(id))
    for (const { key, id } of places) {
      this.#watcher.removeWaiter(key, id)
      this.#entries.beginLeaving(id)
    }
    try {
      const names = places.map(({ id }, index) => (known[index]?.nameMayBeReused === false ? known[index].name : id))
      const deletions = await this.#delete(
        places.map(({ key }, index) => this.#names.entry(key, names[index] as string)),
      )
      const left: boolean[] = []
      for (const [index, { key, id }] of places.entries()) {
        const [deleted] = deletions[index]?.prevKvs ?? []
        left.push(deleted !== undefined || (await this.#leaveByAnotherName(key, id, names[index] === id)))
        // An entry that was not under our lease may have a marker. It is of no use without its entry.
        if (deleted !== undefined && deleted.lease !== known[index]?.lease.id)
          await this.#client.delete({ key: this.#names.marker(key, id) })
      }
      return left
    } catch (error) {
      this.#entries.changeEngineId()
      // The entries may still be there. They must not be kept alive.
      for (const entry of known) if (entry !== undefined) this.#leases.taint(entry.lease)
      throw asEngineError('leave', error)
    } finally {
      for (const { id } of places) this.#entries.endLeaving(id)
    }
  }

  /** The entry is not where we took it to be: another engine object may have entered it. */
  async #leaveByAnotherName(key: string, id: string, triedId: boolean): Promise<boolean> {
    if (!triedId && (await this.#client.delete({ key: this.#names.entry(key, id) })).count === 1) return true
    return await this.#markers.deleteFirst(key, id)
  }

  async #delete(keys: readonly string[]): Promise<readonly (DeleteResponse | undefined)[]> {
    const [only] = keys
    // As a transaction it would cost a tenth more.
    if (keys.length === 1 && only !== undefined) return [await this.#client.delete({ key: only, prevKv: true })]
    const { responses } = await this.#client.txn({ success: keys.map((key) => ({ delete: { key, prevKv: true } })) })
    return responses.map(({ deletion }) => deletion)
  }

  async evict(key: string, token: bigint, how: 'expire' | 'now'): Promise<boolean> {
    return await failingAs(asEngineError, 'evict', this.#markers.evict(key, token, how))
  }

  async inspect(key: string): Promise<Line> {
    return await failingAs(asEngineError, 'inspect', inspectLine(this.#client, this.#names, key))
  }

  async *list(prefix: string): AsyncIterable<LineSummary> {
    try {
      yield* listLines(this.#client, this.#names, prefix)
    } catch (error) {
      throw asEngineError('list', error)
    }
  }

  /**
   * A line is watched from the revision at which it was entered, and so are evictions. So there is nothing to prepare
   * but the connection.
   */
  async subscribe(listener: (news: News) => void): Promise<AsyncDisposable> {
    // Before the first await: the last listener counts, also if an earlier one connects later.
    this.#listener = listener
    await failingAs(asEngineError, 'subscribe', this.#client.connect())
    if (this.#listener === listener) this.#evictions.start()
    return {
      [Symbol.asyncDispose]: async () => {
        if (this.#listener !== listener) return
        this.#listener = undefined
        this.#watcher.stop()
        this.#evictions.stop()
      },
    }
  }

  async watch(key: string, listener: () => void): Promise<AsyncDisposable> {
    await failingAs(asEngineError, 'watch', this.#client.connect())
    const options = { watches: this.#watches, names: this.#names, clock: this.#clock }
    return await failingAs(asEngineError, 'watch', observeLine(options, key, listener))
  }

  /**
   * What to compare in a transaction of your own, so that it is applied only while this lease is held: a guard for data
   * in etcd itself. Throws `LeaseLostError` if this engine knows that the lease has ended.
   */
  guard({ key, token }: Pick<Lease, 'key' | 'token'>): EtcdGuardCondition {
    const entry = token === null ? undefined : this.#entries.find(key, token)
    if (entry === undefined) throw new LeaseLostError(key, token, 'released')
    return {
      key: this.#names.entry(key, entry.name),
      target: 'CREATE',
      result: 'EQUAL',
      create_revision: String(entry.token),
    }
  }

  /** What about this cluster could break the promises of locks on it. */
  diagnose(): Promise<readonly Finding[]> {
    return failingAs(asEngineError, 'diagnose', diagnose(this.#client))
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#listener = undefined
    this.#watcher.stop()
    this.#watches.stop()
    await this.#leases.close()
    this.#client.close()
  }
}
