/**
 * The engine: the verbs of the contract, each one call for a whole batch.
 *
 * What a line is, and every decision about it, is in sql/. Here batches are packed, answers unpacked, waiters kept an
 * eye on, and empty rows cleared away.
 */

import type { MysqlWire } from '../../clients/mysql/wire.ts'
import { type Clock, systemChance } from '../../core/clock.ts'
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
import { type EngineCall, failingAs, withOutcome } from '../../core/failed-call.ts'
import type { Store } from '../../core/store.ts'
import { fallbackAfter } from '../../core/time-limit.ts'
import { RecheckTimer } from '../shared/recheck-timer.ts'
import { type LeftAs, RowCleanup } from '../shared/row-cleanup.ts'
import {
  areAlike,
  endOf,
  hex,
  keysArgument,
  keysOf,
  LEFT_EMPTY,
  LINE_BOUND,
  leaveAnswersOf,
  lineOf,
  standingsOf,
  summariesOf,
  unhex,
} from './codec.ts'
import { diagnose } from './diagnose.ts'
import { asEngineError, ENGINE } from './errors.ts'
import { MysqlListener } from './listen.ts'
import type { MysqlNames } from './names.ts'
import { type CallWay, callParts, splitBatch } from './plain-statements.ts'
import { MysqlCaller, type MysqlCallOptions, ProcedureCalls } from './procedure-calls.ts'
import { MysqlStore } from './store.ts'

/**
 * A key that this process left this long ago is not about to be used again. Of such lines, the server removes those
 * that are free: see sql/tidy.sql.
 */
const COLD_MS = 3000

const traits: Traits = {
  order: 'fifo',
  fencing: true,
  sharing: 'full',
  ttl: 'entry',
  // A commit that waits for a disk takes milliseconds; a shorter ttl would be over before its renewal is written.
  minTtlMs: 50,
  lossBeforeNext: true,
  lineBound: LINE_BOUND,
  batchLimit: 250,
  splitFrom: 32,
  takesSignal: ['enter', 'renew'],
  tokensSurvive:
    'release, expiry, kill, crash and restart, whatever the clock does; after a fail-over, a restored backup or ' +
    "dropped tables they go on from the server's clock, which must not be behind",
  survives:
    'the death of any client, and with innodb_flush_log_at_trx_commit = 1, the default, a crash of the server; a ' +
    'fail-over loses locks if the promoted replica has not got the last commits',
}

export interface MysqlEngineSetup {
  readonly wire: MysqlWire
  /** Whether to have a connection that listens. */
  readonly listens: boolean
  readonly names: MysqlNames
  readonly clock: Clock
  /** What the tables call this engine object. */
  readonly engineId: string
}

/** How many lines of a listing are read at once. */
const PAGE = 500
/** How many lines are looked at when rows of dead processes are looked for. */
const SWEEP = 5000
/** How long each step of closing the engine may take. */
const FINISH_MS = 1000

/** An engine on MariaDB or MySQL. */
export class MysqlEngine implements Engine {
  readonly name: string = ENGINE
  readonly traits: Traits = traits
  readonly store: Store
  readonly #records: MysqlStore
  readonly #wire: MysqlWire
  readonly #clock: Clock
  readonly #names: MysqlNames
  readonly #listens: boolean
  readonly #engineId: string
  /** The same as an argument of a procedure. */
  readonly #engineIdArgument: string
  readonly #caller: MysqlCaller
  readonly #calls: ProcedureCalls
  readonly #rechecks: RecheckTimer
  readonly #cleanup: RowCleanup
  /**
   * Entries of this engine that have waited: their lines are crowds, for as long as they are there. And whether they
   * still wait, as far as this process has heard.
   */
  readonly #crowded = new Map<string, 'waiting' | 'held'>()
  #news: MysqlListener | undefined
  #listener: ((news: News) => void) | undefined
  /** How often the core has subscribed. */
  #subscriptions = 0
  /** Where the last sweep ended. */
  #sweptTo = ''

  /** @internal */
  constructor({ wire, listens, names, clock, engineId }: MysqlEngineSetup) {
    this.#wire = wire
    this.#listens = listens
    this.#clock = clock
    this.#names = names
    this.#engineId = engineId
    this.#engineIdArgument = `x'${engineId}'`
    this.#caller = new MysqlCaller(wire, clock, names, () => this.#news?.makeRoom())
    this.#calls = new ProcedureCalls(this.#caller, engineId, (news) => this.#hear(news))
    this.#rechecks = new RecheckTimer(
      clock,
      () => this.#news?.deaf !== false,
      (key, id) => this.#listener?.({ key, id }),
    )
    this.#cleanup = new RowCleanup(clock, COLD_MS, (keys, sweep) => this.#clear(keys, sweep))
    this.#records = new MysqlStore(this.#caller, names, clock)
    this.store = this.#records
  }

  async enter(claims: readonly Claim[], signal?: AbortSignal): Promise<readonly Standing[]> {
    const [first] = claims
    const parts = splitBatch(claims, (claim) =>
      areAlike(claim, first as Claim) ? wayIn(this.#cleanup.leftAs(claim.key)) : 'call',
    )
    this.#cleanup.entered(claims)
    const asked = callParts(parts, ({ items, way }) => this.#calls.enter(items, way, { signal }))
    const standings = await this.#rechecks.during(asked.then((codes) => this.#standings('enter', claims, codes)))
    for (const [index, { id }] of claims.entries())
      if (standings[index]?.state === 'waiting' && this.#rechecks.has(id)) this.#crowded.set(id, 'waiting')
    return standings
  }

  async renew(places: readonly Place[], signal?: AbortSignal): Promise<readonly Standing[]> {
    const [first] = places
    const way = places.length === 1 && !this.#crowded.has((first as Place).id) ? 'alone' : 'call'
    const asked = this.#calls.renew(places, way, { signal })
    return await this.#rechecks.during(asked.then((codes) => this.#standings('renew', places, codes)))
  }

  async leave(places: readonly EntryName[]): Promise<readonly boolean[]> {
    const parts = splitBatch(places, ({ id }) => (this.#crowded.has(id) ? 'call' : 'alone'))
    for (const { id } of places) {
      this.#rechecks.forget(id)
      this.#crowded.delete(id)
    }
    const codes = await callParts(parts, ({ items, way }) => this.#calls.leave(items, way))
    for (const [index, place] of places.entries())
      this.#cleanup.left(place.key, codes[index] === LEFT_EMPTY ? 'free' : 'crowd')
    this.#cleanup.work()
    try {
      const left = leaveAnswersOf(codes, places)
      this.#rechecks.notThere(places.filter((_, index) => left[index] === false))
      return left
    } catch (error) {
      // One line is locked, and the contract has no answer for one item alone: the others have left all the same.
      throw places.length > 1 ? withOutcome(asEngineError('leave', error), 'unknown') : error
    }
  }

  async evict(key: string, token: bigint, how: 'expire' | 'now'): Promise<boolean> {
    return (
      (
        await this.#calls.call('evict', [
          `x'${hex(key)}'`,
          String(token),
          String(how === 'now'),
          this.#engineIdArgument,
        ])
      ).text === '1'
    )
  }

  async inspect(key: string): Promise<Line> {
    const { sets, text } = await this.#calls.call('inspect', [`x'${hex(key)}'`, this.#engineIdArgument])
    if (text === 'free') this.#cleanup.left(key, 'free')
    return lineOf(key, sets[0] ?? [])
  }

  async *list(prefix: string): AsyncGenerator<LineSummary> {
    for (let [from, after] = [hex(prefix), 'FALSE']; ; after = 'TRUE') {
      const { sets, text } = await this.#calls.call('list', [
        `x'${from}'`,
        after,
        endOf(prefix),
        String(PAGE),
        this.#engineIdArgument,
      ])
      yield* summariesOf(sets[0] ?? [])
      if (text === '') return
      from = text
    }
  }

  async subscribe(listener: (news: News) => void): Promise<AsyncDisposable> {
    this.#subscriptions += 1
    const turn = this.#subscriptions
    // Two connections would take the name from each other again and again.
    this.#news?.close()
    this.#news = undefined
    const connection = await this.#listen()
    // The core found this too slow, and has subscribed again.
    if (turn !== this.#subscriptions) {
      connection?.close()
      return { [Symbol.asyncDispose]: async () => undefined }
    }
    this.#listener = listener
    this.#news = connection
    return {
      [Symbol.asyncDispose]: async () => {
        if (this.#listener === listener) await this.#unsubscribe()
      },
    }
  }

  /** What this server is, and what locks on it are worth. */
  async diagnose(): Promise<readonly Finding[]> {
    return await diagnose({
      wire: this.#wire,
      listens: this.#listens,
      names: this.#names,
      clock: this.#clock,
      engineId: systemChance.id(),
    })
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all([this.#cleanup.finish(), this.#records.finish(), this.#unsubscribe()])
    // A connection that is just being made to a server that stands still is waited for by the client, for seconds.
    await fallbackAfter(this.#clock, FINISH_MS, this.#wire.close(), undefined)
  }

  async #listen(): Promise<MysqlListener | undefined> {
    const { connect } = this.#wire
    if (!this.#listens || connect === undefined) return undefined
    const listener = new MysqlListener({
      connect,
      clock: this.#clock,
      names: this.#names,
      engineId: this.#engineId,
      make: () => this.#caller.make('subscribe'),
      wake: () => this.#caller.call('wake_engines', [`'${this.#engineId}'`]),
      news: (news) => this.#hear(news),
    })
    await failingAs(asEngineError, 'subscribe', listener.open(), { outcome: 'not-applied' })
    return listener
  }

  async #unsubscribe(): Promise<void> {
    this.#subscriptions += 1
    this.#listener = undefined
    this.#rechecks.stop()
    const connection = this.#news
    this.#news = undefined
    if (connection === undefined || !connection.close()) return
    // In its sleep the server looks only every few seconds whether the connection has ended, and until then has one
    // connection less.
    await this.#caller.call('wake_engines', [`'${this.#engineId}'`], { limitMs: FINISH_MS }).catch(() => undefined)
  }

  // ---- calling ----

  #standings(call: EngineCall, items: readonly Place[], codes: readonly string[]): readonly Standing[] {
    const standings = standingsOf(call, codes, items, (recheck) => this.#rechecks.schedule(recheck))
    for (const [index, standing] of standings.entries()) this.#note((items[index] as Place).id, standing)
    return standings
  }

  #hear(news: News): void {
    if ('id' in news && news.standing !== undefined) {
      if (this.#crowded.has(news.id)) this.#crowded.set(news.id, 'held')
      this.#note(news.id, news.standing)
    }
    this.#listener?.(news)
  }

  #note(id: string, standing: Standing): void {
    switch (standing.state) {
      case 'waiting':
      // It may wait as before: nothing is known of it.
      case 'failed':
        return
      case 'busy':
      case 'gone':
        this.#rechecks.forget(id)
        this.#crowded.delete(id)
        return
      case 'held':
        this.#rechecks.forget(id)
        this.#noteHold(id)
        return
      default:
        standing satisfies never
    }
  }

  /** If no news had said so, another process may have tried in vain to wake us. */
  #noteHold(id: string): void {
    const before = this.#crowded.get(id)
    if (before !== undefined) this.#crowded.set(id, 'held')
    if (before === 'waiting') this.#news?.check()
  }

  // ---- clearing away ----

  async #clear(keys: readonly string[], sweep: boolean): Promise<void> {
    const limited = { limitMs: FINISH_MS }
    for (let at = 0; at < keys.length; at += PAGE)
      await this.#calls.call('tidy', [keysArgument(keys.slice(at, at + PAGE)), this.#engineIdArgument], limited)
    if (sweep) await this.#sweep(limited)
  }

  /** Some of the lines that dead processes have left behind, each time the next ones. */
  async #sweep(limited: MysqlCallOptions): Promise<void> {
    const [rows = [], [[last = null] = []] = []] = await this.#caller.call(
      'due_lines',
      [`x'${hex(this.#sweptTo)}'`, String(SWEEP)],
      limited,
    )
    this.#sweptTo = last === null ? '' : unhex(last)
    await this.#clear(keysOf(rows), false)
  }
}

/** A line that this process has left free has a row; one that it does not remember is likely to have none. */
function wayIn(left: LeftAs | undefined): CallWay {
  if (left === undefined) return 'make'
  return left === 'free' ? 'take' : 'call'
}
