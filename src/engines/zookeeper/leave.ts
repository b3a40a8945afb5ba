/**
 * Leaving lines: the nodes of entries are deleted, those of one session in one transaction. An entry that this engine
 * object does not know is looked for by its id.
 */
import { hasCode } from '../../clients/zookeeper/errors.ts'
import type { EntryName } from '../../core/engine.ts'
import type { ClassSession } from './class-session.ts'
import type { ClassSessions } from './class-sessions.ts'
import { asEngineError } from './errors.ts'

/** An entry of a session, which is asked for at this index. */
interface KnownPlace {
  readonly index: number
  readonly place: EntryName
  readonly path: string
}

export class ZooKeeperLeaveCalls {
  readonly #sessions: ClassSessions

  constructor(sessions: ClassSessions) {
    this.#sessions = sessions
  }

  /** Answers for each whether it was there. */
  async leave(places: readonly EntryName[]): Promise<readonly boolean[]> {
    const leaving: Promise<boolean>[] = []
    for (const [session, known] of this.#bySession(places)) {
      const deleted = session.deletions.deleteAll(known.map(({ path }) => path))
      // Other entries of this process wait behind them: what these have to know comes in the same round trip.
      for (const key of new Set(known.map(({ place }) => place.key))) session.waiters.changed(key)
      for (const [nth, { index, place }] of known.entries())
        leaving[index] = this.#left(session, place, deleted[nth] as Promise<boolean>)
    }
    const answers = await Promise.allSettled(places.map((place, index) => leaving[index] ?? this.#leaveUnknown(place)))
    return answers.map((answer) => {
      if (answer.status === 'fulfilled') return answer.value
      throw asEngineError('leave', answer.reason)
    })
  }

  /** The entries that this engine object knows. From now on it does not: a second place of an id is unknown. */
  #bySession(places: readonly EntryName[]): ReadonlyMap<ClassSession, readonly KnownPlace[]> {
    const bySession = new Map<ClassSession, KnownPlace[]>()
    for (const [index, place] of places.entries()) {
      const session = this.#sessions.find(place.id)
      const entry = session?.entries.get(place.id)
      if (session === undefined || entry === undefined) continue
      const known = bySession.get(session) ?? []
      bySession.set(session, known)
      known.push({ index, place, path: session.pathOf(entry) })
      session.forget(place.id)
    }
    return bySession
  }

  async #left(session: ClassSession, place: EntryName, deleted: Promise<boolean>): Promise<boolean> {
    try {
      // Another engine object may have taken it out, and let it enter again by another name.
      return (await deleted) || (await this.#leaveUnknown(place))
    } catch (error) {
      // With its session, everything of it has gone.
      if (hasCode(error, 'sessionExpired') && !session.usable) return false
      throw error
    }
  }

  /** It may have entered without our knowing it, or by another engine object. */
  async #leaveUnknown({ key, id }: EntryName): Promise<boolean> {
    const session = this.#sessions.find(id) ?? (await this.#sessions.any('leave'))
    return await session.deleteById(key, id)
  }
}
