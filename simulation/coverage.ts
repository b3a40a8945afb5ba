/**
 * How often the interesting things really happened. A simulator that never loses the reply of an enter proves nothing
 * about lost replies: a run of `npm run simulate` with many seeds fails if one of these stays at zero (main.ts).
 */
export class Coverage {
  grants = 0
  /** Leases that a program had and lost, by what it was told. */
  deadlineLosses = 0
  expiryLosses = 0
  evictionLosses = 0
  closeLosses = 0
  maxHoldLosses = 0
  /** Processes that drained their locks while something was held. */
  drains = 0
  /** Enters that the core gave up on, or was told may or may not have been applied. */
  unknownEnters = 0
  /** Answers to calls that the core had given up on. */
  lateAnswers = 0
  /** Calls about more than one entry, and batches that went out in two halves. */
  sharedCalls = 0
  halvedBatches = 0
  /** Waiters that expired in line, and asked again. */
  reentries = 0
  evictedWaiters = 0
  /** News of a grant when more than half of the ttl had gone since the last answer. */
  tardyNews = 0
  /** News of a grant before the answer to the enter. */
  earlyNews = 0
  /** Cancelled or timed out when the server had granted it already. */
  racedCancels = 0
  /** Reads and writes with a stale token: the guarded register refused them. */
  staleAccesses = 0
  /** Updates that were lost where there was no guard. */
  lostWithoutGuard = 0
  nestings = 0
  terms = 0
  leadersSeen = 0
  gaps = 0

  add(other: Coverage): void {
    for (const name of Object.keys(this) as (keyof Omit<Coverage, 'add'>)[]) this[name] += other[name]
  }
}
