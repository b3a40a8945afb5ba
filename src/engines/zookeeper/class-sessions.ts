/**
 * The sessions of an engine object: one for each ttl in use, or more where it has thousands of entries, and short ones
 * for what is to run out by itself.
 */
import { ZooKeeperSession } from '../../clients/zookeeper/session.ts'
import { type EngineCall, failingAs } from '../../core/failed-call.ts'
import { ClassSession, type ZooKeeperContext } from './class-session.ts'
import { asEngineError, engineClosed, ttlTooLong } from './errors.ts'

/** For looking at lines, where no entry of ours is in any. */
const LOOKING_TTL_MS = 10_000

/** In whole seconds. */
const classOf = (ttlMs: number): number => Math.ceil(ttlMs / 1000) * 1000

export class ClassSessions {
  readonly #context: ZooKeeperContext
  readonly #sessions = new Set<ClassSession>()
  readonly #opening = new Map<number, Promise<ClassSession>>()
  #closed = false

  constructor(context: ZooKeeperContext) {
    this.#context = context
  }

  /** A session for this ttl that is at hand, and has room for entries whose paths have so many bytes. */
  atHand(ttlMs: number, bytes = 0): ClassSession | undefined {
    const classMs = classOf(ttlMs)
    for (const session of this.#sessions)
      if (session.ttlMs === classMs && session.usable && session.hasRoom(bytes)) return session
    return undefined
  }

  /** The same, or a new one. Rejects with `EngineError` if there is none to be had: then nothing was sent. */
  async open(ttlMs: number, call: EngineCall, bytes = 0): Promise<ClassSession> {
    const known = this.atHand(ttlMs, bytes)
    if (known !== undefined) return known
    const classMs = classOf(ttlMs)
    const opening = this.#opening.get(classMs) ?? this.#open(classMs).finally(() => this.#opening.delete(classMs))
    this.#opening.set(classMs, opening)
    return await failingAs(asEngineError, call, opening, { outcome: 'not-applied' })
  }

  /** A session to look at lines with. */
  async any(call: EngineCall): Promise<ClassSession> {
    for (const session of this.#sessions) if (session.usable) return session
    return await this.open(LOOKING_TTL_MS, call)
  }

  /** The session that has this entry, or lets it enter. */
  find(id: string): ClassSession | undefined {
    for (const session of this.#sessions) if (session.usable && session.has(id)) return session
    return undefined
  }

  get all(): Iterable<ClassSession> {
    return this.#sessions
  }

  /** A session that is to run out after `timeoutMs`: its user calls `abandon`. */
  async openShort(timeoutMs: number): Promise<ZooKeeperSession> {
    const { servers, clock } = this.#context
    const session = new ZooKeeperSession({ servers, clock, timeoutMs: Math.ceil(timeoutMs) })
    try {
      await session.connect()
    } catch (error) {
      // It would go on connecting, and live for ever.
      await session.close()
      throw error
    }
    return session
  }

  ended(session: ClassSession): void {
    this.#sessions.delete(session)
  }

  /** End all sessions, with everything that lives by them; also one that is being opened. */
  async close(): Promise<void> {
    this.#closed = true
    await Promise.all([...this.#sessions].map((session) => session.close()))
    await Promise.allSettled(this.#opening.values())
    this.#sessions.clear()
  }

  async #open(ttlMs: number): Promise<ClassSession> {
    const session = new ClassSession(this.#context, ttlMs)
    try {
      if (this.#closed) throw engineClosed()
      await session.zk.connect()
      if (this.#closed) throw engineClosed()
      if (session.zk.timeoutMs < ttlMs) throw ttlTooLong(ttlMs, session.zk.timeoutMs)
    } catch (error) {
      await session.close()
      throw error
    }
    if (session.usable) this.#sessions.add(session)
    return session
  }
}
