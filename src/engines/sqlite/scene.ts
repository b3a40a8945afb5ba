/** A transaction's surroundings: the file as it sees it, and what is to happen once it is committed. */
import type { News } from '../../core/engine.ts'
import type { Bulk } from './bulk.ts'
import type { Clients } from './clients.ts'
import type { Statements } from './statements.ts'

/** What is to be done once the transaction is committed. */
export interface Effects {
  readonly news: News[]
  /** Clients in other engine objects who have news. */
  readonly wake: Set<number>
  /** Lines in which somebody came to hold, or went. */
  readonly changed: Set<string>
  /** Our own waiters, in order: until when they stand in line; undefined: no longer. */
  readonly waiters: { readonly key: string; readonly id: string; readonly until: number | undefined }[]
}

/** The file as this transaction sees it. */
export interface Scene {
  readonly sql: Statements
  readonly clients: Clients
  readonly bulk: Bulk
  readonly now: number
  readonly epoch: number
  readonly file: string
  /** We are about to wait: be ready to be woken before that is committed. */
  readonly willWait: (client: number) => void
  /** Remove the wake files of clients that are not in the file any more. Nobody else can be about to make one while we write. */
  readonly tidyWakes: (isKnown: (client: number) => boolean) => void
}

export function noEffects(): Effects {
  return { news: [], wake: new Set(), changed: new Set(), waiters: [] }
}
