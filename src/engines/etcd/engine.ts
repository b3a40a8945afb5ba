/**
 * The engine: verbs and their answers. How a line is kept is in entering.ts, renewing.ts and seals.ts; how waiters
 * hear, in lookout.ts; what leases are, in class-lease.ts.
 */

import type { EtcdClient } from '../../clients/etcd/client.ts'
import type { DeleteResponse } from '../../clients/etcd/messages.ts'
import { WatchStream } from '../../clients/etcd/watch-stream.ts'
import type { Clock } from '../../core/clock.ts'
import type { Claim, Engine, Line, LineSummary, News, Place, Standing, Traits } from '../../core/engine.ts'
import { LeaseLostError } from '../../core/errors.ts'
import { ClassLeases } from './class-lease.ts'
import { diagnose, type EtcdFinding } from './diagnose.ts'
import { Entering, LINE_BOUND } from './entering.ts'
import { ENGINE, fault } from './errors.ts'
import { inspect, list, type Observing, observe } from './looking.ts'
import { Lookout } from './lookout.ts'
import { Entries } from './mine.ts'
import { Names } from './names.ts'
import { placeOf, Renewing } from './renewing.ts'
import { Seals } from './seals.ts'

const traits: Traits = {
  order: 'fifo',
  fencing: true,
  sharing: 'full',
  ttl: 'class',
  minTtlMs: 2_000,
  lossBeforeNext: true,
  lineBound: LINE_BOUND,
  batchLimit: 384,
  splitFrom: 32,
  takesSignal: true,
  tokensSurvive: 'everything that the data of the cluster survives: a token is a revision of etcd',
  survives:
    'the death of any client, and of any minority of members; cut off from the majority, nobody is granted anything',
}

/** A lease of ours, as far as it matters here. */
export interface HeldLease {
  readonly key: string
  readonly token: bigint | null
}

/**
 * A condition for a transaction of yours, in the words of etcd's `Compare`: true as long as the lease has not ended.
 * For a client that wants bytes, `Buffer.from(key)`.
 */
export interface Fence {
  readonly key: string
  readonly target: 'CREATE'
  readonly result: 'EQUAL'
  /** A decimal number, as 64-bit numbers are written in JSON. */
  readonly create_revision: string
}

/** An engine on etcd. */
export interface EtcdEngine extends Engine {
  /**
   * What to compare in your own transaction so that it is done only while this lease is held: a guard for data in etcd
   * itself. Throws `LeaseLostError` if it is known to have ended.
   */
  fence(lease: HeldLease): Fence
  /** What about this cluster could break its promises. */
  diagnose(): Promise<readonly EtcdFinding[]>
}

/** A server takes 128 operations in one transaction. */
const LEAVES_AT_ONCE = 120

export class EtcdLines implements EtcdEngine {
  readonly name: string = ENGINE
  readonly traits: Traits = traits
  readonly #client: EtcdClient
  readonly #names: Names
  readonly #leases: ClassLeases
  readonly #entries: Entries
  readonly #watches: WatchStream
  readonly #observing: Observing
  readonly #lookout: Lookout
  readonly #seals: Seals
  readonly #entering: Entering
  readonly #renewing: Renewing
  #listener: ((news: News) => void) | undefined

  constructor(client: EtcdClient, prefix: string, clock: Clock) {
    const names = new Names(prefix)
    this.#client = client
    this.#names = names
    this.#leases = new ClassLeases(client, clock)
    this.#entries = new Entries(this.#leases, clock)
    this.#watches = new WatchStream(client, clock)
    this.#observing = { watches: this.#watches, names, clock }
    this.#lookout = new Lookout({
      client,
      watches: this.#watches,
      names,
      tell: (news) => this.#listener?.(news),
      now: () => clock.now(),
    })
    const common = { client, clock, names, leases: this.#leases, entries: this.#entries }
    this.#seals = new Seals(common)
    this.#renewing = new Renewing({ ...common, lookout: this.#lookout }, this.#seals)
    const renewOne = async (claim: Claim): Promise<Standing> => {
      const [standing] = await this.#renewing.renew([placeOf(claim)], {})
      return standing as Standing
    }
    this.#entering = new Entering({ ...common, lookout: this.#lookout, renewOne })
  }

  /**
   * Takes no signal: making one costs more than all the rest that we do, and the transport gives up in time by itself.
   */
  enter(claims: readonly Claim[]): Promise<readonly Standing[]> {
    return this.#entering.enter(claims)
  }

  renew(places: readonly Place[], signal?: AbortSignal): Promise<readonly Standing[]> {
    return this.#renewing.renew(places, { signal })
  }

  async leave(places: readonly Pick<Place, 'key' | 'id'>[]): Promise<readonly boolean[]> {
    if (places.length <= LEAVES_AT_ONCE) return await this.#leave(places)
    const parts: Promise<readonly boolean[]>[] = []
    for (let from = 0; from < places.length; from += LEAVES_AT_ONCE)
      parts.push(this.#leave(places.slice(from, from + LEAVES_AT_ONCE)))
    return (await Promise.all(parts)).flat()
  }

  async #leave(places: readonly Pick<Place, 'key' | 'id'>[]): Promise<readonly boolean[]> {
    const known = places.map(({ id }) => this.#entries.get(id))
    for (const { key, id } of places) {
      this.#lookout.forget(key, id)
      this.#entries.beginLeaving(id)
    }
    try {
      const names = places.map(({ id }, index) => (known[index]?.foreign === false ? known[index].name : id))
      const deletions = await this.#delete(
        places.map(({ key }, index) => this.#names.entry(key, names[index] as string)),
      )
      const left: boolean[] = []
      for (const [index, { key, id }] of places.entries()) {
        const [before] = deletions[index]?.prevKvs ?? []
        left.push(before !== undefined || (await this.#leaveByAnotherName(key, id, names[index] === id)))
        // What did not live under our lease may have been sealed, and a seal is of no use without its entry.
        if (before !== undefined && before.lease !== known[index]?.lease.id)
          await this.#client.delete({ key: this.#names.seal(key, id) })
      }
      return left
    } catch (error) {
      this.#entries.doubt([])
      // Its lease must not keep alive what was to go.
      for (const mine of known) if (mine !== undefined) this.#leases.taint(mine.lease)
      throw fault(error)
    } finally {
      for (const { id } of places) this.#entries.endLeaving(id)
    }
  }

  /** It is not where we took it to be: another engine object may have entered it. */
  async #leaveByAnotherName(key: string, id: string, triedId: boolean): Promise<boolean> {
    if (!triedId && (await this.#client.delete({ key: this.#names.entry(key, id) })).count === 1) return true
    return await this.#seals.takeOut(key, id)
  }

  async #delete(entries: readonly string[]): Promise<readonly (DeleteResponse | undefined)[]> {
    const [only] = entries
    // As a transaction it would cost a tenth more.
    if (entries.length === 1 && only !== undefined) return [await this.#client.delete({ key: only, prevKv: true })]
    const { responses } = await this.#client.txn({ success: entries.map((key) => ({ delete: { key, prevKv: true } })) })
    return responses.map(({ deletion }) => deletion)
  }

  async evict(key: string, token: bigint, how: 'expire' | 'now'): Promise<boolean> {
    return await told(this.#seals.evict(key, token, how))
  }

  async inspect(key: string): Promise<Line> {
    return await told(inspect(this.#client, this.#names, key))
  }

  async *list(prefix: string): AsyncIterable<LineSummary> {
    try {
      yield* list(this.#client, this.#names, prefix)
    } catch (error) {
      throw fault(error)
    }
  }

  /** A line is watched from the revision at which it was entered: there is nothing to get ready. */
  async subscribe(listener: (news: News) => void): Promise<AsyncDisposable> {
    // At once: the last one counts, whichever connects first.
    this.#listener = listener
    await told(this.#client.connect())
    return {
      [Symbol.asyncDispose]: async () => {
        if (this.#listener !== listener) return
        this.#listener = undefined
        this.#lookout.stop()
      },
    }
  }

  async watch(key: string, listener: () => void): Promise<AsyncDisposable> {
    await told(this.#client.connect())
    return await told(observe(this.#observing, key, listener))
  }

  fence({ key, token }: HeldLease): Fence {
    const mine = token === null ? undefined : this.#entries.find(key, token)
    if (mine === undefined) throw new LeaseLostError(key, token, 'released')
    return {
      key: this.#names.entry(key, mine.name),
      target: 'CREATE',
      result: 'EQUAL',
      create_revision: String(mine.token),
    }
  }

  diagnose(): Promise<readonly EtcdFinding[]> {
    return told(diagnose(this.#client))
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#listener = undefined
    this.#lookout.stop()
    this.#watches.stop()
    await this.#leases.close()
    this.#client.close()
  }
}

async function told<Answer>(asked: Promise<Answer>): Promise<Answer> {
  try {
    return await asked
  } catch (error) {
    throw fault(error)
  }
}
