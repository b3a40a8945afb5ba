/**
 * How a change of a line begins and ends: what has expired is dropped before its steps; after them the front of the
 * line is granted what it can have, by the rule of core/line.ts, and the processes of those entries are told.
 *
 * In the steps, `$$e` are the entries, `$$t` the last token, `$$v` the evicted ones that are remembered, `$$n` the news
 * so far.
 */
import { UNLIMITED } from '../../core/engine.ts'
import {
  above,
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
  mapped,
  merged,
  NOW,
  not,
  orElse,
  reduced,
  sizeOf,
  textOf,
  type Variables,
  withVariables,
} from './expressions.ts'

/** The version of what is stored. */
export const FORMAT = 1
/** Nested deeper, a pipeline comes near to what a server takes. */
const PARTS_PER_STAGE = 8

/** An update pipeline. */
export type UpdatePipeline = readonly { readonly $replaceWith: Expression }[]

/** What one step makes of `e` (entries), `t` (last token), `v` (evicted) and `n` (news). */
export type UpdateStep = Variables

export interface StageOptions {
  readonly removeAt?: Expression
  readonly left?: Expression
  /** The record beside the line, where this change is about it. */
  readonly record?: Expression
  /** Which condition of a record was not met; '' if all were. */
  readonly refusedBy?: Expression
  /** Tell the first waiter to look again. */
  readonly tellFirst?: boolean
  /** A short way, where the line as it is allows it. */
  readonly unless?: { readonly condition: Expression; readonly line: Expression }
}

/** The steps, in as few stages as can be. Steps that use each other's values are one part. */
export function stages(parts: readonly (readonly UpdateStep[])[], options: StageOptions): UpdatePipeline {
  const pieces: UpdateStep[][] = []
  for (let at = 0; at < parts.length; at += PARTS_PER_STAGE) pieces.push(parts.slice(at, at + PARTS_PER_STAGE).flat())
  // `unless` replaces all steps, so it needs them in one stage.
  const { unless: _, ...long } = options
  return pieces.map((steps, index) => stage(steps, index === 0 ? '' : '$news', pieces.length === 1 ? options : long))
}

export const inSteps = (steps: readonly UpdateStep[], value: Expression): Expression =>
  steps.toReversed().reduce<Expression>((later, step) => withVariables(step, later), value)

export function stage(
  steps: readonly UpdateStep[],
  newsBefore: Expression,
  { unless, ...options }: StageOptions,
): UpdatePipeline[number] {
  const long = inSteps(steps, settled(options))
  const value = unless === undefined ? long : either(unless.condition, unless.line, long)
  const opened = {
    e: living('$entries'),
    v: living('$evicted'),
    t: orElse('$token', { $toLong: 0 }),
    n: newsBefore,
  }
  // What a newer version has written is left as it is; the answer shows its format.
  return { $replaceWith: either(above('$format', FORMAT), '$$ROOT', withVariables(opened, value)) }
}

/** The entries that have not expired: nearly always all of them, which the server sees without asking each. */
function living(field: '$entries' | '$evicted'): Expression {
  const some = filtered(orElse(field, []), above('$$this.expires_at', NOW))
  return either(above({ $min: orElse(`${field}.expires_at`, []) }, NOW), field, some)
}

/** The line after all steps: the front of it is granted what it can have now. A grant never changes an expiry. */
function settled({ removeAt = '$remove_at', tellFirst = false, ...others }: StageOptions): Expression {
  const before = orElse(elementAt('$entries.id', '$held'), null)
  const front = { $slice: ['$$e', '$$i'] }
  const isGranted = withVariables({ f: front }, isIn(null, '$$f.since'))
  const rest = { $slice: ['$$e', '$$i', sizeOf('$$e')] }
  const began = mapped(front, either(isNull('$$this.since'), merged('$$this', { since: NOW }), '$$this'))
  // `$slice` from the end of an array on is empty, but of an empty array it is an error: here one entry holds.
  const entries = either('$$g', joined(began, rest), '$$e')
  // Only the first waiter looks when holders expire. If it has gone, the next one has to know that it is the first.
  const firstHasGone = all(not(isNull('$$b')), not(isIn('$$b', '$$e.id')))
  const tells = all(tellFirst ? true : firstHasGone, above(sizeOf('$$e'), '$$i'))
  const news = concat('$$n', either('$$g', grantNews(front), ''), either(tells, lookNews(), ''))
  const always = { token: '$$t', evicted: '$$v', removeAt, ...others }
  const crowd = withVariables(
    { i: countHeld('$$e'), b: before },
    withVariables({ g: isGranted }, line({ ...always, held: '$$i', entries, news })),
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
  readonly record?: Expression
  readonly refusedBy?: Expression
}

export function line({
  token,
  held,
  entries,
  evicted,
  news,
  removeAt,
  left = orElse('$left', ''),
  // Where there is none, the field stays away.
  record = '$record',
  refusedBy,
}: LineFields): Expression {
  return {
    ...{ _id: '$_id', format: FORMAT, token, held, entries, evicted, news, left, at: NOW, remove_at: removeAt, record },
    ...(refusedBy === undefined ? {} : { refused_by: refusedBy }),
  }
}

/**
 * How many entries, from the front, hold: the longest prefix whose weights fit into the smallest of its limits. As in
 * core/line.ts.
 */
export function countHeld(entries: Expression): Expression {
  const next = withVariables(
    { sum: { $add: ['$$value.sum', '$$this.weight'] }, least: { $min: ['$$value.least', '$$this.limit'] } },
    either(
      { $lte: ['$$sum', '$$least'] },
      { count: { $add: ['$$value.count', 1] }, sum: '$$sum', least: '$$least', open: true },
      { count: '$$value.count', sum: 0, least: 0, open: false },
    ),
  )
  const none = { count: 0, sum: 0, least: UNLIMITED, open: true }
  const counted = withVariables({ r: reduced('$$a', none, either('$$value.open', next, '$$value')) }, '$$r.count')
  // The first takes all of its limit: it is a mutex, and no other holds beside it. Nearly every line is like that.
  const isAlone = withVariables({ f: elementAt('$$a', 0) }, equal('$$f.weight', '$$f.limit'))
  return withVariables({ a: entries }, either(isAlone, 1, counted))
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
  return withVariables({ f: elementAt('$$e', '$$i') }, told)
}
