/**
 * The verbs, inside one transaction: what the memory engine does with maps, this does with rows.
 *
 * Every transaction first removes what has expired. Totals of the lines it changes are kept here and written once, at
 * the end; entries are written as they change. What has to happen after the commit (telling waiters, waking other
 * processes) is collected in `afterCommit`, and forgotten if the commit fails.
 */
import { wallClockMs } from '../../core/clock.ts'
import type { Claim, EntryName, GoneReason, Line, LineSummary, Place, Standing } from '../../core/engine.ts'
import { LineFullError } from '../../core/errors.ts'
import type { PoolAnswer, PoolStep } from '../../core/store-hold.ts'
import { type AfterCommit, nothingToDo, TokenCounter, type TransactionContext } from './context.ts'
import { LineTotals } from './line-totals.ts'
import { poolAnswers } from './pools.ts'
import { SqliteRecords } from './records.ts'
import { HELD, REMOVED, WAITING } from './sql/schema.ts'
import type { EntryRow, GoneRow, SqliteStatements } from './sql/statements.ts'

export const LINE_BOUND = 10_000

/**
 * How many engines are looked at when a new one comes: more than come at once, so that rows of the dead do not pile up.
 */
const LOOKED_AT = 32

export class SqliteTransaction {
  readonly afterCommit: AfterCommit = nothingToDo()
  readonly #context: TransactionContext
  readonly #sql: SqliteStatements
  readonly #now: number
  readonly #totals = new Map<string, LineTotals>()
  readonly #tokens: TokenCounter
  #engineId: number | undefined
  #nextExpiry: number

  constructor(context: TransactionContext) {
    this.#context = context
    this.#sql = context.sql
    this.#now = context.now
    this.#engineId = context.registry.engineId
    this.#tokens = new TokenCounter(context)
    this.#nextExpiry = this.#sql.nextExpiry.all()[0]?.at ?? Number.POSITIVE_INFINITY
    if (this.#nextExpiry > context.now) return
    this.#afterRemoval(this.#sql.expire.all(context.now))
    this.#nextExpiry = this.#sql.nextExpiry.all()[0]?.at ?? Number.POSITIVE_INFINITY
  }

  /** No entry expires before this, as things are after this transaction. */
  get nextExpiry(): number {
    return this.#nextExpiry
  }

  /** Write what was put off. The last thing before the commit. */
  finish(): void {
    for (const totals of this.#totals.values()) if (totals.changed) totals.write(this.#sql)
  }

  /** Our number, if this transaction or an earlier one wrote us down. */
  get engineId(): number | undefined {
    return this.#engineId
  }

  enter(claims: readonly Claim[]): Standing[] {
    const engineId = this.register()
    return (
      this.#enterAll(claims, engineId) ??
      claims.map((claim, index) => this.#enter(claim, engineId, claims.length - index))
    )
  }

  renew(places: readonly Place[]): Standing[] {
    return places.map(({ key, id, ttlMs, outlives }) => {
      const standing = this.#renew(key, id, ttlMs)
      if (outlives === true) this.#sql.detach.run(key, id)
      return standing
    })
  }

  leave(places: readonly EntryName[]): boolean[] {
    const { bulk } = this.#context
    const all = bulk.isWorthTrying(places) && this.#hasNoTotals(places) && bulk.leave(this.#sql, places)
    return places.map(({ key, id }) => {
      this.afterCommit.waiters.push({ key, id, entry: undefined })
      if (all) this.afterCommit.changed.add(key)
      return all || this.#leave(key, id)
    })
  }

  /** Whether this entry is in the line, or was evicted from it. */
  has(key: string, id: string): boolean {
    return this.#sql.entryExists.all(key, id).length > 0
  }

  /** Whether this claim would hold at once. */
  isFree(claim: Claim): boolean {
    return this.#mayHold(claim, this.#totalsOf(claim.key))
  }

  evict(key: string, token: bigint, how: 'expire' | 'now'): boolean {
    const [entry] = this.#sql.entryByToken.all(key, Number(token))
    if (entry === undefined) return false
    const news = this.#isOwn(entry) ? 0 : 1
    // A waiter holds nothing that it would have to stop first.
    if (how === 'expire' && entry.state === HELD) {
      this.#sql.forbidRenewal.run(news, key, entry.id)
    } else {
      this.#sql.evict.run(news, key, entry.id)
      this.#afterRemoval([entry])
    }
    this.#tell(entry, { state: 'gone', why: 'evicted' })
    return true
  }

  inspect(key: string): Line {
    const now = this.#now
    const entries = this.#sql.wholeLine.all(key).map((row) => ({
      id: row.id,
      holder: row.holder,
      state: row.state === HELD ? ('held' as const) : ('waiting' as const),
      token: BigInt(row.token),
      weight: row.weight,
      limit: row.limit,
      ttlMs: row.ttl_ms,
      remainingMs: row.expires_at - now,
      ageMs: now - row.entered_at,
      heldMs: row.held_at === null ? null : now - row.held_at,
      ...(row.evicted === 1 ? { evicted: true as const } : {}),
    }))
    return { key, entries }
  }

  /**
   * Up to `count` lines, in the bytewise order of their keys, from `from` on; not the one of `except`, which was the
   * last of the page before.
   */
  list(from: string, except: string, count: number): LineSummary[] {
    return this.#sql.lines.all(from, except, count).map(({ key, held, waiting }) => ({ key, held, waiting }))
  }

  /** The records, as they are between the changes of this transaction. */
  get records(): SqliteRecords {
    const { now, epoch, file, recordSql } = this.#context
    return new SqliteRecords({ sql: recordSql(), now, wallMs: wallClockMs(), epoch, file })
  }

  holdUnits(steps: readonly PoolStep[]): PoolAnswer[] {
    const { now, epoch, poolSql } = this.#context
    return poolAnswers(steps, { sql: poolSql(), now, wallMs: wallClockMs(), epoch })
  }

  /** Take all entries of an engine out of every line, if its process is dead. */
  removeDead(engineId: number): boolean {
    if (engineId === this.#engineId || !this.#context.registry.isDead(engineId, this.#sql, this.#now)) return false
    this.#sql.removeClient.run(engineId)
    this.#afterRemoval(this.#sql.removeOf.all(engineId))
    return true
  }

  /**
   * Our number; at the first use we are written down, and some of the others are looked at, so that rows of the dead do
   * not pile up.
   */
  register(): number {
    if (this.#engineId !== undefined) return this.#engineId
    const { registry } = this.#context
    this.#engineId = registry.register(this.#sql, this.#now)
    for (const row of this.#sql.someClients.all(LOOKED_AT)) {
      if (!this.removeDead(row.client) && registry.isForgotten(row, this.#sql, this.#now))
        this.#sql.removeClient.run(row.client)
    }
    this.#context.removeOldWakeFiles((engineId) => this.#sql.client.all(engineId).length > 0)
    return this.#engineId
  }

  /** Write down which process groups have to be dead before we are. */
  writeGroups(): void {
    this.#context.registry.writeGroups(this.#sql, this.register())
  }

  /** We are closing. Our row stays while an entry of ours is in a line, so that others can see when we die. */
  unregister(): void {
    if (this.#engineId === undefined || this.#sql.isInLine.all(this.#engineId).length > 0) return
    this.#sql.removeClient.run(this.#engineId)
  }

  // ---- entering ----

  /** The usual batch: every line is empty. Undefined: it is not. */
  #enterAll(claims: readonly Claim[], engineId: number): Standing[] | undefined {
    const { bulk } = this.#context
    const [first] = claims
    if (first === undefined || !bulk.isWorthTrying(claims) || !bulk.areAlike(claims) || !this.#hasNoTotals(claims))
      return undefined
    const token = this.#tokens.reserve(claims.length)
    const until = this.#now + first.ttlMs
    if (!bulk.enter(this.#sql, claims, { engineId, now: this.#now, until, token })) return undefined
    this.#tokens.use(claims.length)
    this.#untilAfter(first.ttlMs)
    return claims.map(({ key, ttlMs }, index) => {
      this.afterCommit.changed.add(key)
      return { state: 'held', token: BigInt(token + index), heldForMs: ttlMs }
    })
  }

  /** Whether this transaction has changed none of these lines yet, so that there are no totals to correct. */
  #hasNoTotals(items: readonly Pick<Place, 'key'>[]): boolean {
    return this.#totals.size === 0 || !items.some(({ key }) => this.#totals.has(key))
  }

  #enter(claim: Claim, engineId: number, wanted: number): Standing {
    const { key, id, holder, weight, limit, ttlMs } = claim
    const totals = this.#totalsOf(key)
    const holds = this.#mayHold(claim, totals)
    if ((!holds && !claim.wait) || totals.size >= LINE_BOUND) {
      const known = this.#sql.entryExists.all(key, id).length > 0
      if (known) return this.#renew(key, id, ttlMs)
      if (!holds && !claim.wait) return { state: 'busy', ahead: totals.size }
      return { state: 'failed', error: new LineFullError(key, LINE_BOUND) }
    }

    const now = this.#now
    const until = this.#untilAfter(ttlMs)
    const token = this.#tokens.next(wanted)
    const [state, heldAt] = holds ? [HELD, now] : [WAITING, null]
    const ahead = totals.size
    const alone = ahead === 0 ? 1 : 0
    const fresh = this.#sql.insert.run(
      key,
      id,
      token,
      state,
      alone,
      weight,
      limit,
      ttlMs,
      until,
      now,
      heldAt,
      engineId,
      holder,
    )
    if (fresh === 0) return this.#renew(key, id, ttlMs)
    if (ahead === 1) this.#sql.markCrowded.run(key)
    if (holds) {
      totals.hold(claim)
      this.afterCommit.changed.add(key)
      return { state: 'held', token: BigInt(token), heldForMs: ttlMs }
    }
    totals.wait()
    this.#context.prepareToWait(engineId)
    this.afterCommit.waiters.push({ key, id, entry: { until, token } })
    return { state: 'waiting', ahead }
  }

  /** Whether it holds at once. Before a claim is told to wait: the holders may be dead, and the next ones, too. */
  #mayHold(claim: Claim, totals: LineTotals): boolean {
    const holds = (): boolean => totals.waiting === 0 && totals.admits(claim)
    if (holds()) return true
    if (!this.#context.registry.mayCheckHolders(claim.key, this.#now)) return false
    while (this.#removeDeadHolders(totals)) if (holds()) return true
    return false
  }

  #renew(key: string, id: string, ttlMs: number): Standing {
    const until = this.#untilAfter(ttlMs)
    const [entry] = this.#sql.renew.all(ttlMs, until, key, id)
    if (entry?.state === WAITING) {
      this.afterCommit.waiters.push({ key, id, entry: { until, token: entry.token } })
      return { state: 'waiting', ahead: null }
    }
    this.afterCommit.waiters.push({ key, id, entry: undefined })
    if (entry !== undefined) return { state: 'held', token: BigInt(entry.token), heldForMs: ttlMs }
    const why: GoneReason = this.#sql.entryExists.all(key, id).length > 0 ? 'evicted' : 'unknown'
    return { state: 'gone', why }
  }

  #untilAfter(ttlMs: number): number {
    const until = this.#now + ttlMs
    if (until < this.#nextExpiry) this.#nextExpiry = until
    return until
  }

  /** Whether one of the holders was dead. */
  #removeDeadHolders(totals: LineTotals): boolean {
    const { onlyHolder, holders } = this.#sql
    const engines = totals.size > 1 ? holders.all(totals.key) : onlyHolder.all(totals.key)
    return engines.map(({ client }) => this.removeDead(client)).includes(true)
  }

  // ---- going ----

  #leave(key: string, id: string): boolean {
    const [gone] = this.#sql.remove.all(key, id)
    if (gone === undefined) return false
    if (this.#totals.has(key) || (gone.alone === 0 && !this.#handOff(gone))) this.#afterRemoval([gone])
    this.afterCommit.changed.add(key)
    return true
  }

  /** The usual end of waiting: the only holder leaves, and the first waiter wants the same. False: nothing was done. */
  #handOff(gone: GoneRow): boolean {
    const { key, weight, limit } = gone
    if (gone.state !== HELD || weight !== limit) return false
    const [next] = this.#sql.handOff.all(this.#now, this.#engineId ?? 0, weight, limit, key)
    if (next === undefined) return false
    if (next.waiting > 1) this.#sql.shortenLine.run(key)
    else this.#sql.removeLine.run(key)
    this.#tell(next, { state: 'held', token: BigInt(next.token), heldForMs: next.expires_at - this.#now })
    return true
  }

  /**
   * These rows have left the table, or will not count any more: correct the totals, then settle each line. Also a
   * waiter that goes can let others hold.
   */
  #afterRemoval(entries: readonly GoneRow[]): void {
    const touched = new Set<LineTotals>()
    for (const entry of entries) {
      if (entry.state === REMOVED) continue
      this.afterCommit.changed.add(entry.key)
      // Without totals here or in the file, it was the only entry of its line.
      const totals = this.#totals.get(entry.key) ?? LineTotals.stored(entry.key, this.#sql)
      if (totals === undefined) continue
      this.#totals.set(entry.key, totals)
      totals.without(entry, this.#sql)
      touched.add(totals)
    }
    for (const totals of touched) this.#settle(totals)
  }

  /** Grant the front of the line what it can have now. Expiries stay as they are: a grant never changes one. */
  #settle(totals: LineTotals): void {
    while (totals.waiting > 0) {
      const [first] = this.#sql.firstWaiter.all(totals.key)
      if (first === undefined || !totals.admits(first)) return
      this.#sql.grant.run(this.#now, this.#isOwn(first) ? 0 : 1, first.key, first.id)
      totals.waiting -= 1
      totals.hold(first)
      this.afterCommit.changed.add(first.key)
      this.#tell(first, { state: 'held', token: BigInt(first.token), heldForMs: first.expires_at - this.#now })
    }
  }

  #tell(entry: EntryRow, standing: Standing): void {
    const { key, id } = entry
    if (this.#isOwn(entry)) {
      this.afterCommit.news.push({ key, id, standing })
      this.afterCommit.waiters.push({ key, id, entry: undefined })
    } else {
      this.afterCommit.wake.set(entry.client, standing.state === 'held' ? entry.token : 0)
    }
  }

  #isOwn(entry: EntryRow): boolean {
    return entry.client === this.#engineId
  }

  #totalsOf(key: string): LineTotals {
    const known = this.#totals.get(key)
    if (known !== undefined) return known
    const totals = LineTotals.read(key, this.#sql)
    this.#totals.set(key, totals)
    return totals
  }
}
