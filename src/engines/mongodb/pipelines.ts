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
 *       remove_at }  when the TTL index may take the document away
 *
 * `since` is when an entry began to hold, null while it waits; `engine` is the engine object that hears of it.
 *
 * One change is one `$replaceWith`: drop what has expired, apply the steps, settle the line by the rule of
 * core/line.ts.
 * All times are `$$NOW`, the server's, which is one instant for the whole command. `news` is one string, written anew
 * each time, because a change stream tells differences: of an array it would tell only the elements that differ.
 */
import { type Claim, type Place, UNLIMITED } from '../../core/engine.ts'
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
  letIn,
  literal,
  mapped,
  merged,
  NOW,
  not,
  orElse,
  reduced,
  sizeOf,
  textOf,
  type Variables,
} from './expressions.ts'

/** The version of what is stored. */
export const FORMAT = 1
/** Every change costs time in proportion to the line. */
export const LINE_BOUND = 1000

/** An update pipeline. */
export type Pipeline = readonly { readonly $replaceWith: Expression }[]

/**
 * A line that is not used is kept for an hour at least, and so is its last token: tokens go on from the server's clock
 * only after that, so it would have to be set back by an hour for them to go back. The date is moved in steps of an
 * hour: moving it each time would change the index each time.
 */
const KEPT_MS = 3_600_000
/** Nested deeper, a pipeline comes near to what a server takes. */
const STEPS_PER_STAGE = 16

/** What one step makes of `e` (entries), `t` (last token), `v` (evicted) and `n` (news). */
type Step = Variables

// ---- the verbs ----

/** Let them enter, in this order. `bound`: how many entries the line takes. */
export function enterPipeline(claims: readonly Claim[], engine: string, bound: number = LINE_BOUND): Pipeline {
  const [first] = claims
  const steps = runsOf(claims, ({ wait }) => wait).flatMap((run) => enterSteps(run, engine, bound))
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
export function renewPipeline(places: readonly Place[]): Pipeline {
  const steps = runsOf(places, ({ outlives }) => outlives !== true).map((run): Step => ({ e: touched('$$e', run) }))
  const removeAt = removeAfter(places)
  // A holder that outlives its process may expire earlier than the first waiter was told.
  if (places.some(({ outlives }) => outlives === true)) return stages(steps, { removeAt, tellFirst: true })
  // Where nothing has expired, those who hold are those who held: nothing has to be settled.
  const isSame = equal(sizeOf('$$e'), sizeOf(orElse('$entries', [])))
  const asBefore = line({ token: '$$t', held: '$held', entries: '$$e', evicted: '$$v', news: '$$n', removeAt })
  return stages(steps, { removeAt, unless: { condition: isSame, line: inSteps(steps, asBefore) } })
}

/** Take them out. Which of them were there is said by `left`. */
export function leavePipeline(ids: readonly string[]): Pipeline {
  const isLeaving = isIn('$$this.id', ids.map(literal))
  const left = reduced(filtered('$$e', isLeaving), '', concat('$$value', '|', '$$this.id'))
  const steps: Step[] = [{ l: left, e: filtered('$$e', not(isLeaving)) }]
  return stages(steps, { left: '$$l' })
}

/** A filter: the entry is in the line, and lives. Then a leave takes it out, and the document is counted as matched. */
export function isInLine(id: string): { readonly [name: string]: unknown } {
  const isThere = all(equal('$$this.id', literal(id)), above('$$this.expires_at', NOW))
  return { 'entries.id': id, $expr: { $gt: [sizeOf(filtered('$entries', isThere)), 0] } }
}

/** Evict the entry with this token. `news` says whether it was there: see `EVICTED`. */
export function evictPipeline(token: bigint, how: 'expire' | 'now'): Pipeline {
  const has = equal('$$this.token', { $toLong: literal(String(token)) })
  // A waiter holds nothing that it would have to stop first. A holder leaves when it has stopped, or expires.
  const goesAtOnce = how === 'now' ? true : isNull('$$x.since')
  const others = filtered('$$e', not(has))
  const marked = mapped('$$e', either(has, merged('$$this', { evicted: true }), '$$this'))
  const remembered = joined('$$v', [{ id: '$$x.id', expires_at: '$$x.expires_at' }])
  const isThere = not(isNull('$$x'))
  const steps: Step[] = [
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
function enterSteps(claims: readonly Claim[], engine: string, bound: number): readonly Step[] {
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
  const holds = above(heldCount(joined('$$e', [{ weight, limit }])), sizeOf('$$e'))
  return either(holds, room, 0)
}

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
function nextToken(): Expression {
  return { $max: [{ $add: ['$$t', 1] }, { $multiply: [{ $toLong: NOW }, 1000] }] }
}

/** `places`: different entries, which all outlive their process, or none of them. */
function touched(entries: Expression, places: readonly Omit<Place, 'key'>[]): Expression {
  const ids = places.map(({ id }) => literal(id))
  const ttls = places.map(({ ttlMs }) => ttlMs)
  const ttl = ttls.every((ttlMs) => ttlMs === ttls[0]) ? (ttls[0] ?? 0) : elementAt(ttls, '$$p')
  const until = afterMs(ttl)
  // A renewal from before that comes late does not cut short what is to outlive its process.
  const latest = either(equal('$$this.outlives', true), { $max: ['$$this.expires_at', until] }, until)
  const outlives = places.some((place) => place.outlives === true)
  const changes = outlives ? { expires_at: until, ttl_ms: ttl, outlives } : { expires_at: latest, ttl_ms: ttl }
  const isAsked = all({ $gte: ['$$p', 0] }, not(equal('$$this.evicted', true)))
  const renewed = either(isAsked, merged('$$this', changes), '$$this')
  return mapped(entries, letIn({ p: { $indexOfArray: [ids, '$$this.id'] } }, renewed))
}

// ---- settling ----

interface StageOptions {
  readonly removeAt?: Expression
  readonly left?: Expression
  /** Tell the first waiter to look again. */
  readonly tellFirst?: boolean
  /** A short way, where the line as it is allows it. */
  readonly unless?: { readonly condition: Expression; readonly line: Expression }
}

/** The steps, in as few stages as can be. */
function stages(steps: readonly Step[], options: StageOptions): Pipeline {
  const parts: Step[][] = []
  for (let at = 0; at < steps.length; at += STEPS_PER_STAGE) parts.push(steps.slice(at, at + STEPS_PER_STAGE))
  // A short way is one for all steps together.
  const { unless: _, ...long } = options
  return parts.map((part, index) => stage(part, index === 0 ? '' : '$news', parts.length === 1 ? options : long))
}

const inSteps = (steps: readonly Step[], value: Expression): Expression =>
  steps.toReversed().reduce<Expression>((later, step) => letIn(step, later), value)

function stage(steps: readonly Step[], newsBefore: Expression, { unless, ...options }: StageOptions): Pipeline[number] {
  const long = inSteps(steps, settled(options))
  const value = unless === undefined ? long : either(unless.condition, unless.line, long)
  const opened = {
    e: living('$entries'),
    v: living('$evicted'),
    t: orElse('$token', { $toLong: 0 }),
    n: newsBefore,
  }
  // What a newer version has written is left as it is; the answer shows its format.
  return { $replaceWith: either(above('$format', FORMAT), '$$ROOT', letIn(opened, value)) }
}

const living = (entries: Expression): Expression => filtered(orElse(entries, []), above('$$this.expires_at', NOW))

/** The line after all steps: the front of it is granted what it can have now. A grant never changes an expiry. */
function settled({ removeAt = '$remove_at', left, tellFirst = false }: StageOptions): Expression {
  const before = orElse(elementAt('$entries.id', '$held'), null)
  const isGranted = isIn(null, { $slice: ['$$e.since', '$$i'] })
  const front = { $slice: ['$$e', '$$i'] }
  const rest = { $slice: ['$$e', '$$i', sizeOf('$$e')] }
  const began = mapped(front, either(isNull('$$this.since'), merged('$$this', { since: NOW }), '$$this'))
  // `$slice` from the end of an array on is empty, but of an empty array it is an error: here one entry holds.
  const entries = either('$$g', joined(began, rest), '$$e')
  // Only the first waiter looks when holders expire. If it has gone, the next one has to know that it is the first.
  const firstHasGone = all(not(isNull('$$b')), not(isIn('$$b', '$$e.id')))
  const tells = all(tellFirst ? true : firstHasGone, above(sizeOf('$$e'), '$$i'))
  const news = concat('$$n', either('$$g', grantNews(front), ''), either(tells, lookNews(), ''))
  const always = { token: '$$t', evicted: '$$v', removeAt, ...(left === undefined ? {} : { left }) }
  const crowd = letIn(
    { i: heldCount('$$e'), b: before },
    letIn({ g: isGranted }, line({ ...always, held: '$$i', entries, news })),
  )
  return either(equal('$$e', []), line({ ...always, held: 0, entries: [], news: '$$n' }), crowd)
}

interface LineFields {
  readonly token: Expression
  readonly held: Expression
  readonly entries: Expression
  readonly evicted: Expression
  readonly news: Expression
  readonly removeAt: Expression
  readonly left?: Expression
}

function line({ token, held, entries, evicted, news, removeAt, left = orElse('$left', '') }: LineFields): Expression {
  return { _id: '$_id', format: FORMAT, token, held, entries, evicted, news, left, at: NOW, remove_at: removeAt }
}

/**
 * How many entries, from the front, hold: the longest prefix whose weights fit into the smallest of its limits. As in
 * core/line.ts.
 */
function heldCount(entries: Expression): Expression {
  const next = letIn(
    { sum: { $add: ['$$value.sum', '$$this.weight'] }, least: { $min: ['$$value.least', '$$this.limit'] } },
    either(
      { $lte: ['$$sum', '$$least'] },
      { count: { $add: ['$$value.count', 1] }, sum: '$$sum', least: '$$least', open: true },
      { count: '$$value.count', sum: 0, least: 0, open: false },
    ),
  )
  const none = { count: 0, sum: 0, least: UNLIMITED, open: true }
  return letIn({ r: reduced(entries, none, either('$$value.open', next, '$$value')) }, '$$r.count')
}

// ---- news ----

/** In the news: that entry was evicted. */
export const EVICTED = 'evicted'
/** In the news: look again where that entry stands. */
export const LOOK = 'look'

/**
 * `|engine:id:token:ms` for each entry that begins to hold, with how long it still lives; `|engine:id:evicted`; and
 * `|engine:id:look:time`, in which the time makes it another text than before: what does not differ is not told.
 */
function grantNews(front: Expression): Expression {
  const livesMs = textOf({ $subtract: ['$$this.expires_at', NOW] })
  const told = concat('$$value', '|', '$$this.engine', ':', '$$this.id', ':', textOf('$$this.token'), ':', livesMs)
  return reduced(front, '', either(isNull('$$this.since'), told, '$$value'))
}

function lookNews(): Expression {
  const told = concat('|', '$$f.engine', ':', '$$f.id', `:${LOOK}:`, textOf({ $toLong: NOW }))
  return letIn({ f: elementAt('$$e', '$$i') }, told)
}

/** Later than every expiry in the line, and by an hour at least. */
function removeAfter(items: readonly { readonly ttlMs: number }[]): Expression {
  const longest = Math.max(0, ...items.map(({ ttlMs }) => ttlMs))
  return either(above('$remove_at', afterMs(longest + KEPT_MS)), '$remove_at', afterMs(longest + 2 * KEPT_MS))
}
