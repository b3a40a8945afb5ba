/**
 * The verbs, inside one transaction: what memory.ts does with maps, this does with rows.
 *
 * Every transaction first removes what has expired. Sums of the lines it touches are kept here and written once, at the
 * end; entries are written as they change. What has to happen after the commit (telling waiters, waking other
 * processes) is collected in `effects`, and forgotten if the commit fails.
 */
import type { Claim, GoneReason, Place, Standing } from '../../core/engine.ts'
import { LineFullError } from '../../core/errors.ts'
import { type Effects, noEffects, type Scene } from './scene.ts'
import { HELD, REMOVED, WAITING } from './schema.ts'
import type { EntryRow, GoneRow, Statements } from './statements.ts'
import { Sums } from './sums.ts'
import { Tokens } from './tokens.ts'

export const LINE_BOUND = 10_000

/**
 * How many clients are looked at when a new one comes: more than come at once, so that rows of the dead do not pile up.
 */
const TIDY = 32

export class Lines {
  readonly effects: Effects = noEffects()
  readonly scene: Scene
  readonly #sql: Statements
  readonly #now: number
  readonly #sums = new Map<string, Sums>()
  readonly #tokens: Tokens
  #client: number | undefined
  #nextExpiry: number

  constructor(scene: Scene) {
    this.scene = scene
    this.#sql = scene.sql
    this.#now = scene.now
    this.#client = scene.clients.own
    this.#tokens = new Tokens(scene)
    this.#nextExpiry = this.#sql.nextExpiry.all()[0]?.at ?? Number.POSITIVE_INFINITY
    if (this.#nextExpiry > scene.now) return
    this.#departed(this.#sql.expire.all(scene.now))
    this.#nextExpiry = this.#sql.nextExpiry.all()[0]?.at ?? Number.POSITIVE_INFINITY
  }

  /** No entry expires before this, as things are after this transaction. */
  get nextExpiry(): number {
    return this.#nextExpiry
  }

  /** Write what was put off. The last thing before the commit. */
  finish(): void {
    for (const sums of this.#sums.values()) if (sums.changed) sums.write(this.#sql)
  }

  /** Our number, if this transaction or an earlier one wrote us down. */
  get client(): number | undefined {
    return this.#client
  }

  enter(claims: readonly Claim[]): Standing[] {
    const client = this.register()
    return (
      this.#enterAll(claims, client) ?? claims.map((claim, index) => this.#enter(claim, client, claims.length - index))
    )
  }

  renew(places: readonly Place[]): Standing[] {
    return places.map(({ key, id, ttlMs, outlives }) => {
      const standing = this.#renew(key, id, ttlMs)
      if (outlives === true) this.#sql.disown.run(key, id)
      return standing
    })
  }

  leave(places: readonly Pick<Place, 'key' | 'id'>[]): boolean[] {
    const { bulk } = this.scene
    const all = bulk.suits(places) && this.#unsummed(places) && bulk.leave(this.#sql, places)
    return places.map(({ key, id }) => {
      this.effects.waiters.push({ key, id, stay: undefined })
      if (all) this.effects.changed.add(key)
      return all || this.#leave(key, id)
    })
  }

  evict(key: string, token: bigint, how: 'expire' | 'now'): boolean {
    const [entry] = this.#sql.entryByToken.all(key, Number(token))
    if (entry === undefined) return false
    // A waiter holds nothing that it would have to stop first.
    if (how === 'expire' && entry.state === HELD) {
      this.#sql.forbid.run(key, entry.id)
      return true
    }
    this.#sql.evict.run(this.#isOwn(entry) ? 0 : 1, key, entry.id)
    this.#departed([entry])
    this.#tell(entry, { state: 'gone', why: 'evicted' })
    return true
  }

  /** Take everything of a client out of every line, if it is dead. */
  bury(client: number): boolean {
    if (client === this.#client || !this.scene.clients.isDead(client, this.#sql, this.#now)) return false
    this.#sql.removeClient.run(client)
    this.#departed(this.#sql.removeOf.all(client))
    return true
  }

  /**
   * Our number; at the first use we are written down, and some of the others are looked at, so that rows of the dead do
   * not pile up.
   */
  register(): number {
    if (this.#client !== undefined) return this.#client
    const { clients } = this.scene
    this.#client = clients.register(this.#sql, this.#now)
    for (const row of this.#sql.someClients.all(TIDY)) {
      if (!this.bury(row.client) && clients.isForgotten(row, this.#sql, this.#now))
        this.#sql.removeClient.run(row.client)
    }
    this.scene.tidyWakes((client) => this.#sql.client.all(client).length > 0)
    return this.#client
  }

  /** Write down which process groups have to be dead before we are. */
  writeGroups(): void {
    this.scene.clients.writeGroups(this.#sql, this.register())
  }

  /** We are closing. Our row stays while something of us is in a line, so that others can see when we die. */
  unregister(): void {
    if (this.#client === undefined || this.#sql.isInLine.all(this.#client).length > 0) return
    this.#sql.removeClient.run(this.#client)
  }

  // ---- entering ----

  /** The usual batch: every line is empty. Undefined: it is not. */
  #enterAll(claims: readonly Claim[], client: number): Standing[] | undefined {
    const { bulk } = this.scene
    const [first] = claims
    if (first === undefined || !bulk.suits(claims) || !bulk.alike(claims) || !this.#unsummed(claims)) return undefined
    const token = this.#tokens.row(claims.length)
    const until = this.#now + first.ttlMs
    if (!bulk.enter(this.#sql, claims, { client, now: this.#now, until, token })) return undefined
    this.#tokens.use(claims.length)
    this.#untilAfter(first.ttlMs)
    return claims.map(({ key, ttlMs }, index) => {
      this.effects.changed.add(key)
      return { state: 'held', token: BigInt(token + index), heldForMs: ttlMs }
    })
  }

  /** Whether this transaction has no sums of these lines in hand, which would have to be mended. */
  #unsummed(items: readonly Pick<Place, 'key'>[]): boolean {
    return this.#sums.size === 0 || !items.some(({ key }) => this.#sums.has(key))
  }

  #enter(claim: Claim, client: number, wanted: number): Standing {
    const { key, id, holder, weight, limit, ttlMs } = claim
    const sums = this.#sumsOf(key)
    const holds = this.#mayHold(claim, sums)
    if ((!holds && !claim.wait) || sums.size >= LINE_BOUND) {
      const known = this.#sql.knows.all(key, id).length > 0
      if (known) return this.#renew(key, id, ttlMs)
      if (!holds && !claim.wait) return { state: 'busy', ahead: sums.size }
      return { state: 'failed', error: new LineFullError(key, LINE_BOUND) }
    }

    const now = this.#now
    const until = this.#untilAfter(ttlMs)
    const token = this.#tokens.next(wanted)
    const [state, heldAt] = holds ? [HELD, now] : [WAITING, null]
    const ahead = sums.size
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
      client,
      holder,
    )
    if (fresh === 0) return this.#renew(key, id, ttlMs)
    if (ahead === 1) this.#sql.crowd.run(key)
    if (holds) {
      sums.hold(claim)
      this.effects.changed.add(key)
      return { state: 'held', token: BigInt(token), heldForMs: ttlMs }
    }
    sums.wait()
    this.scene.willWait(client)
    this.effects.waiters.push({ key, id, stay: { until, token } })
    return { state: 'waiting', ahead }
  }

  /** Before anyone is told to wait: those in the way may be dead, and those behind them too. */
  #mayHold(claim: Claim, sums: Sums): boolean {
    const holds = (): boolean => sums.waiting === 0 && sums.admits(claim)
    if (holds()) return true
    if (!this.scene.clients.mayLookAt(claim.key, this.#now)) return false
    while (this.#buryHolders(sums)) if (holds()) return true
    return false
  }

  #renew(key: string, id: string, ttlMs: number): Standing {
    const until = this.#untilAfter(ttlMs)
    const [entry] = this.#sql.renew.all(ttlMs, until, key, id)
    if (entry?.state === WAITING) {
      this.effects.waiters.push({ key, id, stay: { until, token: entry.token } })
      return { state: 'waiting', ahead: null }
    }
    this.effects.waiters.push({ key, id, stay: undefined })
    if (entry !== undefined) return { state: 'held', token: BigInt(entry.token), heldForMs: ttlMs }
    const why: GoneReason = this.#sql.knows.all(key, id).length > 0 ? 'evicted' : 'unknown'
    return { state: 'gone', why }
  }

  #untilAfter(ttlMs: number): number {
    const until = this.#now + ttlMs
    if (until < this.#nextExpiry) this.#nextExpiry = until
    return until
  }

  /** Whether one of those who hold was dead. */
  #buryHolders(sums: Sums): boolean {
    const { onlyHolder, holders } = this.#sql
    const clients = sums.size > 1 ? holders.all(sums.key) : onlyHolder.all(sums.key)
    return clients.map(({ client }) => this.bury(client)).includes(true)
  }

  // ---- going ----

  #leave(key: string, id: string): boolean {
    const [gone] = this.#sql.remove.all(key, id)
    if (gone === undefined) return false
    if (this.#sums.has(key) || (gone.alone === 0 && !this.#handOver(gone))) this.#departed([gone])
    this.effects.changed.add(key)
    return true
  }

  /** The usual end of waiting: one who holds alone goes, and the next one wants the same. False: nothing was done. */
  #handOver(gone: GoneRow): boolean {
    const { key, weight, limit } = gone
    if (gone.state !== HELD || weight !== limit) return false
    const [next] = this.#sql.handOver.all(this.#now, this.#client ?? 0, weight, limit, key)
    if (next === undefined) return false
    if (next.waiting > 1) this.#sql.shortenLine.run(key)
    else this.#sql.removeLine.run(key)
    this.#tell(next, { state: 'held', token: BigInt(next.token), heldForMs: next.expires_at - this.#now })
    return true
  }

  /**
   * These rows have left the table, or will not count any more: mend the sums, then settle each line. Also a waiter
   * that goes can let others hold.
   */
  #departed(entries: readonly GoneRow[]): void {
    const touched = new Set<Sums>()
    for (const entry of entries) {
      if (entry.state === REMOVED) continue
      this.effects.changed.add(entry.key)
      // Without sums here or in the file, it was the only one of its line.
      const sums = this.#sums.get(entry.key) ?? Sums.stored(entry.key, this.#sql)
      if (sums === undefined) continue
      this.#sums.set(entry.key, sums)
      sums.without(entry, this.#sql)
      touched.add(sums)
    }
    for (const sums of touched) this.#settle(sums)
  }

  /** Grant the front of the line what it can have now. Expiries stay as they are: a grant never changes one. */
  #settle(sums: Sums): void {
    while (sums.waiting > 0) {
      const [first] = this.#sql.firstWaiter.all(sums.key)
      if (first === undefined || !sums.admits(first)) return
      this.#sql.grant.run(this.#now, this.#isOwn(first) ? 0 : 1, first.key, first.id)
      sums.waiting -= 1
      sums.hold(first)
      this.effects.changed.add(first.key)
      this.#tell(first, { state: 'held', token: BigInt(first.token), heldForMs: first.expires_at - this.#now })
    }
  }

  #tell(entry: EntryRow, standing: Standing): void {
    const { key, id } = entry
    if (this.#isOwn(entry)) {
      this.effects.news.push({ key, id, standing })
      this.effects.waiters.push({ key, id, stay: undefined })
    } else {
      this.effects.wake.set(entry.client, standing.state === 'held' ? entry.token : 0)
    }
  }

  #isOwn(entry: EntryRow): boolean {
    return entry.client === this.#client
  }

  #sumsOf(key: string): Sums {
    const known = this.#sums.get(key)
    if (known !== undefined) return known
    const sums = Sums.read(key, this.#sql)
    this.#sums.set(key, sums)
    return sums
  }
}
