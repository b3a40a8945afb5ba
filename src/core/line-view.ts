/** A line, for people to look at: what `inspect` and `list` answer. */

/** One entry, for people to look at. */
export interface LineEntry {
  readonly id: string
  readonly holder: string
  readonly state: 'held' | 'waiting'
  /** The fencing token; null where the engine has none, or mints it later than the entry. */
  readonly token: bigint | null
  readonly weight: number
  readonly limit: number
  readonly ttlMs: number
  /** Time until it expires unless renewed. */
  readonly remainingMs: number
  /** Time since it entered the line; null where the engine does not store it. */
  readonly ageMs: number | null
  /** Time since it began to hold; null for waiters, and where the engine does not store it. */
  readonly heldMs: number | null
  /**
   * It was evicted by expiry: it is not renewed any more, and holds until its work has stopped or its ttl is over.
   * Absent otherwise, and where the engine does not tell.
   */
  readonly evicted?: true
}

/** A line as it stands: held entries first, then the waiting ones, in order. Without entries, it is free. */
export interface Line {
  readonly key: string
  readonly entries: readonly LineEntry[]
}

/** A line in a listing. */
export interface LineSummary {
  readonly key: string
  readonly held: number
  readonly waiting: number
}

/** One line in a sample. */
export interface LineSample {
  readonly key: string
  /** How many entries hold. */
  readonly held: number
  /** How many entries wait. */
  readonly waiting: number
  /**
   * How long the entry that has held for longest has; null if none holds. Where the engine does not store it, how long
   * it was seen to hold, and null if it was looked at once.
   */
  readonly oldestHoldMs: number | null
  /** The same for the entry that has waited for longest. */
  readonly oldestWaitMs: number | null
  /** Who has held it for longest. */
  readonly holder: string | null
}

/** Lines at one time: what `locks.sample` publishes. */
export interface Sample {
  /** The lines that have entries. */
  readonly lines: readonly LineSample[]
  /** How many more lines there were. */
  readonly unsampled: number
}
