/** The sessions of an engine object: one for each ttl in use, and short ones for what is to run out by itself. */
import { ZooKeeperSession } from '../../clients/zookeeper/session.ts'
import { ClassSession, type ZooKeeperContext } from './class-session.ts'
import { asEngineError, engineClosed, ttlTooLong, type ZooKeeperCall } from './errors.ts'

/** For looking at lines, where no entry of ours is in any. */
const LOOKING_TTL_MS = 10_000

const secondsOf = (ttlMs: number): number => Math.ceil(ttlMs / 1000)

export class ClassSessions {
  readonly #context: ZooKeeperContext
  readonly #sessions = new Map<number, ClassSession>()
  readonly #opening = new Map<number, Promise<ClassSession>>()
  #closed = false

  constructor(context: ZooKeeperContext) {
    this.#context = context
  }

  /** The session for this ttl, if it is at hand. */
  atHand(ttlMs: number): ClassSession | undefined {
    const session = this.#sessions.get(secondsOf(ttlMs))
    return session?.usable === true ? session : undefined
  }

  /** The session for this ttl. Rejects with `EngineError` if there is none to be had: then nothing was sent. */
  async open(ttlMs: number, call: ZooKeeperCall): Promise<ClassSession> {
    const seconds = secondsOf(ttlMs)
    const known = this.atHand(ttlMs)
    if (known !== undefined) return known
    const opening = this.#opening.get(seconds) ?? this.#open(seconds).finally(() => this.#opening.delete(seconds))
    this.#opening.set(seconds, opening)
    try {
      return await opening
    } catch (error) {
      throw asEngineError(call, error, { sent: false })
    }
  }

  /** A session to look at lines with. */
  async any(call: ZooKeeperCall): Promise<ClassSession> {
    for (const session of this.#sessions.values()) if (session.usable) return session
    return await this.open(LOOKING_TTL_MS, call)
  }

  /** The session that has this entry, or lets it enter. */
  find(id: string): ClassSession | undefined {
    for (const session of this.#sessions.values()) if (session.usable && session.has(id)) return session
    return undefined
  }

  get all(): Iterable<ClassSession> {
    return this.#sessions.values()
  }

  /** A session that is to run out after `timeoutMs`: its user calls `abandon`. */
  async openShort(timeoutMs: number): Promise<ZooKeeperSession> {
    const { servers, clock } = this.#context
    const session = new ZooKeeperSession({ servers, clock, timeoutMs: Math.ceil(timeoutMs) })
    await session.connect()
    return session
  }

  ended(session: ClassSession): void {
    for (const [seconds, one] of this.#sessions) if (one === session) this.#sessions.delete(seconds)
  }

  /** End all sessions, with everything that lives by them; also one that is being opened. */
  async close(): Promise<void> {
    this.#closed = true
    await Promise.all([...this.#sessions.values()].map((session) => session.close()))
    await Promise.allSettled(this.#opening.values())
    this.#sessions.clear()
  }

  async #open(seconds: number): Promise<ClassSession> {
    const ttlMs = seconds * 1000
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
    this.#sessions.set(seconds, session)
    return session
  }
}
