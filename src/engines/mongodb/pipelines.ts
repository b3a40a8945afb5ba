/**
 * The line as one document, and every change of it as an update pipeline: pure, and decided by the server alone.
 *
 *     { _id: key, format: 1,
 *       token,       the last token of this line; it stays when the line is empty
 *       held,        how many entries, from the front, hold
 *       entries: [   in the order of the line
 *         { id, holder, token, since, expires_at, entered_at, weight, limit, ttl_ms, engine, evicted?, outlives? } ],
 *       evicted,     [{ id, expires_at }]: out of the line, and remembered so that their owners hear why
 *       news,        what this change has to tell to other processes: see `grantNews`
 *       left,        '|id' of each entry that the last leave took out
 *       at,          when this change was made
 *       remove_at,   when the TTL index may take the document away
 *       record }     what the store keeps beside the line: see record-pipeline.ts
 *
 * `since` is when an entry began to hold, null while it waits; `engine` is the engine object that hears of it.
 *
 * One change is one `$replaceWith`: drop what has expired, apply the steps, settle the line (settling.ts). All times
 * are `$$NOW`, the server's, which is one instant for the whole command. `news` is one string, written anew each time,
 * because a change stream tells differences: of an array it would tell only the elements that differ.
 */
import type { Claim, Place } from '../../core/engine.ts'
import { LINE_BOUND } from './codec.ts'
import {
  above,
  afterMs,
  all,
  concat,
  type Expression,
  either,
  elementAt,
  equal,
  filtered,
  isIn,
  isNull,
  joined,
  literal,
  mapped,
  merged,
  NOW,
  not,
  orElse,
  reduced,
  sizeOf,
  withVariables,
} from './expressions.ts'
import { countHeld, EVICTED, inSteps, line, stage, stages, type UpdatePipeline, type UpdateStep } from './settling.ts'

/**
 * A line that is not used is kept for an hour at least, and so is its last token: tokens go on from the server's clock
 * only after that, so it would have to be set back by an hour for them to go back. The date is moved in steps of an
 * hour: moving it each time would change the index each time.
 */
export const KEPT_MS = 3_600_000

/** A clock that was set back by more than this has entries end a ttl after their renewal all the same. */
const CLOCK_STEP_MS = 60_000

// ---- the verbs ----

/** Let them enter, in this order. `bound`: how many entries the line takes. */
export function enterPipeline(claims: readonly Claim[], engine: string, bound: number = LINE_BOUND): UpdatePipeline {
  const [first] = claims
  const steps = runsOf(claims, ({ wait }) => wait).map((run) => enterSteps(run, engine, bound))
  const removeAt = removeAfter(claims)
  if (first === undefined || claims.length > 1) return stages(steps, { removeAt })
  // Nearly always no other entry is there: then nothing has to be settled.
  const isFree = all(equal('$$e', []), equal('$$v', []))
  const token = nextToken()
  const entries = [newEntry(first, engine, token, NOW)]
  const alone = line({ token, held: 1, entries, evicted: [], news: '', removeAt })
  return stages(steps, { removeAt, unless: { condition: isFree, line: alone } })
}

/** Renew them. What is not in the line, or was evicted, stays as it is. */
export function renewPipeline(places: readonly Place[]): UpdatePipeline {
  const steps = runsOf(places, ({ outlives }) => outlives !== true).map(touchSteps)
  const removeAt = removeAfter(places)
  // A holder that outlives its process may expire earlier than the first waiter was told.
  if (places.some(({ outlives }) => outlives === true)) return stages(steps, { removeAt, tellFirst: true })
  // Where nothing has expired, those who hold are those who held: nothing has to be settled.
  const isSame = equal(sizeOf('$$e'), sizeOf(orElse('$entries', [])))
  const asBefore = line({ token: '$$t', held: '$held', entries: '$$e', evicted: '$$v', news: '$$n', removeAt })
  return stages(steps, { removeAt, unless: { condition: isSame, line: inSteps(steps.flat(), asBefore) } })
}

/** Take them out. Which of them were there is said by `left`. */
export function leavePipeline(ids: readonly string[]): UpdatePipeline {
  const [only] = ids
  const steps = ids.length === 1 && only !== undefined ? leaveOne(only) : leaveSeveral(ids)
  return stages([steps], { left: '$$l' })
}

/**
 * Take it out, or fail (`conversionFailure`) if it is not there. Of several changes in one write, the server says which
 * have failed, and nothing else. It must not know the failure before it has the document: so a field is in it.
 */
export function leaveOrFailPipeline(id: string): UpdatePipeline {
  return stages([leaveOne(id, { $toInt: concat('not in line: ', '$_id') })], { left: '$$l' })
}

/** Evict the entry with this token. `news` says whether it was there: see `EVICTED`. */
export function evictPipeline(token: bigint, how: 'expire' | 'now'): UpdatePipeline {
  const has = equal('$$this.token', { $toLong: literal(String(token)) })
  // A waiter holds nothing that it would have to stop first. A holder leaves when it has stopped, or expires.
  const goesAtOnce = how === 'now' ? true : isNull('$$x.since')
  const others = filtered('$$e', not(has))
  const marked = mapped('$$e', either(has, merged('$$this', { evicted: true }), '$$this'))
  const remembered = joined('$$v', [{ id: '$$x.id', expires_at: '$$x.expires_at' }])
  const isThere = not(isNull('$$x'))
  const steps: UpdateStep[] = [
    { x: orElse(elementAt(filtered('$$e', has), 0), null) },
    {
      e: either(isThere, either(goesAtOnce, others, marked), '$$e'),
      v: either(all(isThere, goesAtOnce), remembered, '$$v'),
      n: either(isThere, concat('$$n', '|', '$$x.engine', ':', '$$x.id', `:${EVICTED}`), '$$n'),
    },
  ]
  // Settled first: an entry that can hold since another one expired is a holder.
  return [stage([], '', {}), stage(steps, '$news', {})]
}

// ---- steps ----

/** Items that can be dealt with together, in one step: not those that `together` rules out, and no entry twice. */
function runsOf<Item extends { readonly id: string }>(
  items: readonly Item[],
  together: (item: Item) => boolean,
): readonly (readonly Item[])[] {
  const runs: Item[][] = []
  let ids = new Set<string>()
  let isOpen = false
  for (const item of items) {
    if (!isOpen || !together(item) || ids.has(item.id)) {
      runs.push([])
      ids = new Set()
    }
    runs.at(-1)?.push(item)
    ids.add(item.id)
    isOpen = together(item)
  }
  return runs
}

/** Claims that all want to wait, or one that does not. */
function enterSteps(claims: readonly Claim[], engine: string, bound: number): readonly UpdateStep[] {
  const ids = claims.map(({ id }) => literal(id))
  const isKnown = above(sizeOf(filtered(ids, isIn('$$this', '$$e.id'))), 0)
  const isNew = all(not(isIn('$$this.id', '$$e.id')), not(isIn('$$this.id', '$$v.id')))
  const entries = claims.map((claim, index) => newEntry(claim, engine, { $add: ['$$k', index] }, null))
  const room = { $max: [0, { $subtract: [bound, sizeOf('$$e')] }] }
  const added = { $slice: [filtered(entries, isNew), holdsOrWaits(claims, room)] }
  const renewed = either(isKnown, touched('$$e', claims), '$$e')
  return [{ k: nextToken() }, { e: joined(renewed, added), t: { $add: ['$$k', claims.length] } }]
}

/** How many of the claims may come in. One that does not wait comes only if it holds at once: it never overtakes. */
function holdsOrWaits(claims: readonly Claim[], room: Expression): Expression {
  const [hasty] = claims.filter(({ wait }) => !wait)
  if (hasty === undefined) return room
  const { weight, limit } = hasty
  const holds = above(countHeld(joined('$$e', [{ weight, limit }])), sizeOf('$$e'))
  return either(holds, room, 0)
}

/** Without a look at each entry of a long line. `otherwise` is what has left if it is not there. */
function leaveOne(id: string, otherwise: Expression = ''): readonly UpdateStep[] {
  const isThere = { $gte: ['$$p', 0] }
  return [
    { p: placeOf(id) },
    { l: either(isThere, concat('|', literal(id)), otherwise), e: either(isThere, joined(...aroundPlace()), '$$e') },
  ]
}

function leaveSeveral(ids: readonly string[]): readonly UpdateStep[] {
  const isLeaving = isIn('$$this.id', ids.map(literal))
  const left = reduced(filtered('$$e', isLeaving), '', concat('$$value', '|', '$$this.id'))
  return [{ l: left, e: filtered('$$e', not(isLeaving)) }]
}

/** Where in the line an entry is; -1 if it is not. */
export const placeOf = (id: string): Expression => ({ $indexOfArray: ['$$e.id', literal(id)] })

/** The entries before the one at `$$p`, and those behind it. */
const aroundPlace = (): readonly [Expression, Expression] => [
  { $slice: ['$$e', '$$p'] },
  { $slice: ['$$e', { $add: ['$$p', 1] }, sizeOf('$$e')] },
]

function newEntry(claim: Claim, engine: string, token: Expression, since: Expression): Expression {
  const { id, holder, weight, limit, ttlMs } = claim
  return {
    id: literal(id),
    holder: literal(holder),
    token,
    since,
    expires_at: afterMs(ttlMs),
    entered_at: NOW,
    weight,
    limit,
    ttl_ms: ttlMs,
    engine: literal(engine),
  }
}

/** The next token: above the last one, and where the document is new, above all that earlier ones can have had. */
export function nextToken(): Expression {
  return { $max: [{ $add: ['$$t', 1] }, { $multiply: [{ $toLong: NOW }, 1000] }] }
}

/** Renew entries: `places` are different ones, which all outlive their process, or none of them. */
function touchSteps(places: readonly Omit<Place, 'key'>[]): readonly UpdateStep[] {
  const [only] = places
  if (only === undefined || places.length > 1) return [{ e: touched('$$e', places) }]
  // Without a look at each entry of a long line.
  const [before, behind] = aroundPlace()
  const renewed = joined(before, touched([elementAt('$$e', '$$p')], places), behind)
  return [{ p: placeOf(only.id) }, { e: either({ $gte: ['$$p', 0] }, renewed, '$$e') }]
}

/**
 * Renewed entries. `$$NOW` is when the command began: it may have waited in the server since, and a later renewal may
 * have been answered meanwhile. So a renewal with the ttl that an entry has already never cuts it short, unless by a
 * clock that was set back far; and what is to outlive its process is cut short by no renewal from before.
 */
function touched(entries: Expression, places: readonly Omit<Place, 'key'>[]): Expression {
  const ids = places.map(({ id }) => literal(id))
  const ttls = places.map(({ ttlMs }) => ttlMs)
  const ttl = ttls.every((ttlMs) => ttlMs === ttls[0]) ? (ttls[0] ?? 0) : elementAt(ttls, '$$q')
  const until = afterMs(ttl)
  const sameTtl = equal('$$this.ttl_ms', ttl)
  const isClose = above({ $add: [until, CLOCK_STEP_MS] }, '$$this.expires_at')
  const staysLonger = { $or: [equal('$$this.outlives', true), all(sameTtl, isClose)] }
  const latest = either(staysLonger, { $max: ['$$this.expires_at', until] }, until)
  const outlives = places.some((place) => place.outlives === true)
  const changes = outlives ? { expires_at: until, ttl_ms: ttl, outlives } : { expires_at: latest, ttl_ms: ttl }
  const isAsked = all({ $gte: ['$$q', 0] }, not(equal('$$this.evicted', true)))
  const renewed = either(isAsked, merged('$$this', changes), '$$this')
  return mapped(entries, withVariables({ q: { $indexOfArray: [ids, '$$this.id'] } }, renewed))
}

// ---- clearing away ----

/** Later than every expiry in the line, and by an hour at least. */
function removeAfter(items: readonly { readonly ttlMs: number }[]): Expression {
  const longest = Math.max(0, ...items.map(({ ttlMs }) => ttlMs))
  return either(above('$remove_at', afterMs(longest + KEPT_MS)), '$remove_at', afterMs(longest + 2 * KEPT_MS))
}
