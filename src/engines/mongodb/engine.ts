/**
 * The engine: the verbs of the contract. What a line is, and every decision about it, is in pipelines.ts; which calls a
 * batch is made of, in line-calls.ts. Here answers are read, and waiters kept an eye on.
 */
import type { MongodbCollection } from '../../clients/mongodb/collection.ts'
import { asEngineError, ENGINE } from '../../clients/mongodb/errors.ts'
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
import { type EngineCall, failingAs } from '../../core/failed-call.ts'
import type { Store } from '../../core/store.ts'
import { fallbackAfter } from '../../core/time-limit.ts'
import { RecheckTimer } from '../shared/recheck-timer.ts'
import type { MongodbChangeStream } from './change-stream.ts'
import {
  enteredStandings,
  hasEvicted,
  LINE_BOUND,
  type LineDocument,
  leaveAnswersOf,
  lineOf,
  newsIn,
  renewedStandings,
  type ShownLine,
  summaryOf,
} from './codec.ts'
import { diagnose } from './diagnose.ts'
import { asDoubtful } from './errors.ts'
import { NOW } from './expressions.ts'
import { groupByLine, isFailed, LineCalls, type LineChange, type LineGroup, ungrouped } from './line-calls.ts'
import { newsStream } from './listen.ts'
import { TTL_INDEX } from './names.ts'
import { MongodbObservers, noChangeStreams } from './observers.ts'
import { enterPipeline, evictPipeline, leaveOrFailPipeline, leavePipeline, renewPipeline } from './pipelines.ts'
import { MongodbStore } from './store.ts'

const traits: Traits = {
  order: 'fifo',
  fencing: true,
  sharing: 'full',
  ttl: 'entry',
  // A majority that writes to its disks takes some milliseconds, and a slow moment of one member some hundred: a
  // shorter ttl would be over before its renewal is confirmed.
  minTtlMs: 1_000,
  lossBeforeNext: true,
  lineBound: LINE_BOUND,
  batchLimit: 250,
  splitFrom: 32,
  takesSignal: [],
  tokensSurvive:
    'release, expiry, kill, crash, restart and election, whatever the clock does; a key that was not used for an ' +
    "hour, and one whose document was dropped, goes on from the server's clock, which must not be behind",
  survives:
    'the death of any client and of any minority of the members of a replica set; a stand-alone server survives a ' +
    'crash with its journal, and its waiters poll, for it has no change streams',
}

export interface MongodbEngineSetup {
  readonly collection: MongodbCollection
  /** Whether to have a change stream. */
  readonly listens: boolean
  readonly clock: Clock
  /** What the documents call this engine object. */
  readonly engineId: string
}

/** No answer is waited for longer, whatever the core says. */
const ANSWER_MS = 10_000
/** A connection may have to be made first. The core itself stops waiting when the shortest ttl is over. */
const LEAST_ANSWER_MS = 2000
/** How long each step of closing the engine may take. */
const FINISH_MS = 1000
/** How many lines of a listing are read at once. */
const PAGE = 500
/** What a long of the server can be. */
const HIGHEST_TOKEN = 2n ** 63n - 1n
/** From so many lines on, leaves that no waiter of this process waits for are one write. */
const MANY_LEAVES = 4

/** An engine on MongoDB. Made by `mongodb()`. */
export class MongodbEngine implements Engine {
  readonly name: string = ENGINE
  readonly traits: Traits = traits
  readonly store: Store
  readonly #collection: MongodbCollection
  readonly #listens: boolean
  readonly #clock: Clock
  readonly #engineId: string
  readonly #calls: LineCalls
  readonly #rechecks: RecheckTimer
  readonly #observers: MongodbObservers
  /** How many waiters of this process are in which line, as far as it has heard. */
  readonly #waiters = new Map<string, Set<string>>()
  #stream: MongodbChangeStream | undefined
  #listener: ((news: News) => void) | undefined
  #indexed = false

  /** @internal */
  constructor({ collection, listens, clock, engineId }: MongodbEngineSetup) {
    this.#collection = collection
    this.#listens = listens
    this.#clock = clock
    this.#engineId = engineId
    this.#calls = new LineCalls(collection, clock)
    this.#observers = new MongodbObservers(collection, clock)
    this.store = new MongodbStore(collection, (answer) => this.#tell(answer))
    this.#rechecks = new RecheckTimer(
      clock,
      () => this.#stream?.deaf !== false,
      (key, id) => this.#listener?.({ key, id }),
    )
  }

  enter(claims: readonly Claim[]): Promise<readonly Standing[]> {
    const groups = groupByLine(claims)
    const changes = groups.map(
      ({ key, items }): LineChange => ({ key, pipeline: enterPipeline(items, this.#engineId), upsert: true }),
    )
    return this.#standings('enter', groups, changes, usefulMs(claims), (stored, items) =>
      stored === undefined
        ? renewedStandings(undefined, items, this.#schedule)
        : enteredStandings(stored, items, this.#schedule),
    )
  }

  renew(places: readonly Place[]): Promise<readonly Standing[]> {
    const groups = groupByLine(places)
    const changes = groups.map(({ key, items }): LineChange => ({ key, pipeline: renewPipeline(items), upsert: false }))
    return this.#standings('renew', groups, changes, usefulMs(places), (stored, items) =>
      renewedStandings(stored, items, this.#schedule),
    )
  }

  async leave(places: readonly EntryName[]): Promise<readonly boolean[]> {
    for (const { key, id } of places) this.#forget(key, id)
    const groups = groupByLine(places)
    const isQuiet = ({ key, items }: LineGroup<EntryName>): boolean => items.length === 1 && !this.#waiters.has(key)
    const quiet = groups.length < MANY_LEAVES ? [] : groups.filter(isQuiet)
    // The others one by one: their answer tells at once which waiter of this process holds now.
    const others = groups.filter((group) => !quiet.includes(group))
    const calls = [
      ...others.map(async (group) => [await this.#leaveLine(group)]),
      ...(quiet.length === 0 ? [] : [this.#leaveQuietly(quiet)]),
    ]
    // All of them are waited for: a release is not over while a part of it is under way.
    const results = await Promise.allSettled(calls)
    const failure = results.find((result) => result.status === 'rejected')
    if (failure !== undefined) throw calls.length === 1 ? failure.reason : asDoubtful('leave', failure.reason)
    const answers = results.flatMap((result) => (result.status === 'fulfilled' ? result.value : []))
    return ungrouped([...others, ...quiet], (_, index) => answers[index] ?? [])
  }

  async evict(key: string, token: bigint, how: 'expire' | 'now'): Promise<boolean> {
    // The server refuses to read it, and no entry has it.
    if (token > HIGHEST_TOKEN) return false
    const change = { key, pipeline: evictPipeline(token, how), upsert: false }
    const stored = await this.#calls.changeOne('evict', change, ANSWER_MS)
    this.#tell(stored)
    return hasEvicted(stored)
  }

  async inspect(key: string): Promise<Line> {
    const steps = [{ $match: { _id: key } }, { $project: { record: 0 } }, { $set: { now: NOW } }]
    const [shown] = await this.#look('inspect', steps)
    return lineOf(key, shown)
  }

  async *list(prefix: string, onProgress?: () => void): AsyncGenerator<LineSummary> {
    const fields = { format: 1, 'entries.weight': 1, 'entries.limit': 1, 'entries.expires_at': 1, now: NOW }
    for (let after: object = { $gte: prefix }; ; ) {
      const page = await this.#look('list', [
        { $match: { _id: after, 'entries.0': { $exists: true } } },
        { $sort: { _id: 1 } },
        { $limit: PAGE },
        { $project: fields },
      ])
      for (const shown of page) {
        if (!shown._id.startsWith(prefix)) return
        const summary = summaryOf(shown)
        if (summary.held + summary.waiting > 0) yield summary
      }
      const last = page.at(-1)
      if (last === undefined || page.length < PAGE) return
      after = { $gt: last._id }
      onProgress?.()
    }
  }

  async subscribe(listener: (news: News) => void): Promise<AsyncDisposable> {
    this.#listener = listener
    this.#makeIndex()
    if (this.#listens) await this.#listen()
    return {
      [Symbol.asyncDispose]: async () => {
        if (this.#listener === listener) await this.#unsubscribe()
      },
    }
  }

  async watch(key: string, listener: () => void): Promise<AsyncDisposable> {
    try {
      if (!this.#listens) throw noChangeStreams('the option listen is false')
      return await this.#observers.add(key, listener)
    } catch (error) {
      throw asEngineError('watch', error)
    }
  }

  /** What this deployment is, and what locks on it are worth. */
  diagnose(): Promise<readonly Finding[]> {
    return diagnose({ collection: this.#collection, listens: this.#listens })
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all([this.#unsubscribe(), this.#observers.close()])
    await fallbackAfter(this.#clock, FINISH_MS, this.#collection.close(), undefined)
  }

  // ---- news ----

  async #listen(): Promise<void> {
    const [collection, clock, engineId] = [this.#collection, this.#clock, this.#engineId]
    const gone = (): void => {
      this.#indexed = false
      this.#makeIndex()
    }
    const stream = newsStream({ collection, clock, engineId, news: (news) => this.#hear(news), gone })
    const before = this.#stream
    this.#stream = stream
    await before?.close()
    try {
      await stream.open()
    } catch (error) {
      await stream.close()
      throw asEngineError('subscribe', error)
    }
  }

  async #unsubscribe(): Promise<void> {
    this.#listener = undefined
    this.#rechecks.stop()
    this.#waiters.clear()
    const stream = this.#stream
    this.#stream = undefined
    await stream?.close()
  }

  #hear(news: News): void {
    if ('id' in news && news.standing !== undefined) this.#forget(news.key, news.id)
    this.#listener?.(news)
  }

  /** What a change has to tell to entries of this process: sooner than the change stream does. */
  #tell(stored: Pick<LineDocument, '_id' | 'news'> | undefined): void {
    if (stored === undefined || stored.news === '') return
    // Later, as from a server: never from inside the call of another waiter.
    for (const news of newsIn(stored._id, stored.news, this.#engineId)) queueMicrotask(() => this.#hear(news))
  }

  // ---- waiters ----

  readonly #schedule: Parameters<typeof renewedStandings>[2] = (recheck) => {
    this.#rechecks.schedule(recheck)
    const waiters = this.#waiters.get(recheck.key) ?? new Set()
    this.#waiters.set(recheck.key, waiters.add(recheck.id))
  }

  #forget(key: string, id: string): void {
    this.#rechecks.forget(id)
    const waiters = this.#waiters.get(key)
    if (waiters?.delete(id) === true && waiters.size === 0) this.#waiters.delete(key)
  }

  // ---- calling ----

  async #standings<Item extends Place>(
    call: EngineCall,
    groups: readonly LineGroup<Item>[],
    changes: readonly LineChange[],
    limitMs: number,
    read: (stored: LineDocument | undefined, items: readonly Item[]) => readonly Standing[],
  ): Promise<readonly Standing[]> {
    const asked = this.#calls.change(call, changes, limitMs).then((answers) =>
      ungrouped(groups, ({ items }, index): readonly Standing[] => {
        const answer = answers[index]
        if (isFailed(answer)) return items.map(() => ({ state: 'failed', error: answer }))
        if (changes.length === 1) this.#tell(answer)
        const standings = read(answer, items)
        for (const [place, { key, id }] of items.entries())
          if (standings[place]?.state !== 'waiting') this.#forget(key, id)
        return standings
      }),
    )
    return await this.#rechecks.during(asked)
  }

  async #leaveLine({ key, items }: LineGroup<EntryName>): Promise<readonly boolean[]> {
    const ids = items.map(({ id }) => id)
    const filter = { 'entries.id': { $in: ids } }
    const change = { key, pipeline: leavePipeline(ids), upsert: false, filter }
    const stored = await this.#calls.changeOne('leave', change, ANSWER_MS)
    this.#tell(stored)
    return leaveAnswersOf(stored, ids)
  }

  async #leaveQuietly(groups: readonly LineGroup<EntryName>[]): Promise<readonly (readonly boolean[])[]> {
    const changes = groups.map(({ key, items }) => {
      const { id } = items[0] as EntryName
      return { key, pipeline: leaveOrFailPipeline(id), upsert: false }
    })
    return (await this.#calls.leaveMany(changes, ANSWER_MS)).map((wasThere) => [wasThere])
  }

  async #look(call: EngineCall, pipeline: readonly object[]): Promise<readonly ShownLine[]> {
    const found = await failingAs(asEngineError, call, this.#collection.read(pipeline, ANSWER_MS))
    return found as readonly ShownLine[]
  }

  /** By it the server clears away what is not used any more. Where it cannot be had, `holdfast doctor` says so. */
  #makeIndex(): void {
    if (this.#indexed) return
    this.#indexed = true
    const options = { expireAfterSeconds: 0, name: TTL_INDEX }
    this.#collection.createIndex({ remove_at: 1 }, options, ANSWER_MS).catch(() => {
      this.#indexed = false
    })
  }
}

/** How long an answer is of use. What is to outlive its process may be short without being urgent. */
function usefulMs(items: readonly Pick<Place, 'ttlMs' | 'outlives'>[]): number {
  let longest = 0
  for (const { ttlMs, outlives } of items) longest = Math.max(longest, outlives === true ? ANSWER_MS : ttlMs)
  return Math.min(ANSWER_MS, Math.max(LEAST_ANSWER_MS, longest))
}
