/**
 * What the replies of N servers add up to. Pure: no clock, no network, no memory.
 *
 * **The token.** Each server counts, and gives the next number when a key is taken. A token T is granted when a
 * majority of servers has the key under *one* number T, for one entry, all at once.
 *
 * If the majority replies with one number, that is so after one round trip. If not, T becomes the highest of their
 * numbers, and the other servers are asked to raise theirs. A server does so only if the entry still has the key there,
 * and if its count is not above T already. Else it replies with its count, and T goes up to that.
 *
 * So for every token there was a majority whose counts were no lower than T while the entry had the key. The next
 * holder takes the key on a majority, too. At least one server is in both majorities, and it gives the next holder a
 * higher number: the next token is higher. This needs no clock, only counts that are not forgotten.
 *
 * The shortcuts break it, and the simulator shows how. The highest number without raising the others: the next majority
 * may not have seen it. Raising without asking which entry has the key: two holders get one number. Raising over a
 * higher count: the number may have been another holder's already.
 */
import type { TakeRefusal, TakeReply } from './quorum-server.ts'

/** How many of `count` servers are more than half of them. */
export function majorityOf(count: number): number {
  return Math.floor(count / 2) + 1
}

export type QuorumDecision =
  /** It depends on replies that have not come. */
  | { readonly step: 'open' }
  /** The entry holds, with that token. */
  | { readonly step: 'granted'; readonly token: number }
  /** The entry has the key on a majority, under different numbers: raise them to this one. */
  | { readonly step: 'raise'; readonly to: number }
  /** The entry has no majority, whatever the missing replies are. */
  | { readonly step: 'failed' }

const OPEN: QuorumDecision = { step: 'open' }
const FAILED: QuorumDecision = { step: 'failed' }

/**
 * Whether an entry that does not hold yet is granted the key. `replies` are those so far, by server; undefined: not
 * yet. `floor` is a count that a server has named, which the token must reach.
 */
export function decideGrant(replies: readonly (TakeReply | undefined)[], floor: number): QuorumDecision {
  const most = majorityOf(replies.length)
  let ours = 0
  let open = 0
  let highest = floor
  for (const reply of replies) {
    if (reply === undefined) open += 1
    else if (typeof reply === 'number') {
      ours += 1
      if (reply > highest) highest = reply
    }
  }
  if (ours + open < most) return FAILED
  if (ours < most) return OPEN
  const token = commonNumber(replies, most)
  return token === undefined ? { step: 'raise', to: highest } : { step: 'granted', token }
}

/** The number that a majority has replied with. There is at most one. */
function commonNumber(replies: readonly (TakeReply | undefined)[], most: number): number | undefined {
  for (const candidate of replies) {
    if (typeof candidate !== 'number') continue
    let count = 0
    for (const reply of replies) if (reply === candidate) count += 1
    if (count >= most) return candidate
  }
  return undefined
}

/**
 * Whether an entry that holds with `token` goes on holding. A majority that has the key under the token confirms it.
 * Numbers are not raised any more, since that would be another token. The lease is lost when the servers that are
 * silent could not make up a majority either.
 */
export function decideRenewal(replies: readonly (TakeReply | undefined)[], token: number): QuorumDecision {
  const most = majorityOf(replies.length)
  let confirmed = 0
  let possible = 0
  for (const reply of replies) {
    if (reply === token) confirmed += 1
    else if (reply === undefined || isSilent(reply)) possible += 1
  }
  if (confirmed >= most) return { step: 'granted', token }
  if (confirmed + possible < most || !replies.includes(undefined)) return FAILED
  return OPEN
}

export function isSilent(reply: TakeReply): reply is Extract<TakeRefusal, { why: 'silent' }> {
  return typeof reply === 'object' && reply.why === 'silent'
}

/** What the refusals of all servers say together. */
export interface RefusalSummary {
  /** How many servers have replied, whatever it was. */
  readonly answered: number
  /** How many servers have nothing of the entry. */
  readonly missing: number
  readonly evicted: boolean
  /** How many servers say that the key is unusable, and what the first of them says. */
  readonly unusables: number
  readonly unusable: Extract<TakeRefusal, { why: 'unusable' }> | undefined
  readonly error: unknown
  /** No other entry has a majority: entries that came at the same moment have taken some servers each. */
  readonly split: boolean
  /** On some server the holder is a stranger. */
  readonly stranger: boolean
  readonly ahead: number
  readonly next: boolean
  /** When a majority may be free, as far as the servers know. */
  readonly recheckMs: number
}

export function summarizeRefusals(replies: readonly (TakeReply | undefined)[]): RefusalSummary {
  const most = majorityOf(replies.length)
  const takenBy = new Map<string, number>()
  const rechecks: number[] = []
  const sum = { answered: 0, missing: 0, evicted: false, unusables: 0, stranger: false, ahead: 0, next: false }
  let unusable: RefusalSummary['unusable']
  let error: unknown
  for (const reply of replies) {
    if (reply === undefined || isSilent(reply)) {
      error ??= reply?.error
      continue
    }
    sum.answered += 1
    if (typeof reply === 'number') continue
    if (reply.why === 'missing') sum.missing += 1
    else if (reply.why === 'evicted') sum.evicted = true
    else if (reply.why === 'unusable') {
      sum.unusables += 1
      unusable ??= reply
    } else {
      takenBy.set(reply.by, (takenBy.get(reply.by) ?? 0) + 1)
      rechecks.push(reply.recheckMs)
      sum.stranger ||= reply.stranger
      sum.next ||= reply.next
      sum.ahead = Math.max(sum.ahead, reply.ahead)
    }
  }
  const split = Math.max(0, ...takenBy.values()) < most
  return { ...sum, unusable, error, split, recheckMs: rechecks.length === 0 ? 0 : Math.min(...rechecks) }
}
