/**
 * The engine: verbs on the entries of this process and on its session. They take turns, since entries and session have
 * to agree: one statement for an enter or a leave, however many keys.
 *
 * A waiter tries when it hears that a holder released, and now and then besides: a process that dies, and a client that
 * uses advisory locks without Holdfast, announce nothing.
 */
import type { Chance, Clock, Timer } from '../../core/clock.ts'
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
import { UNLIMITED } from '../../core/engine.ts'
import { EngineError, LineFullError } from '../../core/errors.ts'
import { type EngineCall, failingAs } from '../../core/failed-call.ts'
import type { Store } from '../../core/store.ts'
import { fallbackAfter } from '../../core/time-limit.ts'
import { attemptAnswersOf, LINE_BOUND, lineEntryOf, summaryOf, toldKeysOf } from './codec.ts'
import { diagnose } from './diagnose.ts'
import { asEngineError, closedError, ENGINE, noSession } from './errors.ts'
import { AdvisoryOwnEntries, type AdvisoryOwnEntry, type AdvisoryOwnKey, givenUpAt } from './own-entries.ts'
import {
  type AdvisorySession,
  type AdvisorySessionEvents,
  CLOSE_LIMIT_MS,
  SESSION_TTL_MS,
  type SessionClient,
} from './session.ts'
import { ATTEMPT, EVICT, EVICTION, FREED, INSPECT, LIST, OWN_EVICTED, RELEASE } from './sql.ts'
import { PostgresAdvisoryStore } from './store.ts'

const traits: Traits = {
  order: 'none',
  fencing: true,
  sharing: 'read-write',
  ttl: 'session',
  minTtlMs: 1_000,
  maxTtlMs: SESSION_TTL_MS,
  lossBeforeNext: false,
  lineBound: LINE_BOUND,
  batchLimit: 500,
  takesSignal: ['enter', 'renew'],
  tokensSurvive:
    'crashes, whatever the clock does, and a fail-over: they come from a sequence, which jumps ahead where the last of ' +
    "them may be lost; after a second fail-over they go on from the server's clock, which must not be behind; not the " +
    'restore of a dump',
  survives:
    'the death of processes; not that of the server, or of a session: an administrator or a crash frees its locks ' +
    'before the holder knows',
}

const POLL_MS = 500
const NEVER = Number.POSITIVE_INFINITY

export type OpenAdvisorySession = (events: AdvisorySessionEvents) => Promise<AdvisorySession>

/** The engine on session locks of a PostgreSQL. Made by `postgresAdvisory()`. */
export class PostgresAdvisoryEngine implements Engine {
  readonly name: string = ENGINE
  readonly traits: Traits = traits
  readonly store: Store
  readonly #records: PostgresAdvisoryStore
  readonly #open: OpenAdvisorySession
  readonly #clock: Clock
  readonly #chance: Chance
  readonly #entries = new AdvisoryOwnEntries()
  /** Ids of entries that were evicted, and until when to remember them. */
  readonly #evicted = new Map<string, number>()
  #session: AdvisorySession | undefined
  #listener: ((news: News) => void) | undefined
  #turn: Promise<unknown> = Promise.resolve()
  #poll: Timer | undefined
  #sweep: Timer | undefined
  /** When it fires. */
  #sweptAt = NEVER
  #closed = false

  /** @internal */
  constructor(open: OpenAdvisorySession, clock: Clock, chance: Chance, connect: () => Promise<SessionClient>) {
    this.#records = new PostgresAdvisoryStore(connect, clock)
    this.store = this.#records
    this.#open = open
    this.#clock = clock
    this.#chance = chance
  }

  async enter(claims: readonly Claim[], signal?: AbortSignal): Promise<readonly Standing[]> {
    this.#entries.asked(claims, this.#clock.now())
    return await this.#inTurn('enter', signal, async (session) => {
      const refused = new Map<string, Standing>()
      const added: Claim[] = []
      for (const claim of claims) {
        const known = this.#entries.find(claim.key, claim.id)
        const refusal = known === undefined ? this.#refusal(claim) : undefined
        if (refusal !== undefined) refused.set(claim.id, refusal)
        else if (known === undefined) added.push(this.#entries.add(claim, this.#clock.now()))
      }
      this.#sweepAt(givenUpAt(added, this.#clock.now()))
      try {
        const granted = [...(await this.#attempt(session, this.#keysOf(added)))]
        // Where all entries were known, nothing was asked of the server; and what is known of them is true only as long
        // as the session lives.
        if (added.length === 0) await session.ask('SELECT 1')
        for (const claim of added)
          if (!claim.wait && !this.#entries.holds(claim)) refused.set(claim.id, { state: 'busy', ahead: null })
        const tries = added.filter(({ id }) => refused.has(id))
        for (const claim of tries) this.#entries.remove(claim)
        // Entries that came behind a refused try have not been asked for yet.
        granted.push(...(await this.#attempt(session, this.#keysOf(tries))))
        this.#tellOthers(granted, claims)
      } catch (error) {
        // The session is gone, and with it what was granted. The core asks again for entries that still want in.
        for (const claim of added) this.#entries.remove(claim)
        throw error
      }
      return claims.map((claim) => refused.get(claim.id) ?? this.#standing(claim))
    })
  }

  async renew(places: readonly Place[], signal?: AbortSignal): Promise<readonly Standing[]> {
    // What ended with its session has ended for certain: its holder is told, whether or not there is another session.
    if (places.every(({ key, id }) => this.#entries.find(key, id) === undefined))
      return places.map((place) => this.#standing(place))
    // Also if there is no session to renew them in: their turn in this process is kept.
    this.#entries.asked(places, this.#clock.now())
    return await this.#inTurn('renew', signal, async (session) => {
      await this.#evictOurs(session)
      this.#tellOthers(await this.#attempt(session, this.#keysOf(places)), places)
      return places.map((place) => this.#standing(place))
    })
  }

  async leave(places: readonly EntryName[]): Promise<readonly boolean[]> {
    return await this.#leave(() => places)
  }

  /** Those that are to leave when it is their turn. */
  async #leave(which: () => readonly EntryName[]): Promise<readonly boolean[]> {
    const leaving = this.#turn.then(async () => {
      const places = which()
      // Without a session the server has nothing of ours.
      if (this.#session !== undefined) return await this.#remove(this.#session, places)
      return places.map((place) => this.#entries.remove(place))
    })
    this.#turn = leaving.catch(() => undefined)
    return await failingAs(asEngineError, 'leave', leaving)
  }

  async evict(key: string, token: bigint): Promise<boolean> {
    return await this.#inTurn(
      'evict',
      undefined,
      async (session) => (await session.ask(EVICT, [key, String(token)])).length > 0,
    )
  }

  async inspect(key: string): Promise<Line> {
    const rows = await this.#inTurn('inspect', undefined, (session) => session.ask(INSPECT, [key]))
    return { key, entries: rows.map(lineEntryOf) }
  }

  async *list(prefix: string): AsyncIterable<LineSummary> {
    const rows = await this.#inTurn('list', undefined, (session) => session.ask(LIST, [prefix]))
    yield* rows.map(summaryOf)
  }

  async subscribe(listener: (news: News) => void): Promise<AsyncDisposable> {
    this.#listener = listener
    return {
      [Symbol.asyncDispose]: async () => {
        if (this.#listener === listener) this.#listener = undefined
      },
    }
  }

  /** What could break the promises of locks on this server. */
  async diagnose(): Promise<readonly Finding[]> {
    return await this.#inTurn('diagnose', undefined, diagnose)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closed = true
    this.#listener = undefined
    this.#poll?.cancel()
    this.#sweep?.cancel()
    await fallbackAfter(this.#clock, CLOSE_LIMIT_MS, this.#records.close(), undefined)
    const rested = this.#turn.then(() => true)
    if (await fallbackAfter(this.#clock, CLOSE_LIMIT_MS, rested, false)) await this.#session?.close()
    // Beside a server that stands still a statement is under way for as long as a session may be silent.
    else this.#session?.end()
  }

  #refusal({ key, weight, limit }: Claim): Standing | undefined {
    if ((this.#entries.at(key)?.entries.size ?? 0) >= LINE_BOUND)
      return { state: 'failed', error: new LineFullError(key, LINE_BOUND) }
    if (weight === 1 && (limit === 1 || limit === UNLIMITED)) return undefined
    const why = `a lock here is exclusive or shared; it has no weight of ${weight} and no limit of ${limit}`
    return { state: 'failed', error: new EngineError(ENGINE, why, { outcome: 'not-applied', transient: false }) }
  }

  #keysOf(places: readonly Pick<Place, 'key'>[]): ReadonlySet<AdvisoryOwnKey> {
    return new Set(places.flatMap(({ key }) => this.#entries.at(key) ?? []))
  }

  /** Ask the server, in one statement, for what entries of these keys may hold. Answers the entries that now hold. */
  async #attempt(session: AdvisorySession, keys: Iterable<AdvisoryOwnKey>): Promise<readonly AdvisoryOwnEntry[]> {
    const attempts = [...keys].flatMap((key) => key.attempt(this.#clock.now()) ?? [])
    const granted: AdvisoryOwnEntry[] = []
    if (attempts.length > 0) {
      const rows = await session.ask(ATTEMPT, [String(session.number), JSON.stringify(attempts)])
      for (const answer of attemptAnswersOf(rows)) {
        const entry = this.#entries.at(answer.key)?.answered(answer)
        if (entry !== undefined) granted.push(entry)
      }
    }
    this.#arm()
    return granted
  }

  async #remove(session: AdvisorySession, places: readonly EntryName[]): Promise<readonly boolean[]> {
    const keys = new Set<AdvisoryOwnKey>()
    const answers = places.map((place) => {
      const key = this.#entries.at(place.key)
      const there = this.#entries.remove(place)
      if (there && key !== undefined) keys.add(key)
      return there
    })
    if (keys.size > 0) await this.#release(session, [...keys], places)
    return answers
  }

  /**
   * Give back to the server what no entry of this process needs any more. Where waiters of other processes are told,
   * this process hears it, too, and all of them try; elsewhere this process tries at once.
   */
  async #release(
    session: AdvisorySession,
    keys: readonly AdvisoryOwnKey[],
    places: readonly Pick<Place, 'id'>[],
  ): Promise<void> {
    const releases = JSON.stringify(keys.map((key) => key.release()))
    const told = toldKeysOf(await session.ask(RELEASE, [String(session.number), places.map(({ id }) => id), releases]))
    const untold = keys.filter(({ key }) => !told.has(key))
    // The leave is done. If the session ends only now, its waiters ask in the next one.
    this.#tell(await this.#attempt(session, untold).catch(() => []))
  }

  /**
   * Unlock what was evicted: only its own session can. Until it would have expired, this process remembers why it is
   * gone.
   */
  async #evictOurs(session: AdvisorySession): Promise<void> {
    const ids = new Set((await session.ask(OWN_EVICTED, [String(session.number)])).map(({ id }) => String(id)))
    if (ids.size === 0) return
    const now = this.#clock.now()
    for (const [id, until] of this.#evicted) if (until < now) this.#evicted.delete(id)
    const entries = this.#entries.all().filter(({ claim }) => ids.has(claim.id))
    for (const { claim, ttlMs } of entries) this.#evicted.set(claim.id, now + ttlMs)
    await this.#remove(
      session,
      entries.map(({ claim }) => claim),
    )
    for (const { claim } of entries) this.#listener?.({ key: claim.key, id: claim.id, standing: this.#standing(claim) })
  }

  #standing({ key, id }: EntryName): Standing {
    const entry = this.#entries.find(key, id)
    if (entry === undefined) return { state: 'gone', why: this.#evicted.has(id) ? 'evicted' : 'unknown' }
    if (entry.token === undefined) return { state: 'waiting', ahead: null }
    // The core asks for no more (`maxTtlMs`); who calls an engine without it may.
    return { state: 'held', token: entry.token, heldForMs: Math.min(entry.ttlMs, SESSION_TTL_MS) }
  }

  /** A call about a key also asks for the entries that stood there before: what they are granted is news. */
  #tellOthers(granted: readonly AdvisoryOwnEntry[], answered: readonly Pick<Place, 'id'>[]): void {
    const ids = new Set(answered.map(({ id }) => id))
    this.#tell(granted.filter(({ claim }) => !ids.has(claim.id)))
  }

  #tell(granted: readonly AdvisoryOwnEntry[]): void {
    for (const { claim } of granted) {
      this.#listener?.({ key: claim.key, id: claim.id, standing: this.#standing(claim) })
    }
  }

  readonly #events: AdvisorySessionEvents = {
    message: (payload: string): void => {
      const freed = payload.startsWith(FREED) ? this.#entries.at(payload.slice(FREED.length)) : undefined
      if (payload === EVICTION) this.#aside((session) => this.#evictOurs(session))
      if (freed?.waits === true) this.#aside(async (session) => this.#tell(await this.#attempt(session, [freed])))
    },
    lost: (session: AdvisorySession): void => {
      if (this.#session !== session) return
      this.#session = undefined
      for (const { claim } of this.#entries.sessionLost()) {
        this.#listener?.({ key: claim.key, id: claim.id, standing: { state: 'gone', why: 'expired' } })
      }
      this.#arm()
    },
  }

  #arm(): void {
    if (this.#closed || this.#poll !== undefined || this.#entries.waitedFor().length === 0) return
    this.#poll = this.#clock.timer(POLL_MS * (0.5 + this.#chance.fraction()), () => {
      this.#poll = undefined
      this.#aside(async (session) => this.#tell(await this.#attempt(session, this.#entries.waitedFor())))
    })
  }

  /**
   * An entry that the core has not asked for in a whole ttl was given up: its lease was lost while this process stood
   * still, and its holder never gives it back. The session lives on, and the server would keep its lock for as long.
   */
  #sweepAt(at: number): void {
    if (this.#closed || at >= this.#sweptAt) return
    this.#sweptAt = at
    this.#sweep?.cancel()
    this.#sweep = this.#clock.timer(at - this.#clock.now(), () => {
      this.#sweptAt = NEVER
      // If it fails, the session has ended, and with it every lock.
      this.#leave(() => this.#entries.givenUp(this.#clock.now()))
        .catch(() => undefined)
        .finally(() => this.#sweepAt(this.#entries.givenUpAt()))
    })
  }

  /** Work that no call asked for. If it fails, the next renewal or poll sees to it. */
  #aside(work: (session: AdvisorySession) => Promise<unknown>): void {
    if (this.#closed) return
    this.#inTurn('renew', undefined, work).catch(() => this.#arm())
  }

  async #inTurn<Result>(
    call: EngineCall,
    signal: AbortSignal | undefined,
    work: (session: AdvisorySession) => Promise<Result>,
  ): Promise<Result> {
    const working = this.#turn.then(async () => {
      if (signal?.aborted === true) throw asEngineError(call, new Error('not sent in time'), { outcome: 'not-applied' })
      return await work(await this.#connected(call))
    })
    this.#turn = working.catch(() => undefined)
    return await failingAs(asEngineError, call, working)
  }

  async #connected(call: EngineCall): Promise<AdvisorySession> {
    if (this.#closed) throw closedError(call)
    if (this.#session !== undefined) return this.#session
    const session = await failingAs(noSession, call, this.#open(this.#events))
    // Closed while the session began.
    if (this.#closed) {
      session.end()
      throw closedError(call)
    }
    // A session tells its end once. If it has ended before it is stored here, this is the only place to see it.
    if (session.over) throw noSession(call, new Error('it has ended as it began'))
    this.#session = session
    return session
  }
}
