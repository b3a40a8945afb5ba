/** What an answer about an entry comes to: what the tracker does next, and how an attempt to acquire ends. */
import type { LossReason } from './errors.ts'

/** How an attempt to acquire ended. `again`: the entry expired in line; another one may enter, at the back. */
export type Outcome =
  | { readonly state: 'held' }
  | { readonly state: 'busy'; readonly ahead: number | null }
  | { readonly state: 'again' }
  | { readonly state: 'refused'; readonly error: Error }

/** What follows from an answer. */
export type Verdict =
  /** Nothing new. Look at it again in time. */
  | { readonly step: 'schedule' }
  /** Something has happened, or has to be made sure of: ask now, not at the next beat. */
  | { readonly step: 'ask' }
  /** It is held. */
  | { readonly step: 'hold'; readonly token: bigint | null }
  /** It was held, and is not any more. */
  | { readonly step: 'lose'; readonly why: LossReason }
  /** The attempt is over, and nothing of it is in the line. */
  | { readonly step: 'finish'; readonly outcome: Outcome }
  /** The attempt is over, and it has to be taken out of the line. */
  | { readonly step: 'refuse'; readonly error: Error }

export const HELD: Outcome = { state: 'held' }
export const SCHEDULE: Verdict = { step: 'schedule' }
export const ASK: Verdict = { step: 'ask' }
