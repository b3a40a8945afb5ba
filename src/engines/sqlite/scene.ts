/** A transaction's surroundings: the file as it sees it, and what is to happen once it is committed. */
import type { News } from '../../core/engine.ts'
import type { Bulk } from './bulk.ts'
import type { Clients } from './clients.ts'
import type { Statements } from './statements.ts'
import type { Stay } from './waiters.ts'

/** What is to be done once the transaction is committed. */
export interface Effects {
  readonly news: News[]
  /** Clients in other engine objects who have news, and the token of a grant among it; 0 where it is something else. */
  readonly wake: Map<number, number>
  /** Lines in which somebody came to hold, or went. */
  readonly changed: Set<string>
  /** Our own waiters, in order, as they stand in line now; `stay` undefined: no longer. */
  readonly waiters: { readonly key: string; readonly id: string; readonly stay: Stay | undefined }[]
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
  /**
   * Remove the wake files of clients that are not in the file any more. Nobody else can be about to make one while we
   * write.
   */
  readonly tidyWakes: (isKnown: (client: number) => boolean) => void
}

export function noEffects(): Effects {
  return { news: [], wake: new Map(), changed: new Set(), waiters: [] }
}
