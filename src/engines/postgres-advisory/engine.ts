/**
 * The engine: verbs on the book of this process and on its session. They take turns, since book and session have to
 * agree: one statement for an enter or a leave, however many keys.
 *
 * A waiter tries when it hears that somebody released, and now and then besides: a process that dies, and whoever uses
 * advisory locks without Holdfast, announces nothing.
 */
import type { Chance, Clock, Timer } from '../../core/clock.ts'
import type { Claim, Engine, Line, LineSummary, News, Place, Standing, Traits } from '../../core/engine.ts'
import { UNLIMITED } from '../../core/engine.ts'
import { EngineError, LineFullError } from '../../core/errors.ts'
import { Book, type Entry, type KeyBook } from './book.ts'
import { failure, unreachable } from './errors.ts'
import { summaryOf, viewOf } from './looking.ts'
import { ENGINE, SESSION_TTL_MS, type Session, type SessionEvents } from './session.ts'
import { ATTEMPT, EVICT, EVICTED, EVICTION, FREED, INSPECT, LIST, RELEASE } from './sql.ts'

export const traits: Traits = {
  order: 'none',
  fencing: true,
  sharing: 'read-write',
  ttl: 'session',
  minTtlMs: 1_000,
  lossBeforeNext: false,
  lineBound: 10_000,
  batchLimit: 500,
  takesSignal: true,
  tokensSurvive:
    'everything but the loss of the database: they come from a sequence, which jumps ahead by a million after a crash or a fail-over that may have lost the last of them',
  survives:
    'the death of processes; not that of the server, or of a session: an administrator or a crash frees its locks before the holder knows',
}

const POLL_MS = 500

export type Opener = (events: SessionEvents) => Promise<Session>

export class AdvisoryEngine implements Engine {
  readonly name: string = ENGINE
  readonly traits: Traits = traits
  readonly #open: Opener
  readonly #clock: Clock
  readonly #chance: Chance
  readonly #book = new Book()
  /** Until when to remember it, by id. */
  readonly #evicted = new Map<string, number>()
  #session: Session | undefined
  #listener: ((news: News) => void) | undefined
  #turn: Promise<unknown> = Promise.resolve()
  #poll: Timer | undefined
  #closed = false

  constructor(open: Opener, clock: Clock, chance: Chance) {
    this.#open = open
    this.#clock = clock
    this.#chance = chance
  }

  async enter(claims: readonly Claim[], signal?: AbortSignal): Promise<readonly Standing[]> {
    return await this.#inTurn(signal, async (session) => {
      const refused = new Map<string, Standing>()
      const added: Claim[] = []
      for (const claim of claims) {
        const known = this.#book.find(claim.key, claim.id)
        const refusal = known === undefined ? this.#refusal(claim) : undefined
        if (known !== undefined) known.ttlMs = claim.ttlMs
        else if (refusal !== undefined) refused.set(claim.id, refusal)
        else added.push(this.#book.add(claim, this.#clock.now()))
      }
      try {
        const granted = [...(await this.#attempt(session, this.#booksOf(added)))]
        // What was true before has to be true now.
        if (added.length === 0) await session.ask('SELECT 1')
        for (const claim of added)
          if (!claim.wait && !this.#book.holds(claim)) refused.set(claim.id, { state: 'busy', ahead: null })
        const tries = added.filter(({ id }) => refused.has(id))
        for (const claim of tries) this.#book.remove(claim)
        // Those who came behind a try that was refused have not been asked for yet.
        granted.push(...(await this.#attempt(session, this.#booksOf(tries))))
        this.#tellOthers(granted, claims)
      } catch (error) {
        // The session is gone, and with it whatever was granted. Who still wants to come in asks again.
        for (const claim of added) this.#book.remove(claim)
        throw error
      }
      return claims.map((claim) => refused.get(claim.id) ?? this.#standing(claim))
    })
  }

  async renew(places: readonly Place[], signal?: AbortSignal): Promise<readonly Standing[]> {
    // What ended with its session has ended for certain: its holder is told, whether or not there is another session.
    if (places.every(({ key, id }) => this.#book.find(key, id) === undefined))
      return places.map((place) => this.#standing(place))
    return await this.#inTurn(signal, async (session) => {
      await this.#evictOurs(session)
      for (const { key, id, ttlMs } of places) {
        const entry = this.#book.find(key, id)
        if (entry !== undefined) entry.ttlMs = ttlMs
      }
      this.#tellOthers(await this.#attempt(session, this.#booksOf(places)), places)
      return places.map((place) => this.#standing(place))
    })
  }

  async leave(places: readonly Pick<Place, 'key' | 'id'>[]): Promise<readonly boolean[]> {
    const mine = this.#turn.then(async () => {
      // Without a session the server has nothing of ours.
      if (this.#session !== undefined) return await this.#remove(this.#session, places)
      return places.map((place) => this.#book.remove(place))
    })
    this.#turn = mine.catch(() => undefined)
    return await mine.catch((error: unknown) => Promise.reject(failure(error)))
  }

  async evict(key: string, token: bigint): Promise<boolean> {
    return await this.#inTurn(undefined, async (session) => (await session.ask(EVICT, [key, String(token)])).length > 0)
  }

  async inspect(key: string): Promise<Line> {
    const rows = await this.#inTurn(undefined, (session) => session.ask(INSPECT, [key]))
    return { key, entries: rows.map(viewOf) }
  }

  async *list(prefix: string): AsyncIterable<LineSummary> {
    const rows = await this.#inTurn(undefined, (session) => session.ask(LIST, [prefix]))
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

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closed = true
    this.#listener = undefined
    this.#poll?.cancel()
    await this.#turn
    await this.#session?.close()
  }

  #refusal({ key, weight, limit }: Claim): Standing | undefined {
    if ((this.#book.at(key)?.entries.size ?? 0) >= traits.lineBound)
      return { state: 'failed', error: new LineFullError(key, traits.lineBound) }
    if (weight === 1 && (limit === 1 || limit === UNLIMITED)) return undefined
    const why = `a lock here is exclusive or shared; it has no weight of ${weight} and no limit of ${limit}`
    return { state: 'failed', error: new EngineError(ENGINE, why, { outcome: 'not-applied', transient: false }) }
  }

  #booksOf(places: readonly Pick<Place, 'key'>[]): ReadonlySet<KeyBook> {
    return new Set(places.flatMap(({ key }) => this.#book.at(key) ?? []))
  }

  /** Let those ask who may, in one statement. Answers who now holds. */
  async #attempt(session: Session, books: Iterable<KeyBook>): Promise<readonly Entry[]> {
    const questions = [...books].flatMap((book) => book.question(this.#clock.now()) ?? [])
    const granted: Entry[] = []
    if (questions.length > 0) {
      const rows = await session.ask(ATTEMPT, [String(session.number), JSON.stringify(questions)])
      for (const { key, id, outcome, token } of rows) {
        const entry = this.#book.at(String(key))?.answered(String(id), String(outcome), token)
        if (entry !== undefined) granted.push(entry)
      }
    }
    this.#arm()
    return granted
  }

  async #remove(session: Session, places: readonly Pick<Place, 'key' | 'id'>[]): Promise<readonly boolean[]> {
    const books = new Set<KeyBook>()
    const answers = places.map((place) => {
      const book = this.#book.at(place.key)
      const there = this.#book.remove(place)
      if (there && book !== undefined) books.add(book)
      return there
    })
    if (books.size > 0) await this.#release(session, [...books], places)
    return answers
  }

  /**
   * Give the server what nobody here wants any more. Where others wait, they hear of it, and so do we: whoever is
   * faster.
   */
  async #release(session: Session, books: readonly KeyBook[], places: readonly Pick<Place, 'id'>[]): Promise<void> {
    const questions = books.map((book) => book.farewell())
    const rows = await session.ask(RELEASE, [
      String(session.number),
      places.map(({ id }) => id),
      JSON.stringify(questions),
    ])
    const told = new Set(rows.filter((row) => row.told === true).map((row) => row.key))
    this.#tell(
      await this.#attempt(
        session,
        books.filter((book) => !told.has(book.key)),
      ),
    )
  }

  /** What somebody evicted, we unlock: nobody else can. Until it would have expired, we remember why it is gone. */
  async #evictOurs(session: Session): Promise<void> {
    const ids = new Set((await session.ask(EVICTED, [String(session.number)])).map(({ id }) => String(id)))
    if (ids.size === 0) return
    const now = this.#clock.now()
    for (const [id, until] of this.#evicted) if (until < now) this.#evicted.delete(id)
    const entries = this.#book.all().filter(({ claim }) => ids.has(claim.id))
    for (const { claim, ttlMs } of entries) this.#evicted.set(claim.id, now + ttlMs)
    await this.#remove(
      session,
      entries.map(({ claim }) => claim),
    )
    for (const { claim } of entries) this.#listener?.({ key: claim.key, id: claim.id, standing: this.#standing(claim) })
  }

  #standing({ key, id }: Pick<Place, 'key' | 'id'>): Standing {
    const entry = this.#book.find(key, id)
    if (entry === undefined) return { state: 'gone', why: this.#evicted.has(id) ? 'evicted' : 'unknown' }
    if (entry.token === undefined) return { state: 'waiting', ahead: null }
    return { state: 'held', token: entry.token, heldForMs: Math.min(entry.ttlMs, SESSION_TTL_MS) }
  }

  /** Whoever asks about a key asks for those who stood there before, too: a grant that is nobody's answer is news. */
  #tellOthers(granted: readonly Entry[], answered: readonly Pick<Place, 'id'>[]): void {
    const ids = new Set(answered.map(({ id }) => id))
    this.#tell(granted.filter(({ claim }) => !ids.has(claim.id)))
  }

  #tell(granted: readonly Entry[]): void {
    for (const { claim } of granted) {
      this.#listener?.({ key: claim.key, id: claim.id, standing: this.#standing(claim) })
    }
  }

  readonly #events: SessionEvents = {
    heard: (payload: string): void => {
      const book = payload.startsWith(FREED) ? this.#book.at(payload.slice(FREED.length)) : undefined
      if (payload === EVICTION) this.#aside((session) => this.#evictOurs(session))
      if (book?.waits === true) this.#aside(async (session) => this.#tell(await this.#attempt(session, [book])))
    },
    lost: (session: Session): void => {
      if (this.#session !== session) return
      this.#session = undefined
      for (const { claim } of this.#book.sessionLost()) {
        this.#listener?.({ key: claim.key, id: claim.id, standing: { state: 'gone', why: 'expired' } })
      }
      this.#arm()
    },
  }

  #arm(): void {
    if (this.#closed || this.#poll !== undefined || this.#book.waitedFor().length === 0) return
    this.#poll = this.#clock.timer(POLL_MS * (0.5 + this.#chance.fraction()), () => {
      this.#poll = undefined
      this.#aside(async (session) => this.#tell(await this.#attempt(session, this.#book.waitedFor())))
    })
  }

  /** What nobody asked for. If it fails, the next renewal or poll sees to it. */
  #aside(work: (session: Session) => Promise<unknown>): void {
    if (this.#closed) return
    this.#inTurn(undefined, work).catch(() => this.#arm())
  }

  async #inTurn<Result>(signal: AbortSignal | undefined, work: (session: Session) => Promise<Result>): Promise<Result> {
    const mine = this.#turn.then(async () => {
      if (signal?.aborted === true) throw new EngineError(ENGINE, 'not sent in time', { outcome: 'not-applied' })
      return await work(await this.#connected())
    })
    this.#turn = mine.catch(() => undefined)
    try {
      return await mine
    } catch (error) {
      throw failure(error)
    }
  }

  async #connected(): Promise<Session> {
    if (this.#closed) throw new EngineError(ENGINE, 'closed', { outcome: 'not-applied', transient: false })
    try {
      this.#session ??= await this.#open(this.#events)
    } catch (error) {
      throw unreachable(error)
    }
    return this.#session
  }
}
