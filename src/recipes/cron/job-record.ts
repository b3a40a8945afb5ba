/**
 * The record of a job: its last runs, under the key of its line. The mark of the record is the last tick that was
 * claimed: it only rises, so no tick is claimed twice.
 */
import type { Lease } from '../../core/lease.ts'
import { thrownText } from '../../core/thrown.ts'

/** The line and the record of a job have this before its name. */
const KEY_PREFIX = 'cron:'
/** How many runs are remembered, and how long texts in them may be, so that a record fits into every store. */
const RUNS_KEPT = 20
const TEXT_LENGTH = 200

/**
 * How a run ended. `done`: the work has settled. `failed`: it threw. `stopped`: it threw after it was told to stop,
 * because its process was closing. `replaced`: the next tick took its place. `lost`: its process died, lost the lock in
 * the middle, or was closed before the work had stopped.
 */
export type RunOutcome = 'done' | 'failed' | 'stopped' | 'replaced' | 'lost'

/** A run as it is stored: JSON. Times are those of the server, in milliseconds since 1970. */
export interface StoredRun {
  /** Another one for each attempt. */
  readonly id: string
  readonly tick: number
  readonly attempt: number
  readonly missed: number
  readonly holder: string
  readonly token: string | null
  readonly startedAt: number
  readonly endedAt?: number
  readonly outcome?: RunOutcome
  readonly error?: string
}

export interface JobRecord {
  /** For people. */
  readonly schedule: string
  /** The newest first. */
  readonly runs: readonly StoredRun[]
}

export function keyOf(name: string): string {
  return `${KEY_PREFIX}${name}`
}

export function nameOf(key: string): string {
  return key.slice(KEY_PREFIX.length)
}

/** What is told of a run when it begins. */
export interface RunBeginning extends Pick<StoredRun, 'id' | 'tick' | 'attempt' | 'missed' | 'holder' | 'startedAt'> {
  readonly lease: Lease
}

/**
 * The record with a run that begins now. The one before it is over, whether or not its process could say so: `unsaid`
 * is how it ended if it could not.
 */
export function withBeginning(
  record: JobRecord | undefined,
  schedule: string,
  { lease, ...run }: RunBeginning,
  unsaid: Pick<StoredRun, 'outcome' | 'error'>,
): { record: JobRecord; run: StoredRun } {
  const token = lease.token === null ? null : String(lease.token)
  const begun: StoredRun = { ...run, holder: shortened(run.holder), token }
  const [last, ...earlier] = record?.runs ?? []
  const ended = last === undefined || last.outcome !== undefined ? last : { ...last, endedAt: run.startedAt, ...unsaid }
  const runs = [begun, ...(ended === undefined ? [] : [ended]), ...earlier].slice(0, RUNS_KEPT)
  return { record: { schedule, runs }, run: begun }
}

/** The record with that run ended; undefined if the run is not its last one any more. */
export function withEnding(
  record: JobRecord | undefined,
  id: string,
  ending: { readonly endedAt: number; readonly outcome: RunOutcome; readonly error: unknown },
): JobRecord | undefined {
  const [last, ...earlier] = record?.runs ?? []
  if (record === undefined || last?.id !== id || last.outcome !== undefined) return undefined
  const { endedAt, outcome, error } = ending
  const told = error === undefined ? {} : { error: shortened(thrownText(error)) }
  return { ...record, runs: [{ ...last, endedAt, outcome, ...told }, ...earlier] }
}

function shortened(text: string): string {
  return (text.length <= TEXT_LENGTH ? text : `${text.slice(0, TEXT_LENGTH - 1)}…`).toWellFormed()
}
