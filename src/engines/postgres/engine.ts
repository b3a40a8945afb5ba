/**
 * The engine: the verbs of the contract, each one call of a function for a whole batch.
 *
 * What a line is, and every decision about it, is in sql/. Here batches are packed, answers unpacked, waiters kept an
 * eye on, and empty rows cleared away.
 */

import { isLasting } from '../../clients/postgres/errors.ts'
import type { PostgresWire } from '../../clients/postgres/wire.ts'
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
import type { EngineError } from '../../core/errors.ts'
import type { EngineCall } from '../../core/failed-call.ts'
import type { Store } from '../../core/store.ts'
import { NewsChannel } from '../shared/news-channel.ts'
import { RecheckTimer } from '../shared/recheck-timer.ts'
import { RowCleanup } from '../shared/row-cleanup.ts'
import {
  enterArguments,
  enterOneArguments,
  keysOf,
  type LeaveAnswer,
  LINE_BOUND,
  leaveAnswersOf,
  leaveArguments,
  lineOf,
  newsOf,
  type PostgresReply,
  renewArguments,
  standingsOf,
  summariesOf,
  texts,
} from './codec.ts'
import { diagnose } from './diagnose.ts'
import { asEngineError, ENGINE, isCrowded } from './errors.ts'
import {
  aroundLockedRows,
  PostgresCaller,
  type PostgresFunction,
  ROW_WAIT_MS,
  rowWaitMs,
  UnsyncedLeaves,
  usefulMs,
} from './function-calls.ts'
import type { PostgresNames } from './names.ts'
import { PostgresStore } from './store.ts'

/** A key that this process left this long ago is not about to be used again. */
const COLD_MS = 1000

const traits: Traits = {
  order: 'fifo',
  fencing: true,
  sharing: 'full',
  ttl: 'entry',
  // A commit that waits for a disk takes milliseconds; a shorter ttl would be over before its renewal is written.
  minTtlMs: 50,
  lossBeforeNext: true,
  lineBound: LINE_BOUND,
  batchLimit: 500,
  takesSignal: [],
  tokensSurvive:
    'release, expiry, kill, crash and restart, whatever the clock does; after a fail-over, a restored backup or ' +
    "dropped tables they go on from the server's clock, which must not be behind",
  survives:
    'the death of any client, and a crash of the server; a fail-over loses locks if the promoted replica has not got ' +
    'the last commits (synchronous replication prevents that)',
}

export interface PostgresEngineSetup {
  readonly wire: PostgresWire
  readonly listen: PostgresWire['listen']
  readonly names: PostgresNames
  readonly clock: Clock
  /** Unique to this engine object: the name of its channel, without its beginning. */
  readonly engineId: string
}

/** How many lines of a listing are read at once. */
const PAGE = 500
/** How long clearing away may take at the end. */
const FINISH_MS = 500

/** The engine on tables of a PostgreSQL. Made by `postgres()`. */
export class PostgresEngine implements Engine {
  readonly name: string = ENGINE
  readonly traits: Traits = traits
  readonly store: Store
  readonly #records: PostgresStore
  readonly #wire: PostgresWire
  readonly #listen: PostgresWire['listen']
  readonly #clock: Clock
  readonly #engineId: string
  /** What our calls say of where we listen: our `engineId`, or '' while we do not, so that no message is sent to us. */
  #listensAs = ''
  readonly #caller: PostgresCaller
  readonly #rechecks: RecheckTimer
  readonly #cleanup: RowCleanup
  readonly #unsynced: UnsyncedLeaves
  #news: NewsChannel | undefined
  #listener: ((news: News) => void) | undefined
  /** A call came to an unknown end, and none has been answered since. */
  #troubled = false

  /** @internal */
  constructor({ wire, listen, names, clock, engineId }: PostgresEngineSetup) {
    this.#wire = wire
    this.#listen = listen
    this.#clock = clock
    this.#engineId = engineId
    this.#caller = new PostgresCaller(wire, names)
    this.#rechecks = new RecheckTimer(
      clock,
      () => this.#news?.deaf !== false,
      (key, id) => this.#listener?.({ key, id }),
    )
    this.#unsynced = new UnsyncedLeaves(clock)
    this.#cleanup = new RowCleanup(clock, COLD_MS, (keys, sweep) => this.#clear(keys, sweep))
    this.#records = new PostgresStore({
      call: (...call) => this.#call(...call),
      names,
      clock,
      lines: {
        listensAs: () => this.#listensAs,
        entered: (claims) => this.#cleanup.entered(claims),
        left: (places) => this.#left(places),
      },
    })
    this.store = this.#records
  }

  // Neither takes a signal: making one costs more than the rest of a call, and nothing waits long to be sent.
  enter(claims: readonly Claim[]): Promise<readonly Standing[]> {
    this.#cleanup.entered(claims)
    const [first] = claims
    if (first !== undefined && claims.length === 1) return this.#rechecks.during(this.#enterOne(first, claims))
    const several = {
      verb: 'enter',
      call: (some: readonly Claim[]) => this.#enter(some),
      lockedKeys: this.#lockedKeys,
      refused,
    } as const
    return this.#rechecks.during(aroundLockedRows(claims, several))
  }

  renew(places: readonly Place[]): Promise<readonly Standing[]> {
    const several = {
      verb: 'renew',
      call: (some: readonly Place[]) => this.#renew(some),
      lockedKeys: this.#lockedKeys,
      refused,
    } as const
    return this.#rechecks.during(aroundLockedRows(places, several))
  }

  leave(places: readonly EntryName[]): Promise<readonly boolean[]> {
    for (const { id } of places) this.#rechecks.forget(id)
    const [first] = places
    const several = {
      verb: 'leave',
      call: (some: readonly EntryName[]) => this.#leave(some),
      lockedKeys: this.#lockedKeys,
      refused: undefined,
    } as const
    const leaving =
      first !== undefined && places.length === 1 ? this.#leaveOne(first) : aroundLockedRows(places, several)
    return leaving.then((left) => {
      for (const [index, place] of places.entries()) if (left[index] === 'unsynced') this.#unsynced.add(place)
      this.#left(places)
      this.#rechecks.notThere(places.filter((_, index) => left[index] === 'absent'))
      return left.map((result) => result !== 'absent')
    })
  }

  #left(places: readonly EntryName[]): void {
    for (const { key, id } of places) {
      this.#rechecks.forget(id)
      this.#cleanup.left(key, 'free')
    }
    this.#cleanup.work()
  }

  async evict(key: string, token: bigint, how: 'expire' | 'now'): Promise<boolean> {
    const values = [key, String(token), how === 'now' ? 't' : 'f', this.#listensAs, String(ROW_WAIT_MS)]
    return (await this.#call('evict', values)) === '1'
  }

  async inspect(key: string): Promise<Line> {
    return lineOf(key, await this.#call('inspect', [key, this.#listensAs]))
  }

  async *list(prefix: string): AsyncGenerator<LineSummary> {
    for (let [from, after] = [prefix, 'f']; ; after = 't') {
      const lines = summariesOf(await this.#call('list', [from, after, String(PAGE), this.#listensAs]))
      for (const line of lines) {
        if (!line.key.startsWith(prefix)) return
        if (line.held + line.waiting > 0) yield line
      }
      const last = lines.at(-1)
      if (last === undefined || lines.length < PAGE) return
      from = last.key
    }
  }

  async subscribe(listener: (news: News) => void): Promise<AsyncDisposable> {
    this.#listener = listener
    if (this.#listen !== undefined) await this.#open(this.#listen)
    return {
      [Symbol.asyncDispose]: async () => {
        if (this.#listener === listener) await this.#unsubscribe()
      },
    }
  }

  /** What could break the promises of locks on this server. */
  diagnose(): Promise<readonly Finding[]> {
    const channel = `holdfast_doctor_${this.#engineId}`
    return diagnose({ wire: this.#wire, listen: this.#listen, clock: this.#clock, channel })
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#cleanup.finish()
    await this.#records.finish()
    await this.#unsubscribe()
    await this.#wire.close()
  }

  async #open(listen: NonNullable<PostgresWire['listen']>): Promise<void> {
    const news = new NewsChannel(this.#clock, {
      message: (text) => this.#read(text),
      gap: () => this.#hear({ gap: true }),
    })
    const before = this.#news
    this.#news = news
    // Also while the channel cannot hear: entries that enter now get their news once it hears again.
    this.#listensAs = this.#engineId
    await before?.[Symbol.asyncDispose]()
    try {
      await news.openOrLater(listen, `holdfast_${this.#engineId}`, isLasting)
    } catch (error) {
      if (this.#news === news) await this.#forgetNews()
      throw asEngineError('subscribe', error)
    }
  }

  async #unsubscribe(): Promise<void> {
    this.#listener = undefined
    this.#rechecks.stop()
    await this.#forgetNews()
  }

  async #forgetNews(): Promise<void> {
    const news = this.#news
    this.#news = undefined
    this.#listensAs = ''
    await news?.[Symbol.asyncDispose]()
  }

  // ---- calling ----

  #enterOne(claim: Claim, claims: readonly Claim[]): Promise<readonly Standing[]> {
    const values = enterOneArguments(claim, this.#listensAs, rowWaitMs(claims, 4))
    return this.#call('enter_one', values, claim.ttlMs).then((text) => this.#standings('enter', text, claims))
  }

  async #enter(claims: readonly Claim[]): Promise<readonly Standing[]> {
    const values = enterArguments(claims, this.#listensAs, rowWaitMs(claims, 4))
    return this.#standings('enter', await this.#call('enter', values, usefulMs(claims)), claims)
  }

  async #renew(places: readonly Place[]): Promise<readonly Standing[]> {
    const sentAt = this.#clock.now()
    const text = await this.#call(
      'renew',
      renewArguments(places, this.#listensAs, rowWaitMs(places, 12)),
      usefulMs(places),
    )
    const standings = this.#standings('renew', text, places)
    if (standings.some(({ state }) => state === 'waiting')) this.#news?.expect(sentAt)
    return standings
  }

  #leave(places: readonly EntryName[]): Promise<readonly LeaveAnswer[]> {
    const values = leaveArguments(places, this.#listensAs, ROW_WAIT_MS)
    return this.#call('leave', values).then((text) => leaveAnswersOf('leave', text, places.length))
  }

  #leaveOne({ key, id }: EntryName): Promise<readonly LeaveAnswer[]> {
    return this.#call('leave_one', [key, id, this.#listensAs, String(ROW_WAIT_MS)]).then((text) =>
      leaveAnswersOf('leave', text, 1),
    )
  }

  #standings(call: EngineCall, text: string, items: readonly Place[]): readonly Standing[] {
    const standings = standingsOf(call, text, items, (recheck) => this.#rechecks.schedule(recheck))
    for (const [index, { id }] of items.entries()) if (standings[index]?.state !== 'waiting') this.#rechecks.forget(id)
    return standings
  }

  /** What it answers; the news that come with it are heard. */
  #call(name: PostgresFunction, values: readonly string[], limitMs?: number, verb?: EngineCall): Promise<string> {
    return this.#caller.call(name, values, limitMs, verb).then(this.#answered, async (error: EngineError) => {
      // Nothing was sent.
      if (!isCrowded(error) || (await this.#news?.makeRoom()) !== true) return this.#failed(error)
      return await this.#caller.call(name, values, limitMs, verb).then(this.#answered, this.#failed)
    })
  }

  readonly #answered = ({ text, news }: PostgresReply): string => {
    if (this.#troubled) this.#afterTrouble()
    // Later, as from a server: never from inside the call of another waiter.
    for (const one of news) queueMicrotask(() => this.#hear(one))
    return text
  }

  readonly #failed = (error: EngineError): never => {
    this.#troubled ||= error.outcome === 'unknown'
    throw error
  }

  /** The server is there again, and may have crashed. */
  #afterTrouble(): void {
    this.#troubled = false
    const places = this.#unsynced.take()
    if (places.length === 0) return
    this.#leave(places).catch(() => {
      for (const place of places) this.#unsynced.add(place)
    })
  }

  #read(message: string): void {
    const news = newsOf(message)
    if (news !== undefined) this.#hear(news)
  }

  #hear(news: News): void {
    if ('id' in news) this.#rechecks.forget(news.id)
    else if (this.#news !== undefined) this.#afterTrouble()
    this.#listener?.(news)
  }

  async #clear(keys: readonly string[], sweep: boolean): Promise<void> {
    if (keys.length > 0) await this.#call('tidy', [texts(keys)], FINISH_MS)
    if (sweep) await this.#call('sweep', [this.#listensAs], FINISH_MS)
  }

  readonly #lockedKeys = async (items: readonly EntryName[], verb: EngineCall): Promise<ReadonlySet<string>> =>
    new Set(keysOf(verb, await this.#call('locked_keys', [texts(items.map(({ key }) => key))], undefined, verb)))
}

function refused(error: EngineError): Standing {
  return { state: 'failed', error }
}
