/**
 * Renewing: one write for each session, which proves that it lives, whatever the number of its entries. What is known
 * of the entries is true as of that write, because what watches have to tell comes before its answer. An entry that is
 * not watched yet is looked at in the same round trip, and so are the lines in which entries wait: should an event have
 * been lost, a waiter learns from its renewal that it holds.
 *
 * An entry of which nothing is known, or to which something has happened, is looked for. It may have been entered by
 * another engine object. Then it is moved here (move-entry.ts), with its token in its data.
 */
import { hasCode } from '../../clients/zookeeper/errors.ts'
import type { Place, Standing } from '../../core/engine.ts'
import type { EngineCall } from '../../core/failed-call.ts'
import type { ClassSession, ZooKeeperContext } from './class-session.ts'
import type { ClassSessions } from './class-sessions.ts'
import { findEntry, readEntryData, tokenOf, writeData, type ZooKeeperLine } from './codec.ts'
import { asEngineError, unsettled } from './errors.ts'
import type { MaybeLine } from './line-reader.ts'
import { moveSteps } from './move-entry.ts'
import type { ZooKeeperOwnEntry } from './own-entries.ts'
import type { EntryRemovals } from './removals.ts'
import type { Settled } from './request-results.ts'

/** How often an entry is looked for that other clients keep moving. */
const TRIES = 10

const GONE: Standing = { state: 'gone', why: 'unknown' }
const EVICTED: Standing = { state: 'gone', why: 'evicted' }

/** An entry of ours, and the place that the core asks for. */
interface OwnPlace {
  readonly place: Place
  readonly entry: ZooKeeperOwnEntry
}

/** What all places of one call have in common. */
interface Renewal {
  /** What the core has called, for errors: `renew`; or `enter`, for entries that are in their lines already. */
  readonly call: EngineCall
  readonly startedAt: number
}

export class ZooKeeperRenewCalls {
  readonly #context: ZooKeeperContext
  readonly #sessions: ClassSessions
  readonly #removals: EntryRemovals

  constructor(context: ZooKeeperContext, sessions: ClassSessions, removals: EntryRemovals) {
    this.#context = context
    this.#sessions = sessions
    this.#removals = removals
  }

  async renew(call: EngineCall, places: readonly Place[]): Promise<readonly Standing[]> {
    const renewal = { call, startedAt: this.#context.clock.now() }
    const failed = failedIn(call)
    const standings = new Map<Place, Promise<Standing>>()
    const own = new Map<ClassSession, OwnPlace[]>()
    for (const place of places) {
      const session = this.#sessions.find(place.id)
      const entry = session?.entries.get(place.id)
      if (place.outlives === true) standings.set(place, this.#removals.outlive(place).catch(failed))
      else if (session === undefined || entry === undefined)
        standings.set(place, this.#find(place, session, renewal).catch(failed))
      else own.set(session, [...(own.get(session) ?? []), { place, entry }])
    }
    for (const [session, ownPlaces] of own) {
      const renewing = this.#renewOwn(session, ownPlaces, renewal)
      for (const { place } of ownPlaces)
        standings.set(
          place,
          renewing.then((found) => found.get(place) ?? GONE, failed),
        )
    }
    return await Promise.all(places.map((place) => standings.get(place) as Promise<Standing>))
  }

  async #renewOwn(
    session: ClassSession,
    ownPlaces: readonly OwnPlace[],
    renewal: Renewal,
  ): Promise<ReadonlyMap<Place, Standing>> {
    for (const { entry } of ownPlaces) entry.requestedAt = renewal.startedAt
    const confirmed = session.zk.confirm()
    const looks = ownPlaces.filter(({ entry }) => !entry.watched).map(({ entry }) => session.watchOwn(entry))
    const lines = new Set(ownPlaces.filter(({ entry }) => !entry.held).map(({ place }) => place.key))
    const reading = session.lines.readAll([...lines]).then((views) => {
      for (const [key, line] of views)
        if ('value' in line && line.value !== undefined) session.waiters.saw(key, line.value)
      return views
    })
    for (const look of looks) look.catch(() => {})
    try {
      await confirmed
    } catch (error) {
      if (session.usable || !hasCode(error, 'sessionExpired')) throw error
      return new Map(ownPlaces.map(({ place }) => [place, { state: 'gone', why: 'expired' }]))
    }
    await Promise.all(looks)
    const views = await reading
    const standings = new Map<Place, Standing>()
    for (const ownPlace of ownPlaces) {
      const { place } = ownPlace
      const standing = this.#standing(session, ownPlace, views.get(place.key), renewal)
      standings.set(place, await standing.catch(failedIn(renewal.call)))
    }
    return standings
  }

  async #standing(
    session: ClassSession,
    { place, entry }: OwnPlace,
    line: Settled<MaybeLine> | undefined,
    renewal: Renewal,
  ): Promise<Standing> {
    if (session.entries.get(place.id) !== entry || entry.doubtful) return await this.#find(place, session, renewal)
    if (entry.evicted) return EVICTED
    const leftMs = Math.min(session.zk.leftMs(renewal.startedAt), place.ttlMs)
    if (entry.held) return { state: 'held', token: entry.token, heldForMs: leftMs }
    if (line !== undefined && 'error' in line) throw line.error
    const view = line?.value
    const ahead = view?.entries.findIndex(({ name }) => name === entry.name) ?? -1
    if (ahead < 0 || view === undefined) return await this.#find(place, session, renewal)
    session.waiters.add(entry, view)
    // What was read may have told so.
    if (entry.held) return { state: 'held', token: entry.token, heldForMs: leftMs }
    return { state: 'waiting', ahead, livesForMs: leftMs }
  }

  /** Look for an entry, and have it live by a session of ours. */
  async #find(place: Place, known: ClassSession | undefined, renewal: Renewal): Promise<Standing> {
    const { key, id, ttlMs } = place
    const session = known ?? (await this.#sessions.open(ttlMs, renewal.call))
    for (let attempt = 1; attempt <= TRIES; attempt += 1) {
      const view = await session.lines.readNow(key)
      if (view !== undefined && view.duplicates.length > 0) await session.deleteDuplicates(key, id, view)
      const found = view === undefined ? undefined : findEntry(view, id)
      if (view?.evicted.has(id) === true || view === undefined || found === undefined) {
        session.forget(id)
        return view?.evicted.has(id) === true ? EVICTED : GONE
      }
      const standing = await this.#adopt(session, place, found.entry.name, view, renewal)
      if (standing !== undefined) return standing
    }
    throw unsettled(renewal.call)
  }

  /** Undefined: it has changed meanwhile. */
  async #adopt(
    session: ClassSession,
    { key, id, ttlMs }: Place,
    name: string,
    view: ZooKeeperLine,
    renewal: Renewal,
  ): Promise<Standing | undefined> {
    const { names, acl } = this.#context
    const path = names.entry(key, name)
    const held = view.entries.findIndex((one) => one.name === name) < view.held
    const ahead = view.entries.findIndex((one) => one.name === name)
    try {
      const { data, stat } = await session.zk.getData(path)
      const stored = readEntryData(data)
      const token = tokenOf(stored, stat)
      if (stored.evicted) return EVICTED
      if (stored.outlives) {
        // It was released for later. It ends with the session that it was moved to, and no renewal changes when.
        const leftMs = Math.min(stored.ttlMs, ttlMs)
        return held ? { state: 'held', token, heldForMs: leftMs } : { state: 'waiting', ahead, livesForMs: leftMs }
      }
      if (stat.ephemeralOwner !== session.zk.id) {
        const moved = writeData({ ...stored, ttlMs: session.zk.timeoutMs, token })
        await session.zk.multi(moveSteps({ path, version: stat.version, data: moved, acl }))
      }
      const { weight, limit } = view.entries[ahead] as ZooKeeperLine['entries'][number]
      const entry = session.record({ key, id, name, weight, limit, token, ttlMs, held })
      const leftMs = Math.min(session.zk.leftMs(renewal.startedAt), ttlMs)
      if (entry.held) return { state: 'held', token, heldForMs: leftMs }
      session.waiters.add(entry, view)
      return { state: 'waiting', ahead, livesForMs: leftMs }
    } catch (error) {
      if (hasCode(error, 'noNode') || hasCode(error, 'badVersion') || hasCode(error, 'nodeExists')) return undefined
      throw error
    }
  }
}

function failedIn(call: EngineCall): (error: unknown) => Standing {
  return (error) => ({ state: 'failed', error: asEngineError(call, error) })
}
