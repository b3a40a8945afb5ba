/** The entries that this engine object has in lines, as far as it knows: types only. */

export interface ZooKeeperOwnEntry extends OwnEntryState {
  readonly key: string
  readonly id: string
  readonly name: string
  readonly weight: number
  readonly limit: number
  readonly token: bigint
  ttlMs: number
  held: boolean
}

/** What class-session.ts keeps of it. */
export interface OwnEntryState {
  /** Its node is watched, and nothing has happened to it since. */
  watched: boolean
  /** How many events of its node have come. */
  events: number
  /** Something has happened to its node. */
  doubtful: boolean
  evicted: boolean
  /** When the core last asked for it. */
  requestedAt: number
}
