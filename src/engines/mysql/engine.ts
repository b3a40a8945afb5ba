/**
 * The engine: the verbs of the contract, each one call of a procedure for a whole batch.
 *
 * What a line is, and every decision about it, is in sql/. Here batches are packed, answers unpacked, waiters kept an
 * eye on, and empty rows cleared away.
 */

import { doubtful, ENGINE, fault } from '../../clients/mysql/errors.ts'
import type { MysqlWire } from '../../clients/mysql/wire.ts'
import { type Clock, systemChance } from '../../core/clock.ts'
import type { Claim, Engine, Line, LineSummary, News, Place, Standing, Traits } from '../../core/engine.ts'
import { fallbackAfter } from '../../core/time-limit.ts'
import { RecheckTimer } from '../shared/recheck-timer.ts'
import { type Memory, RowCleanup } from '../shared/row-cleanup.ts'
import { Asking } from './asking.ts'
import { Caller, type CallOptions } from './caller.ts'
import { type Diagnosis, diagnose } from './diagnose.ts'
import { Ear } from './ear.ts'
import type { Names } from './names.ts'
import { parted, together, type Way } from './parts.ts'
import { ALONE, departureOf, keysOf, LINE_BOUND, lineOf, pageOf, standingOf, unhex } from './replies.ts'
import { areAlike, hex, packKeys } from './requests.ts'

/** A key that this process left this long ago is not about to be used again; the server removes whatever is free (see sql/tidy.sql). */
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
  takesSignal: true,
  tokensSurvive:
    'release, expiry, kill, crash and restart, whatever the clock does; after a fail-over, a restored backup or dropped tables they go on from the ' +
    "server's clock, which must not be behind",
  survives:
    'the death of any client, and with innodb_flush_log_at_trx_commit = 1, the default, a crash of the server; a fail-over loses locks if the promoted replica has not got the ' +
    'last commits',
}

export interface EngineSetup {
  readonly wire: MysqlWire
  /** Whether to have a connection that listens. */
  readonly listens: boolean
  readonly names: Names
  readonly clock: Clock
  /** Our name in the tables. */
  readonly client: string
}

type Item = Pick<Place, 'key' | 'id'>

/** How many lines of a listing are read at once. */
const PAGE = 500
/** How many lines are looked at when the dead are looked after. */
const SWEEP = 5000
/** How long each part of the end may take. */
const FINISH_MS = 1000

/** An engine on MariaDB or MySQL. */
export interface MysqlEngine extends Engine {
  /** What this server is, and what it promises. `wallMs` is the wall clock of this host. */
  diagnose(wallMs: () => number): Promise<Diagnosis>
}

export class MysqlLines implements MysqlEngine {
  readonly name: string = ENGINE
  readonly traits: Traits = traits
  readonly #wire: MysqlWire
  readonly #clock: Clock
  readonly #names: Names
  readonly #listens: boolean
  /** As an argument. */
  readonly #me: string
  readonly #client: string
  readonly #caller: Caller
  readonly #asking: Asking
  readonly #rechecks: RecheckTimer
  readonly #cleanup: RowCleanup
  /**
   * Entries of ours that have waited: their lines are crowds, for as long as they are there. And whether they still do,
   * as far as we have heard.
   */
  readonly #crowded = new Map<string, 'waiting' | 'held'>()
  #ear: Ear | undefined
  #listener: ((news: News) => void) | undefined
  /** How often somebody has subscribed. */
  #subscriptions = 0
  /** Where the last sweep ended. */
  #sweptTo = ''

  constructor({ wire, listens, names, clock, client }: EngineSetup) {
    this.#wire = wire
    this.#listens = listens
    this.#clock = clock
    this.#names = names
    this.#client = client
    this.#me = `x'${client}'`
    this.#caller = new Caller(wire, clock, names, () => this.#ear?.makeRoom())
    this.#asking = new Asking(this.#caller, client, (news) => this.#hear(news))
    this.#rechecks = new RecheckTimer(
      clock,
      () => this.#ear?.deaf !== false,
      (key, id) => this.#listener?.({ key, id }),
    )
    this.#cleanup = new RowCleanup(clock, COLD_MS, (keys, sweep) => this.#clear(keys, sweep))
  }

  async enter(claims: readonly Claim[], signal?: AbortSignal): Promise<readonly Standing[]> {
    const [first] = claims
    const parts = parted(claims, (claim) =>
      areAlike(claim, first as Claim) ? wayIn(this.#cleanup.memoryOf(claim.key)) : 'call',
    )
    this.#cleanup.entered(claims)
    return this.#standings(
      claims,
      await together(parts, ({ items, way }) => this.#asking.enter(items, way, { signal })),
    )
  }

  async renew(places: readonly Place[], signal?: AbortSignal): Promise<readonly Standing[]> {
    const [first] = places
    const way = places.length === 1 && !this.#crowded.has((first as Place).id) ? 'alone' : 'call'
    return this.#standings(places, await this.#asking.renew(places, way, { signal }))
  }

  async leave(places: readonly Item[]): Promise<readonly boolean[]> {
    const parts = parted(places, ({ id }) => (this.#crowded.has(id) ? 'call' : 'alone'))
    for (const { id } of places) {
      this.#rechecks.forget(id)
      this.#crowded.delete(id)
    }
    const codes = await together(parts, ({ items, way }) => this.#asking.leave(items, way))
    for (const [index, place] of places.entries())
      this.#cleanup.left(place.key, codes[index] === ALONE ? 'free' : 'crowd')
    this.#cleanup.work()
    try {
      return places.map((place, index) => departureOf(codes[index] as string, place))
    } catch (error) {
      // One line is locked, and there is no answer for one alone: the others have left all the same.
      throw places.length > 1 ? doubtful(error) : error
    }
  }

  async evict(key: string, token: bigint, how: 'expire' | 'now'): Promise<boolean> {
    return (
      (await this.#asking.call('evict', [`x'${hex(key)}'`, String(token), String(how === 'now'), this.#me])).text ===
      '1'
    )
  }

  async inspect(key: string): Promise<Line> {
    const { sets, text } = await this.#asking.call('inspect', [`x'${hex(key)}'`, this.#me])
    if (text === 'free') this.#cleanup.left(key, 'free')
    return lineOf(key, sets[0] ?? [])
  }

  async *list(prefix: string): AsyncGenerator<LineSummary> {
    for (let [from, after] = [hex(prefix), 'FALSE']; ; after = 'TRUE') {
      const { sets, text } = await this.#asking.call('list', [
        `x'${from}'`,
        after,
        endOf(prefix),
        String(PAGE),
        this.#me,
      ])
      yield* pageOf(sets[0] ?? [])
      if (text === '') return
      from = text
    }
  }

  async subscribe(listener: (news: News) => void): Promise<AsyncDisposable> {
    this.#subscriptions += 1
    const turn = this.#subscriptions
    // Two would take the name from each other again and again.
    this.#ear?.close()
    this.#ear = undefined
    const ear = await this.#listen()
    // Somebody who found this too slow has subscribed again.
    if (turn !== this.#subscriptions) {
      ear?.close()
      return { [Symbol.asyncDispose]: async () => undefined }
    }
    this.#listener = listener
    this.#ear = ear
    return {
      [Symbol.asyncDispose]: async () => {
        if (this.#listener === listener) await this.#unsubscribe()
      },
    }
  }

  async diagnose(wallMs: () => number): Promise<Diagnosis> {
    const client = systemChance.id()
    return await diagnose({
      wire: this.#wire,
      listens: this.#listens,
      names: this.#names,
      clock: this.#clock,
      client,
      wallMs,
    })
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all([this.#cleanup.finish(), this.#unsubscribe()])
    // A connection that is just being made to a server that stands still is waited for by the client, for seconds.
    await fallbackAfter(this.#clock, FINISH_MS, this.#wire.close(), undefined)
  }

  async #listen(): Promise<Ear | undefined> {
    const { connect } = this.#wire
    if (!this.#listens || connect === undefined) return undefined
    const ear = new Ear({
      connect,
      clock: this.#clock,
      names: this.#names,
      client: this.#client,
      make: () => this.#caller.make(),
      wake: () => this.#caller.call('wake', [`'${this.#client}'`]),
      news: (news) => this.#hear(news),
    })
    try {
      await ear.open()
      return ear
    } catch (error) {
      throw fault(error, 'not-applied')
    }
  }

  async #unsubscribe(): Promise<void> {
    this.#subscriptions += 1
    this.#listener = undefined
    this.#rechecks.stop()
    const ear = this.#ear
    this.#ear = undefined
    if (ear === undefined || !ear.close()) return
    // In its sleep the server looks only every few seconds whether anybody is there, and until then has one connection
    // less.
    await this.#caller.call('wake', [`'${this.#client}'`], { limitMs: FINISH_MS }).catch(() => undefined)
  }

  // ---- calling ----

  #standings(items: readonly Place[], codes: readonly string[]): readonly Standing[] {
    return items.map((item, index) => {
      const standing = standingOf(codes[index] as string, item, (recheck) => this.#rechecks.schedule(recheck))
      if (standing.state === 'waiting') this.#crowded.set(item.id, 'waiting')
      else this.#forget(item.id, standing)
      return standing
    })
  }

  #hear(news: News): void {
    if ('id' in news && this.#crowded.has(news.id)) {
      this.#crowded.set(news.id, 'held')
      this.#forget(news.id, news.standing)
    }
    this.#listener?.(news)
  }

  /** It does not wait, or not any more. Nobody had told us so: then somebody may have tried to. */
  #forget(id: string, standing: Standing | undefined): void {
    this.#rechecks.forget(id)
    const before = this.#crowded.get(id)
    if (before === undefined) return
    if (standing?.state === 'gone') this.#crowded.delete(id)
    else this.#crowded.set(id, 'held')
    if (before === 'waiting' && standing?.state === 'held') this.#ear?.check()
  }

  // ---- clearing away ----

  async #clear(keys: readonly string[], sweep: boolean): Promise<void> {
    const limited = { limitMs: FINISH_MS }
    for (let at = 0; at < keys.length; at += PAGE)
      await this.#asking.call('tidy', [packKeys(keys.slice(at, at + PAGE)), this.#me], limited)
    if (sweep) await this.#sweep(limited)
  }

  /** Some of the lines that processes have left behind which died, each time the next ones. */
  async #sweep(limited: CallOptions): Promise<void> {
    const [rows = [], [[last = null] = []] = []] = await this.#caller.call(
      'due',
      [`x'${hex(this.#sweptTo)}'`, String(SWEEP)],
      limited,
    )
    this.#sweptTo = last === null ? '' : unhex(last)
    await this.#clear(keysOf(rows), false)
  }
}

/** A line that we have left free has a row; one that we do not remember is likely to have none. */
function wayIn(memory: Memory | undefined): Way {
  if (memory === undefined) return 'make'
  return memory === 'free' ? 'take' : 'call'
}

/** Before which all keys with this prefix are, as an argument. */
function endOf(prefix: string): string {
  const bytes = Buffer.from(prefix)
  const last = bytes.length - 1
  // Well-formed text has no byte 0xff that could not be raised.
  if (last < 0) return 'NULL'
  bytes[last] = (bytes[last] as number) + 1
  return `x'${bytes.toString('hex')}'`
}
