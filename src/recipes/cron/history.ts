/** What jobs have done, for people: `jobs.history`, `jobs.list` and `holdfast cron`. */
import type { Locks } from '../../locks.ts'
import type { RecordStore } from '../../store/record-store.ts'
import { type JobRecord, keyOf, nameOf, type RunOutcome, type StoredRun } from './job-record.ts'

/** A run that has begun, on some host. Times are those of the server. */
export interface PastRun {
  readonly tick: Date
  readonly attempt: number
  /** How many ticks were passed over right before it. */
  readonly missed: number
  /** The name of the process that ran it. */
  readonly holder: string
  readonly token: bigint | null
  readonly startedAt: Date
  /** Not given while it runs. Of a run that was `lost`: when that was noticed. */
  readonly endedAt?: Date
  readonly outcome: RunOutcome | 'running'
  /** What the work threw, shortened; or why a run that was lost was not taken over. */
  readonly error?: string
}

/** A job as its record has it. */
export interface JobSummary {
  readonly name: string
  readonly schedule: string
  /** The last tick that was claimed, or from which on ticks are counted. */
  readonly tick: Date
  readonly last: PastRun | undefined
}

/** The last runs of a job, the newest first. */
export async function* pastRuns(
  locks: Locks,
  records: RecordStore<JobRecord>,
  name: string,
): AsyncGenerator<PastRun, void, void> {
  const { value } = await records.get(keyOf(name))
  for (const run of value?.runs ?? []) yield await pastRun(locks, name, run)
}

export async function* listJobs(
  locks: Locks,
  records: RecordStore<JobRecord>,
  prefix: string,
): AsyncGenerator<JobSummary, void, void> {
  for await (const { key } of records.list(keyOf(prefix))) {
    const { value, mark } = await records.get(key)
    // It may have gone meanwhile.
    if (value === undefined) continue
    const name = nameOf(key)
    const [last] = value.runs
    const summary = { name, schedule: value.schedule, tick: new Date(Number(mark)) }
    yield { ...summary, last: last === undefined ? undefined : await pastRun(locks, name, last) }
  }
}

async function pastRun(locks: Locks, name: string, run: StoredRun): Promise<PastRun> {
  const { tick, attempt, missed, holder, token, startedAt, endedAt, error } = run
  return {
    tick: new Date(tick),
    attempt,
    missed,
    holder,
    token: token === null ? null : BigInt(token),
    startedAt: new Date(startedAt),
    ...(endedAt === undefined ? {} : { endedAt: new Date(endedAt) }),
    outcome: run.outcome ?? ((await isHeld(locks, name, run)) ? 'running' : 'lost'),
    ...(error === undefined ? {} : { error }),
  }
}

/** Whether a run without an ending goes on: its process holds the line then. */
export async function isHeld(locks: Locks, name: string, { token, holder }: StoredRun): Promise<boolean> {
  const { entries } = await locks.inspect(keyOf(name))
  return entries.some(
    (entry) => entry.state === 'held' && (token === null ? entry.holder === holder : String(entry.token) === token),
  )
}
