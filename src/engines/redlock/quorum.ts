/**
 * How an entry enters, renews and leaves on a majority of servers. It knows servers only by what they reply
 * (quorum-server.ts), so that the simulator can put its own in their place.
 *
 * Between two calls it remembers little. What this process holds, and with which token: so that a server that has lost
 * it can be repaired. And what is still to be given back to servers that were away.
 */
import { CallLimits } from '../../clients/shared/call-limits.ts'
import type { Chance, Clock } from '../../core/clock.ts'
import type { Claim, EntryName, Place, Standing } from '../../core/engine.ts'
import { noMajority } from './errors.ts'
import { type FinalLeave, OutgoingMessages } from './outgoing-messages.ts'
import { RedlockOwnEntries, type RedlockOwnEntry } from './own-entries.ts'
import { majorityOf, type RefusalSummary } from './quorum-decision.ts'
import { type QuorumContext, QuorumRound, type RoundResult } from './quorum-round.ts'
import type { QuorumServer, TakeRequest } from './quorum-server.ts'

export interface QuorumOptions {
  readonly servers: readonly QuorumServer[]
  readonly clock: Clock
  readonly chance: Chance
  /** How long a server that does not answer is waited for. */
  readonly timeoutMs: number
  /** Called for each entry that waits, so that it asks again in time. */
  readonly onWaiting: (place: Place, summary: RefusalSummary) => void
}

type OnStandings = (standings: readonly Standing[]) => void

/** One entry of a call, and what has come of it. It may take several rounds. */
interface CalledEntry {
  readonly place: Place
  readonly mode: TakeRequest['mode']
  readonly entry: RedlockOwnEntry
  result: RoundResult | undefined
}

/**
 * A try that fails because other entries came at the same moment is made again, so that one of them gets the key; this
 * often at most.
 */
const ATTEMPTS = 6
/**
 * For how long such a try pauses: about a round trip, and a random part of it, so that two of them do not meet again.
 */
const PAUSE_MS = 4
/** How long something may live of an entry that this process has forgotten. */
const UNKNOWN_TTL_MS = 60_000

export class Quorum {
  readonly #context: QuorumContext
  readonly #onWaiting: QuorumOptions['onWaiting']
  #attempts = 0

  constructor({ servers, clock, chance, timeoutMs, onWaiting }: QuorumOptions) {
    this.#context = {
      servers,
      clock,
      chance,
      timeoutMs,
      limits: new CallLimits(clock),
      outgoing: new OutgoingMessages(servers, clock),
      entries: new RedlockOwnEntries(clock),
    }
    this.#onWaiting = onWaiting
  }

  enter(claims: readonly Claim[], done: OnStandings): void {
    const { entries } = this.#context
    this.#take(
      claims.map((place) => ({
        place,
        mode: place.wait ? 'wait' : 'try',
        entry: entries.use(place.key, place.id, place.holder),
        result: undefined,
      })),
      done,
    )
  }

  renew(places: readonly Place[], done: OnStandings): void {
    const { entries } = this.#context
    this.#take(
      places.map((place) => ({ place, mode: 'renew', entry: entries.use(place.key, place.id, ''), result: undefined })),
      done,
    )
  }

  /** `were` is undefined if no majority has answered. */
  leave(places: readonly EntryName[], done: (were: readonly boolean[] | undefined, error?: Error) => void): void {
    const { servers, limits, timeoutMs, outgoing, entries } = this.#context
    // From now on no request that is still under way sets anything of these entries. On a connection in order, the
    // leave arrives after all of them; what is answered late is given back once more.
    const leaves = places.map(({ key, id }): FinalLeave => {
      const entry = entries.leave(id)
      return { key, id, ttlMs: entry?.ttlMs ?? UNKNOWN_TTL_MS, askedServers: entry?.askedServers }
    })
    const most = majorityOf(servers.length)
    const yes = places.map(() => 0)
    let [open, answered, over] = [servers.length, 0, false]
    const finish = (): void => {
      if (over) return
      over = true
      timer.cancel()
      if (answered < most) done(undefined, noMajority('leave', answered, servers.length))
      else done(yes.map((count) => count >= most))
    }
    const timer = limits.start(timeoutMs, finish)
    for (let server = 0; server < servers.length; server += 1) {
      outgoing.leaveForGood(server, leaves, (were) => {
        open -= 1
        if (were !== undefined) {
          answered += 1
          for (let index = 0; index < were.length; index += 1) if (were[index]) yes[index] = (yes[index] as number) + 1
        }
        if (open === 0 || (answered >= most && yes.every((count) => count >= most || count + open < most))) finish()
      })
    }
  }

  /** The server of that index can be asked again. */
  serverReturned(server: number): void {
    this.#context.outgoing.sendPending(server)
  }

  /** Calls back when every leave that was sent has been answered, or has failed with its connection. */
  whenLeavesAnswered(call: () => void): void {
    this.#context.outgoing.whenAnswered(call)
  }

  /** Whether that entry is in some line, as far as this process knows, or is being asked for. */
  has(id: string): boolean {
    return this.#context.entries.has(id)
  }

  /** How many entries are remembered. */
  get size(): number {
    return this.#context.entries.size
  }

  #take(called: readonly CalledEntry[], done: OnStandings): void {
    this.#attempt(called, 1, () => {
      for (const { place, entry, result } of called) {
        const { standing, summary } = result as RoundResult
        if (standing.state === 'waiting' && summary !== undefined && !entry.left) this.#onWaiting(place, summary)
        entry.unanswered -= 1
        // A lease that outlives its process is not renewed by this process any more.
        if (place.outlives === true && standing.state === 'held') this.#context.entries.forget(entry)
        else this.#context.entries.release(entry)
      }
      done(called.map(({ result }) => (result as RoundResult).standing))
    })
  }

  #attempt(called: readonly CalledEntry[], count: number, done: () => void): void {
    const { clock, chance } = this.#context
    const requests = called.map((one) => this.#requestFor(one))
    const entries = called.map(({ entry }) => entry)
    new QuorumRound(this.#context, requests, entries, (results) => {
      for (let index = 0; index < called.length; index += 1) (called[index] as CalledEntry).result = results[index]
      const again = count < ATTEMPTS ? called.filter(isWorthAnother) : []
      if (again.length === 0) done()
      else clock.timer(PAUSE_MS * count * chance.fraction(), () => this.#attemptAgain(again, count + 1, done))
    })
  }

  /** Entries that have left meanwhile want nothing any more. */
  #attemptAgain(called: readonly CalledEntry[], count: number, done: () => void): void {
    const staying = called.filter(({ entry }) => !entry.left)
    if (staying.length === 0) done()
    else this.#attempt(staying, count, done)
  }

  /** A holder goes on with the attempt that the key was granted to. */
  #requestFor({ place, mode, entry }: CalledEntry): TakeRequest {
    if (entry.token === undefined) this.#attempts += 1
    const attempt = entry.token === undefined ? this.#attempts : entry.attempt
    const { key, id, ttlMs, outlives = false } = place
    return { key, id, ttlMs, outlives, mode, attempt, holder: entry.holder }
  }
}

function isWorthAnother({ mode, result }: CalledEntry): boolean {
  return (
    mode === 'try' && result?.standing.state === 'busy' && result.summary?.split === true && !result.summary.stranger
  )
}
