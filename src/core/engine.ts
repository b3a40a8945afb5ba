/**
 * The contract between the core and an engine: types, and `UNLIMITED`.
 *
 * An engine keeps **lines**. Three verbs change entries of its own process (`enter`, `renew`, `leave`), `evict` takes
 * out any entry, two look at lines (`inspect`, `list`), and one subscription wakes waiters. The core does everything
 * else, once for all engines: waiting, deadlines, heartbeats, batching, unknown outcomes, cancellation. An engine keeps
 * no timer for a lease, does not wait for a lock to be free, and repeats within a call only what certainly did not
 * happen (a refused transaction, a script that the server does not know).
 *
 * The nine duties of every engine are written down in docs/writing-an-engine.md and checked by `holdfast/conformance`.
 * Read `engines/memory/` next: it is the reference.
 */
import type { Claim, EntryName, Place, Standing } from './claim.ts'
import type { Line, LineSummary } from './line-view.ts'
import type { Store } from './store.ts'

export type { Claim, EntryName, GoneReason, Place, Standing } from './claim.ts'
export type { Line, LineEntry, LineSummary } from './line-view.ts'

/**
 * The limit of a reader: so large that it never binds. Also the largest limit an engine has to store (a signed 32-bit
 * integer).
 */
export const UNLIMITED = 2147483647

/**
 * What wakes the core. A hint: waking early is harmless, and not waking costs only time, because every renewal of a
 * waiter is also its poll. An engine that knows the new standing sends it along; then a hand-off costs one message and
 * no further round trip. `gap` says that news may have been missed, or that the engine is there again (a reconnect):
 * the core then renews all its waiters, and the holders that it could not renew.
 */
export type News = { readonly key: string; readonly id: string; readonly standing?: Standing } | { readonly gap: true }

/** What an engine can and cannot promise. Every member says what follows from it for a user. */
export interface Traits {
  /**
   * `fifo`: first come, first served, across processes. `none`: by luck; a waiter can starve under heavy
   * contention.
   */
  readonly order: 'fifo' | 'none'
  /** Whether grants carry a token. Without one a guard cannot refuse a stale holder, and `lease.token` is null. */
  readonly fencing: boolean
  /**
   * Which limits are served. `full`: all. `read-write`: 1 and unlimited, so there are read locks, and no semaphores
   * above 1. `none`: only 1, so there are neither. What is not served is refused when the lock is created.
   */
  readonly sharing: 'full' | 'read-write' | 'none'
  /**
   * What a ttl belongs to. `entry`: each entry has its own. `class`: entries of one ttl and one process live and die
   * together. `session`: all entries of a process do, and the ttl is that of the session.
   */
  readonly ttl: 'entry' | 'class' | 'session'
  /** The shortest ttl the engine keeps. A lock with a shorter one is refused when it is created. */
  readonly minTtlMs: number
  /**
   * The longest ttl the engine keeps, if there is one: that of its session, say. A lock with a longer one has this one,
   * so a lease lives for no longer without renewal, whatever was asked for; `release({ after })` beyond it is refused.
   */
  readonly maxTtlMs?: number
  /**
   * Whether a holder that watches its deadline always knows of its loss before the next one is let in. `false` for
   * session locks that a server can free at any moment: there, only a guard protects the resource.
   */
  readonly lossBeforeNext: boolean
  /** How many entries one line takes before `LineFullError`; on session locks, of one process. */
  readonly lineBound: number
  /** How many items one call takes; the core splits larger batches. */
  readonly batchLimit: number
  /**
   * For an engine that enters claims of one line one after the other: how many of them one `enter` takes. All of them
   * share the time limit of the call; the others wait for the next call.
   */
  readonly claimsPerLine?: number
  /**
   * For an engine whose calls are worked on elsewhere, by a server that takes the next one meanwhile: from how many
   * items on a call is worth making. The core then cuts a batch of twice as many enters or leaves in two, so that the
   * server works on one half while this process works on the other.
   */
  readonly splitFrom?: number
  /**
   * Which verbs can do anything with an `AbortSignal`. These calls are given a signal that aborts at the core's
   * deadline, and the engine drops what it has not sent by then. The others are given none: making a signal is the
   * dearest part of a call that costs nothing else.
   */
  readonly takesSignal: readonly ('enter' | 'renew')[]
  /** In one sentence: what tokens survive, and what they assume. */
  readonly tokensSurvive: string
  /** In one sentence: which faults the engine survives with its promises intact. */
  readonly survives: string
}

/** Something about a server that decides what locks on it are worth: one row of `holdfast doctor`. */
export interface Finding {
  /** What was looked at: `version`, `durability`, `clock skew`. */
  readonly name: string
  /** `warn`: some promise is weaker here. `fail`: locks do not work here, or not safely. */
  readonly status: 'ok' | 'warn' | 'fail'
  /** What was found, as a sentence. */
  readonly finding: string
  /** What to do about it. */
  readonly todo?: string
}

/** What keeps lines. One engine object is one client of it. */
export interface Engine extends AsyncDisposable {
  /** The engine's name as in the URL, the docs and the folder: `redis`, `sqlite`. */
  readonly name: string
  readonly traits: Traits
  /**
   * Enter lines; an enter of a live id renews it. Answers in the order of the claims. A rejected promise speaks for the
   * whole batch: `EngineError` with `outcome: 'not-applied'` only where nothing can have been applied; anything else
   * counts as unknown. `signal` aborts at the core's deadline: drop what has not been sent. It is given only to
   * the verbs of `traits.takesSignal`.
   */
  enter(claims: readonly Claim[], signal?: AbortSignal): Promise<readonly Standing[]>
  /**
   * Heartbeat, poll and discovery of a grant in one. Sets the expiry to now + `ttlMs`; never brings back what is gone.
   */
  renew(places: readonly Place[], signal?: AbortSignal): Promise<readonly Standing[]>
  /**
   * Release or cancel. Answers whether the entry was in the line. Settles the line. Has no signal: it is never
   * cancelled.
   */
  leave(places: readonly EntryName[]): Promise<readonly boolean[]>
  /**
   * Remove an entry of any client, named by its token; false if no such entry is there. `expire`: refuse the renewals
   * of a holder and tell it, so that it learns of its end before the next one is let in; a leave of it frees the line.
   * `now`: free the line at once, though the holder may still be working. A waiter goes at once either way. Until it
   * would have expired, its owner is answered `gone`, `evicted`.
   */
  evict(key: string, token: bigint, how: 'expire' | 'now'): Promise<boolean>
  inspect(key: string): Promise<Line>
  /**
   * Lines that have entries, whose key starts with `prefix`, bytewise. In no promised order. An engine that looks
   * through much in which it finds nothing calls `onProgress` whenever a part of it is done: else no answer would be
   * told from a long one.
   */
  list(prefix: string, onProgress?: () => void): AsyncIterable<LineSummary>
  /**
   * News for entries of this engine object. Called before the first enter, which waits for it: else a wake-up could be
   * lost. Called again only if it failed, or was not answered in time; the last listener counts, and ending an earlier
   * subscription does not end a later one.
   */
  subscribe?(listener: (news: News) => void): Promise<AsyncDisposable>
  /**
   * Call `listener` when the line of `key` may have changed; for observers who have no entry in it. A hint, like news.
   */
  watch?(key: string, listener: () => void): Promise<AsyncDisposable>
  /** Records beside the lines (store.ts). Absent: recipes on this engine need the store of another one. */
  readonly store?: Store
  /** What could break the promises of locks on this server, for `holdfast doctor`. Rejects with `EngineError`. */
  diagnose?(): Promise<readonly Finding[]>
}
