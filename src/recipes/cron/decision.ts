/**
 * What a host does about a job, from what is stored and what time it is: the pure rule. It has no I/O and no clock.
 *
 * It is asked before the host stands in the line of the job, and again when the host holds it. A run that has no ending
 * may go on, or its process may have died: the line knows which. A host that is let in while the last run has no ending
 * knows that it died.
 */
import type { JobRecord, StoredRun } from './job-record.ts'
import type { Schedule } from './schedule.ts'

/** What to do about ticks for which no host was there. */
export type Missed = 'skip' | 'last' | 'all'
/** What to do about a tick that comes while the job still runs. */
export type Overlap = 'skip' | 'queue' | 'replace'

export interface JobPolicy {
  readonly missed: Missed
  readonly overlap: Overlap
  /** How late a tick may begin. */
  readonly graceMs: number
  readonly takeover: number
  /** How late it may be begun again. */
  readonly takeoverMs: number
  /** Whether ticks that the schedule does not have are taken over as well: those of earlier calls of `tick()`. */
  readonly takesOlder: boolean
}

export interface Situation {
  readonly record: JobRecord | undefined
  /** The last tick that was claimed; 0 if none was. */
  readonly mark: number
  /** The server's time. */
  readonly now: number
  /** The last run has died at an unknown time: it has no ending, and did not hold the line when this host came. */
  readonly died?: boolean
}

/** `again`: a tick whose run did not end; its attempt is higher than 1. */
export type CronDecision =
  | { readonly step: 'nothing' }
  | {
      readonly step: 'run'
      readonly again: boolean
      readonly tick: number
      readonly attempt: number
      readonly missed: number
    }

/** How many missed ticks are run by `all`, and counted by `run.missed`. */
const MOST_MISSED = 100
const NOTHING: CronDecision = { step: 'nothing' }

export function decide(schedule: Schedule, policy: JobPolicy, situation: Situation): CronDecision {
  const { record, mark } = situation
  const last = record?.runs[0]
  const due = dueTicks(schedule, policy, situation)
  const tick = policy.missed === 'all' ? due[0] : due.at(-1)
  // What was begun is ended first, unless the next tick takes its place anyway.
  const ended = policy.overlap === 'replace' && tick !== undefined
  const takes = (run: StoredRun): boolean =>
    isUnfinished(run, policy) && !isTooLate(run, policy, situation.now) && isOurs(schedule, policy, run)
  if (last !== undefined && !ended && takes(last))
    return { step: 'run', again: true, tick: last.tick, attempt: last.attempt + 1, missed: last.missed }
  if (tick === undefined) return NOTHING
  const missed = mark === 0 ? 0 : schedule.newest(mark, tick - 1, MOST_MISSED).length
  return { step: 'run', again: false, tick, attempt: 1, missed }
}

/** Whether the run is to be taken over, once its process is gone. Work that threw has ended: it is not tried again. */
function isUnfinished({ outcome, attempt }: StoredRun, policy: JobPolicy): boolean {
  return (outcome === undefined || outcome === 'stopped') && attempt <= policy.takeover
}

function isOurs(schedule: Schedule, { takesOlder }: JobPolicy, { tick }: StoredRun): boolean {
  return takesOlder || schedule.newest(tick - 1, tick, 1).length > 0
}

/** A take-over is a new beginning of the tick: so it has a grace, which counts from the tick. */
function isTooLate({ tick }: StoredRun, policy: JobPolicy, now: number): boolean {
  return now - tick > policy.takeoverMs
}

/** Whether the last run is left as it is only because it is too late to take it over. */
export function isLeftBehind(policy: JobPolicy, { record, now }: Situation): boolean {
  const last = record?.runs[0]
  return last !== undefined && isUnfinished(last, policy) && isTooLate(last, policy, now)
}

/** The ticks that may be begun now, the oldest first. */
function dueTicks(
  schedule: Schedule,
  { overlap, graceMs }: JobPolicy,
  { record, mark, now, died = false }: Situation,
): readonly number[] {
  const runs = record?.runs ?? []
  const [last] = runs
  let oldest = now - graceMs
  // A tick that waits for the end of a run is late only once that run has ended. One that goes on, or has died while
  // this host stood behind it, ends now. After an outage of hours, no tick has waited for a run that died before it.
  if (overlap === 'queue' && last !== undefined && !(died && last.outcome === undefined)) {
    const endedAt = last.endedAt ?? now
    if (now - endedAt <= graceMs) oldest = Math.min(oldest, last.startedAt)
  }
  // Likewise a tick that was due while an earlier one was taken over, which comes first.
  if (last !== undefined && last.attempt > 1 && last.endedAt !== undefined && now - last.endedAt <= graceMs)
    oldest = Math.min(oldest, last.startedAt - graceMs)
  // A tick that is as old as the grace is not late yet.
  const due = schedule.newest(Math.max(mark, oldest - 1), now, MOST_MISSED)
  if (overlap !== 'skip') return due
  // Of all runs, not of the last one only: with `missed: 'all'`, others may have been run since a tick was skipped.
  return due.filter((tick) => !runs.some((run, nth) => cameMeanwhile(tick, run, runs[nth - 1])))
}

/** Whether the tick came while that run went on. One that was taken over, or died, has made none to be skipped. */
function cameMeanwhile(tick: number, run: StoredRun, next: StoredRun | undefined): boolean {
  const { startedAt, endedAt, outcome } = run
  if (endedAt === undefined || outcome === 'lost' || next?.tick === run.tick) return false
  return tick > startedAt && tick <= endedAt
}

/** The run that goes on, as far as is known, and that is to be replaced, since a tick has come after it had begun. */
export function runToReplace(
  schedule: Schedule,
  policy: JobPolicy,
  { record, now }: Situation,
  decision: CronDecision,
): StoredRun | undefined {
  const last = record?.runs[0]
  if (policy.overlap !== 'replace' || decision.step === 'nothing' || decision.again) return undefined
  if (last === undefined || last.outcome !== undefined) return undefined
  if (policy.missed !== 'all') return last
  // Hosts that catch up do not replace each other's runs by ticks that are as old as those.
  return schedule.newest(last.startedAt, now, 1).length > 0 ? last : undefined
}
