/**
 * One server of a Redlock, as the quorum sees it: types only.
 *
 * A server knows nothing of the other servers. For each key it stores which entry has taken the key, and the **number**
 * that it counted to at that moment. On one server the numbers of one key only go up. What the replies of several
 * servers add up to is decided in quorum-decision.ts. server.ts implements this on Redis; the simulator has an
 * implementation of its own.
 */
import type { Place } from '../../core/engine.ts'

/** Take this key for this entry, or renew it. */
export interface TakeRequest extends Place {
  readonly holder: string
  /**
   * `try`: now or not at all. `wait`: if not now, stand in line. `renew`: only if the entry has the key on this server
   * already, or stands in line there.
   */
  readonly mode: 'try' | 'wait' | 'renew'
  /** Counts the attempts of this process. A request that undoes an attempt does nothing to a later one. */
  readonly attempt: number
}

/** What a server replies. A number: the entry has the key on this server, for the ttl, under that number. */
export type TakeReply = number | TakeRefusal

export type TakeRefusal =
  | {
      /** Another entry has the key on this server. */
      readonly why: 'taken'
      /** The id of that entry, or a hash of a stranger's value: it tells whether two servers name the same holder. */
      readonly by: string
      /** The holder does not use Holdfast. It sends no signal when it releases. */
      readonly stranger: boolean
      /** How many are before this entry, and whether it is the first of those that wait. */
      readonly ahead: number
      readonly next: boolean
      /** When to ask again, should no signal come. */
      readonly recheckMs: number
    }
  /** Only for `renew`: the entry neither has the key nor stands in line. `nowMs` is the time by the server's clock. */
  | { readonly why: 'missing'; readonly nowMs: number }
  | { readonly why: 'evicted' }
  /** The line is full, or what is stored at the key is not a lock that a waiter could wait for. */
  | { readonly why: 'unusable'; readonly kind: string; readonly detail: string }
  /** No reply came, or not in time. The server may have done what was asked. */
  | { readonly why: 'silent'; readonly error?: unknown }

/** Raise the number of a key that this entry has, unless the server has counted further: see quorum-decision.ts. */
export interface RaiseRequest {
  readonly key: string
  readonly id: string
  readonly to: number
}

/** A majority has granted the key under `token`: store that on this server, too. */
export interface RepairRequest extends Place {
  readonly holder: string
  readonly attempt: number
  readonly token: number
  /** The number under which this server has the key for the entry. Undefined: the server has nothing of it. */
  readonly currentNumber: number | undefined
  /** Where the server has nothing: set the key only while the server's clock does not say more than this. */
  readonly notAfterMs: number
}

/** Give the key back, and leave the line. */
export interface LeaveRequest {
  readonly key: string
  readonly id: string
  /**
   * Undefined: give back the key, and leave the line. Else undo an attempt: give back the key only if this attempt or
   * an earlier one took it, and stay in line where the entry stands in line.
   */
  readonly upToAttempt?: number
  /** When an attempt is undone: stand in line again, in front, for this ttl. */
  readonly keepWaiting?: { readonly ttlMs: number; readonly holder: string }
}

/** Called once, with the reply. Undefined: there is none, and it is unknown what the server did. */
export type ReplyCallback<Reply> = (reply: Reply | undefined, error?: unknown) => void

export interface QuorumServer {
  /** Whether a message can be sent now. */
  readonly ready: boolean
  /**
   * Whether messages arrive in the order in which they were sent. If they do, a leave that was sent after a take also
   * arrives after it, and nothing of the take remains.
   *
   * To be read when a reply arrives, for that reply. A message that was sent a second time may have arrived after
   * messages that were sent later; while its reply is delivered, this is false.
   */
  readonly ordered: boolean
  take(requests: readonly TakeRequest[], onReply: ReplyCallback<readonly TakeReply[]>): void
  /**
   * Replies with the number that each key has then: `to`; or what the server has counted to, if that is higher; or 0 if
   * the entry does not have the key.
   */
  raise(requests: readonly RaiseRequest[], onReply: ReplyCallback<readonly number[]>): void
  repair(requests: readonly RepairRequest[], onReply: ReplyCallback<unknown>): void
  /** Replies whether each entry was there. */
  leave(requests: readonly LeaveRequest[], onReply: ReplyCallback<readonly boolean[]>): void
}
