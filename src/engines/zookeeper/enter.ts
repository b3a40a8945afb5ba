/**
 * Entering lines. An entry is created, and the line is read right behind it, on one connection: place and token in one
 * round trip. What is read is no older than the entry. None of the entries before it can be missing, since no entry is
 * ever put before another. So the entry that is first in what was read is first.
 *
 * An id can come to be in a line twice: its first enter was done, and the reply was lost. Then the older entry counts,
 * and the newer one is taken out at once.
 *
 * Claims of one batch are sent together, and in their order where they are of one ttl. Those of different lines are
 * created in one transaction, which costs the servers little more than one of them. It does all or nothing: where it is
 * refused, because of whichever of them, each is created by itself. Claims of one line never share a transaction. They
 * would have one token, and should it be refused, others could come between them.
 *
 * A claim with `wait: false` enters like the others, and is taken out at once if it does not hold. Its name says so.
 * Where nothing but such tries is in the way of a claim, its line is read again, until they have gone.
 */
import { hasCode, wasRefused } from '../../clients/zookeeper/errors.ts'
import type { CreatedNode } from '../../clients/zookeeper/messages.ts'
import type { NumberedNode } from '../../clients/zookeeper/session.ts'
import type { Claim, Place, Standing } from '../../core/engine.ts'
import { type EngineError, LineFullError } from '../../core/errors.ts'
import { withOutcome } from '../../core/failed-call.ts'
import type { ClassSession, ZooKeeperContext } from './class-session.ts'
import type { ClassSessions } from './class-sessions.ts'
import { findEntry, LINE_BOUND, waitsForTries, writeData, type ZooKeeperLine } from './codec.ts'
import { asEngineError, noChroot, unsettled } from './errors.ts'
import { KnownLines } from './known-lines.ts'
import type { MaybeLine } from './line-reader.ts'
import { byNumber, numberIn, pathsTo } from './names.ts'
import { inGroups, type Settled, settled } from './request-results.ts'

/** How often an enter creates the node of a line, should the servers remove it again while it is empty. */
const TRIES = 3
/** When a line is read again in which only tries are in the way. Their clients take them out at once. */
const READ_AGAIN_MS = [2, 5, 10, 20, 40, 80]
const NOTHING = Buffer.alloc(0)

/** What was answered to the two requests of one claim. */
interface EnterAnswers {
  readonly created: Settled<NumberedNode>
  readonly view: Settled<MaybeLine>
}

export class ZooKeeperEnterCalls {
  readonly #context: ZooKeeperContext
  readonly #sessions: ClassSessions
  readonly #lines: KnownLines
  readonly #renew: (places: readonly Place[]) => Promise<readonly Standing[]>

  /** `renew` renews entries that are in a line already, and says where they stand. */
  constructor(
    context: ZooKeeperContext,
    sessions: ClassSessions,
    renew: (places: readonly Place[]) => Promise<readonly Standing[]>,
  ) {
    this.#context = context
    this.#sessions = sessions
    this.#lines = new KnownLines(context.clock)
    this.#renew = renew
  }

  async enter(claims: readonly Claim[]): Promise<readonly Standing[]> {
    const startedAt = this.#context.clock.now()
    const standings: Standing[] = []
    for (let from = 0; from < claims.length; ) {
      const { ttlMs, id } = claims[from] as Claim
      // What was sent before for an id came first only on the same session.
      const known = this.#sessions.find(id)
      let to = from + 1
      while (claims[to]?.ttlMs === ttlMs && this.#sessions.find((claims[to] as Claim).id) === known) to += 1
      standings.push(...(await this.#enterTogether(claims.slice(from, to), known, startedAt)))
      from = to
    }
    return standings
  }

  /** Claims of one ttl, whose ids are known to one session, or to none. */
  async #enterTogether(
    claims: readonly Claim[],
    known: ClassSession | undefined,
    startedAt: number,
  ): Promise<readonly Standing[]> {
    const { ttlMs } = claims[0] as Claim
    const bytes = claims.reduce((sum, { key }) => sum + this.#context.names.entryBytes(key), 0)
    let session: ClassSession
    try {
      session = known ?? this.#sessions.atHand(ttlMs, bytes) ?? (await this.#sessions.open(ttlMs, 'enter', bytes))
    } catch (error) {
      const failed: Standing = { state: 'failed', error: asEngineError('enter', error, { outcome: 'not-applied' }) }
      return claims.map(() => failed)
    }
    const renewed = await this.#renewKnown(claims)
    const fresh = claims.filter((claim) => !renewed.has(claim))
    for (const { key, id } of fresh) session.beginEntering(key, id)
    const entered = await this.#create(session, fresh)
    const settle = (claim: Claim): Promise<Standing> => {
      const known = renewed.get(claim)
      return known === undefined
        ? this.#settle(session, claim, entered.get(claim) as EnterAnswers, startedAt)
        : Promise.resolve(known)
    }
    if (new Set(claims.map(({ id }) => id)).size === claims.length) return await Promise.all(claims.map(settle))
    // One after the other: of two claims with one id, the second finds the first.
    const standings: Standing[] = []
    for (const claim of claims) standings.push(await settle(claim))
    return standings
  }

  /** Those that are in a line already. One that has gone since may enter again, unless it was evicted. */
  async #renewKnown(claims: readonly Claim[]): Promise<ReadonlyMap<Claim, Standing>> {
    const renewed = new Map<Claim, Standing>()
    const known = claims.filter(({ id }) => this.#sessions.find(id)?.entries.has(id) === true)
    if (known.length === 0) return renewed
    const standings = await this.#renew(known.map(({ key, id, ttlMs }) => ({ key, id, ttlMs })))
    for (const [index, claim] of known.entries()) {
      const standing = standings[index] as Standing
      if (standing.state !== 'gone' || standing.why === 'evicted') renewed.set(claim, standing)
    }
    return renewed
  }

  /** Create entries, and read their lines. */
  async #create(session: ClassSession, claims: readonly Claim[]): Promise<ReadonlyMap<Claim, EnterAnswers>> {
    const entered = new Map<Claim, EnterAnswers>()
    const together = this.#lines.together(claims)
    const apart = together.size === 0 ? claims : claims.filter((claim) => !together.has(claim))
    // All of them are sent before the first is answered.
    const groups = inGroups([...together]).map((group) => this.#createGroup(session, group, entered))
    await this.#createApart(session, apart, entered)
    const refused = (await Promise.all(groups)).flat()
    await this.#createApart(session, refused, entered)
    for (const [{ key }, { created }] of entered) this.#lines.saw(key, 'value' in created)
    return entered
  }

  /** In one transaction. Answers with those that have to be created each by itself. */
  async #createGroup(
    session: ClassSession,
    claims: readonly Claim[],
    entered: Map<Claim, EnterAnswers>,
  ): Promise<readonly Claim[]> {
    const creating = settled(session.zk.createAll(claims.map((claim) => this.#node(session, claim))))
    const reading = session.lines.readAll(claims.map(({ key }) => key))
    const created = await creating
    if ('error' in created && wasRefused(created.error)) return claims
    const views = await reading
    for (const [index, claim] of claims.entries())
      entered.set(claim, {
        created: 'error' in created ? created : { value: created.value[index] as NumberedNode },
        view: views.get(claim.key) as Settled<MaybeLine>,
      })
    return []
  }

  /** Each by itself. Where a line has no node yet, that is created first. */
  async #createApart(
    session: ClassSession,
    claims: readonly Claim[],
    entered: Map<Claim, EnterAnswers>,
  ): Promise<void> {
    let left = claims
    for (let attempt = 1; left.length > 0; attempt += 1) {
      // The node of the line first: else another client could create it between the first claim, which would fail for
      // want of it, and the second, which would succeed.
      const parents = this.#createLines(session, attempt === 1 ? this.#lines.sharedUnknown(left) : left)
      const created = left.map((claim) => settled(session.zk.create(this.#node(session, claim)).then(numbered)))
      const reading = session.lines.readAll([...new Set(left.map(({ key }) => key))])
      const made = await Promise.all(parents)
      const refused = attempt === 1 ? undefined : made.find(isRefused)
      const again: Claim[] = []
      for (const [index, claim] of left.entries()) {
        const one = await (created[index] as Promise<Settled<NumberedNode>>)
        const view = (await reading).get(claim.key) as Settled<MaybeLine>
        const hasNoLine = 'error' in one && hasCode(one.error, 'noNode')
        if (hasNoLine && refused === undefined && attempt <= TRIES) again.push(claim)
        else entered.set(claim, { created: hasNoLine ? (refused ?? one) : one, view })
      }
      left = again
    }
  }

  #node(session: ClassSession, claim: Claim): Parameters<ClassSession['zk']['create']>[0] {
    const { names, acl } = this.#context
    const data = { holder: claim.holder, ttlMs: session.zk.timeoutMs, outlives: false, evicted: false }
    return { path: names.newEntry(claim), data: writeData(data), mode: 'ephemeral-sequential', acl }
  }

  /** The server takes a container away when it has been empty for a while. */
  #createLines(session: ClassSession, claims: readonly Claim[]): readonly Promise<Settled<CreatedNode>>[] {
    if (claims.length === 0) return []
    const { names, acl } = this.#context
    const paths = [...pathsTo(names.base), ...new Set(claims.map(({ key }) => names.line(key)))]
    return paths.map((path) => settled(session.zk.create({ path, data: NOTHING, mode: 'container', acl })))
  }

  async #renewOne({ key, id, ttlMs }: Claim): Promise<Standing> {
    const standing = (await this.#renew([{ key, id, ttlMs }]))[0] as Standing
    if (standing.state === 'failed') throw standing.error
    return standing
  }

  /** What became of one claim. Never rejects. */
  async #settle(session: ClassSession, claim: Claim, entered: EnterAnswers, startedAt: number): Promise<Standing> {
    const { created } = entered
    try {
      if ('error' in created) throw this.#explained(created.error)
      const view = await settled(this.#withoutTries(session, claim, entered.view))
      if ('error' in view) throw await this.#unread(session, claim, created.value, view.error)
      if (view.value === undefined) throw unsettled('enter')
      const standing = await this.#stand(session, claim, created.value, view.value, startedAt).catch(unsure)
      session.endEntering(claim.id)
      return standing
    } catch (error) {
      const failure = asEngineError('enter', error)
      if (failure.outcome === 'not-applied') session.endEntering(claim.id)
      return { state: 'failed', error: failure }
    }
  }

  /** The entry is there, and its line could not be read. */
  async #unread(session: ClassSession, { wait }: Claim, { path }: NumberedNode, cause: unknown): Promise<EngineError> {
    // Not transient: a child that is no entry of ours. Nothing can be known of this line, now or later.
    const failure = asEngineError('enter', cause)
    // A waiter that is asked for again is found, and so keeps its place.
    const stays = wait && failure.transient
    const outcome = !stays && (await this.#takeBack(session, path)) ? 'not-applied' : 'unknown'
    return withOutcome(failure, outcome)
  }

  /** Where the path to the line could not be made, it is the root of this client that is missing. */
  #explained(error: unknown): unknown {
    const { chroot } = this.#context.servers
    return hasCode(error, 'noNode') && chroot !== '' ? noChroot(chroot) : error
  }

  async #stand(
    session: ClassSession,
    claim: Claim,
    { path, czxid: token }: NumberedNode,
    view: ZooKeeperLine,
    startedAt: number,
  ): Promise<Standing> {
    const { key, id, weight, limit, ttlMs, wait } = claim
    const { name } = this.#context.names.parse(path)
    // It was given up while this enter was on its way, maybe before the entry was created.
    if (!session.has(id)) {
      await this.#takeBack(session, path)
      return { state: 'gone', why: 'unknown' }
    }
    const first = findEntry(view, id)
    if (view.evicted.has(id) || (first !== undefined && first.entry.name !== name)) {
      await session.deleteDuplicates(key, id, view)
      if (view.evicted.has(id)) return { state: 'gone', why: 'evicted' }
      const standing = await this.#renewOne(claim)
      if (wait || standing.state !== 'waiting') return standing
      session.forget(id)
      await session.deleteById(key, id)
      return { state: 'busy', ahead: standing.ahead }
    }
    const held = first !== undefined && first.ahead < view.held
    const ahead = first?.ahead ?? view.entries.filter((one) => byNumber(one, { number: numberIn(name) }) < 0).length
    if (!held && !wait) {
      await this.#takeBack(session, path)
      return { state: 'busy', ahead }
    }
    // Another client has taken it out already.
    if (first === undefined) return await this.#renewOne(claim)
    if (ahead >= LINE_BOUND) {
      await this.#takeBack(session, path)
      return { state: 'failed', error: new LineFullError(key, LINE_BOUND) }
    }
    const entry = session.record({ key, id, name, weight, limit, token, ttlMs, held })
    const leftMs = Math.min(session.zk.leftMs(startedAt), ttlMs)
    if (held) return { state: 'held', token, heldForMs: leftMs }
    session.waiters.add(entry, view)
    // It may hold by what was read meanwhile.
    if (entry.held) return { state: 'held', token, heldForMs: leftMs }
    return { state: 'waiting', ahead, livesForMs: leftMs }
  }

  /** The line, read again where the entry waits for nothing but tries that do not hold, until they have gone. */
  async #withoutTries(session: ClassSession, { key, id }: Claim, read: Settled<MaybeLine>): Promise<MaybeLine> {
    if ('error' in read) throw read.error
    let view = read.value
    for (const delayMs of READ_AGAIN_MS) {
      if (view === undefined || !waitsForTries(view, id)) break
      await new Promise<void>((resolve) => this.#context.clock.timer(delayMs, resolve))
      view = (await session.lines.readNow(key)) ?? view
    }
    return view
  }

  /** Answers whether it has surely gone. */
  async #takeBack(session: ClassSession, path: string): Promise<boolean> {
    try {
      await session.deletions.delete(path)
      return true
    } catch {
      return false
    }
  }
}

const numbered = ({ path, stat }: CreatedNode): NumberedNode => ({ path, czxid: stat.czxid })

/** The entry was created. That a later request was refused says nothing of it. */
function unsure(error: unknown): never {
  throw withOutcome(asEngineError('enter', error), 'unknown')
}

/** A node of a path could not be created. That it exists, or that the one above it does not, is no reason. */
function isRefused(made: Settled<CreatedNode>): made is { readonly error: unknown } {
  return 'error' in made && !hasCode(made.error, 'nodeExists') && !hasCode(made.error, 'noNode')
}
