/**
 * A record is a field of the document of its line, so that the conditions, who holds, and the change are one update:
 *
 *     record: { value, bytes, version, mark, expires_at }
 *
 * `expires_at` is null for a record that stays. A removal that is remembered has no value, and expires. A version is a
 * token of the line. `refused_by` is the first condition that was not met, '' if all were: the answer to the last put.
 *
 * A document with a record is not taken away while the record lives, and is kept for another hour, as every line.
 */
import { type Change, TOMBSTONE_MS, type When } from '../../core/store.ts'
import {
  above,
  afterMs,
  all,
  type Expression,
  either,
  equal,
  isNull,
  literal,
  NOW,
  not,
  orElse,
  withVariables,
} from './expressions.ts'
import { KEPT_MS, nextToken, placeOf } from './pipelines.ts'
import { countHeld, stage, type UpdatePipeline, type UpdateStep } from './settling.ts'

/** The TTL index looks for dates alone; this one does not come. */
const NEVER = new Date(Date.UTC(9999, 0, 1))

/** Make the change, if its conditions are met. The line is settled in the same step. */
export function putPipeline({ value, ttlMs, mark = 0n, when }: Change): UpdatePipeline {
  const isMade = equal('$$by', '')
  const put = value === null ? removal() : recordOf(value, ttlMs, mark)
  const steps: UpdateStep[] = [
    { before: livingRecord() },
    { by: refusal(when), next: nextToken() },
    { after: either(isMade, put, '$$before'), t: either(isMade, '$$next', '$$t') },
  ]
  return [stage(steps, '', { removeAt: removeAfterRecord(), record: '$$after', refusedBy: '$$by' })]
}

/** What is stored; null where nothing is, or what was there has expired. */
function livingRecord(): Expression {
  const isOver = all(not(isNull('$record.expires_at')), not(above('$record.expires_at', NOW)))
  return either(isOver, null, orElse('$record', null))
}

/** The first condition that is not met. */
function refusal({ holding, absent, version, markBelow }: When): Expression {
  const conditions: [keyof When, Expression][] = []
  if (holding !== undefined) conditions.push(['holding', holds(holding)])
  if (absent !== undefined) conditions.push(['absent', isNull('$$before.value')])
  if (version !== undefined) conditions.push(['version', equal(orElse('$$before.version', 0), long(version))])
  if (markBelow !== undefined) conditions.push(['markBelow', above(long(markBelow), orElse('$$before.mark', 0))])
  return conditions.reduceRight<Expression>((rest, [name, isMet]) => either(isMet, rest, name), '')
}

/** Also one that begins to hold in this very step, since those before it have expired. */
function holds(id: string): Expression {
  return withVariables({ p: placeOf(id) }, all({ $gte: ['$$p', 0] }, { $lt: ['$$p', countHeld('$$e')] }))
}

function recordOf(value: Uint8Array, ttlMs: number | null, mark: bigint): Expression {
  return {
    value: { $literal: value },
    bytes: value.length,
    version: '$$next',
    mark: { $max: [orElse('$$before.mark', long(0n)), long(mark)] },
    expires_at: ttlMs === null ? null : afterMs(ttlMs),
  }
}

/** A holder may have found what is removed now. Where the line is empty, there is none, and nothing remains. */
function removal(): Expression {
  const remembered = { value: null, bytes: null, version: '$$next', mark: long(0n), expires_at: afterMs(TOMBSTONE_MS) }
  return either(equal('$$e', []), null, remembered)
}

/** Later than every expiry in the line, and than that of the record, by an hour at least. */
function removeAfterRecord(): Expression {
  const ofEntries = { $add: [{ $max: '$$e.expires_at' }, KEPT_MS] }
  const expiry = either(isNull('$$after.expires_at'), NEVER as never, { $add: ['$$after.expires_at', KEPT_MS] })
  const ofRecord = either(isNull('$$after'), null, expiry)
  return { $max: [afterMs(2 * KEPT_MS), ofEntries, ofRecord] }
}

function long(value: bigint): Expression {
  return { $toLong: literal(String(value)) }
}
