/** `holdfast cron ls [PREFIX]` and `holdfast cron history NAME`: the jobs of `cron()`, and how their runs ended. */
import { formatDuration } from '../../core/duration.ts'
import type { Locks } from '../../locks.ts'
import { type JobSummary, listJobs, type PastRun, pastRuns } from '../../recipes/cron/history.ts'
import type { JobRecord } from '../../recipes/cron/job-record.ts'
import { RecordStore } from '../../store/record-store.ts'
import { type CommandSpec, didYouMean, type Input, UsageError } from '../args.ts'
import { EXITS } from '../exits.ts'
import { open } from '../open.ts'
import { colours, print, printable, printJson, STDOUT, say, table } from '../output.ts'

export const command: CommandSpec = {
  usage: 'ls [PREFIX] | history NAME [options]',
  takes: { least: 1, most: 2 },
  runs: false,
  options: {},
  examples: [
    ['holdfast cron ls', 'every job, with its schedule, its last run, and how that ended'],
    ['holdfast cron history nightly', 'the last runs of one job: when, on which host, for how long, how they ended'],
    [
      `holdfast cron history nightly --json | jq '.runs[] | select(.outcome != "done")'`,
      'the runs that did not end well',
    ],
  ],
  run: (input) => {
    const [verb = '', ...others] = input.rest
    if (verb === 'ls') return list(input, others[0] ?? '')
    if (verb === 'history') return history(input, others[0])
    throw new UsageError(`cron ls or history; got '${verb}'${didYouMean(verb, ['ls', 'history'])}`)
  },
}

async function list(input: Input, prefix: string): Promise<number> {
  const jobs = await ask(input, (locks, records) => listJobs(locks, records, prefix))
  jobs.sort((a, b) => (a.name < b.name ? -1 : 1))
  if (input.json) {
    const shown = jobs.map(({ last, ...job }) => ({ ...job, last: last === undefined ? null : runJson(last) }))
    printJson(STDOUT, input.command, { prefix, jobs: shown })
  } else if (jobs.length > 0) {
    print(listing(jobs))
  }
  return EXITS.ok.code
}

async function history(input: Input, name: string | undefined): Promise<number> {
  if (name === undefined) throw new UsageError('which job? holdfast cron history NAME; holdfast cron ls lists them')
  const runs = await ask(input, (locks, records) => pastRuns(locks, records, name))
  if (input.json) printJson(STDOUT, input.command, { name, runs: runs.map(runJson) })
  else if (runs.length > 0) print(historyTable(runs))
  else say(`no run of '${printable(name)}' is known`)
  return EXITS.ok.code
}

async function ask<Item>(
  input: Input,
  look: (locks: Locks, records: RecordStore<JobRecord>) => AsyncIterable<Item>,
): Promise<Item[]> {
  await using opened = await open(input)
  return await opened.ask(async (locks) => {
    const found: Item[] = []
    for await (const item of look(locks, new RecordStore<JobRecord>('cron', locks, {}))) found.push(item)
    return found
  })
}

function listing(jobs: readonly JobSummary[]): string {
  const rows = jobs.map(({ name, schedule, last }) => [
    name,
    schedule,
    last === undefined ? '' : time(last.tick),
    last?.outcome ?? '',
    last === undefined ? '' : took(last),
    last?.holder ?? '',
  ])
  return table(['JOB', 'SCHEDULE', 'LAST', 'OUTCOME', 'TOOK', 'HOLDER'], rows, colours(STDOUT).dim)
}

function historyTable(runs: readonly PastRun[]): string {
  const rows = runs.map((run) => [
    time(run.tick),
    String(run.attempt),
    run.outcome,
    formatDuration(Math.max(0, run.startedAt.getTime() - run.tick.getTime())),
    took(run),
    run.missed === 0 ? '' : String(run.missed),
    run.holder,
    run.error ?? '',
  ])
  return table(['TICK', 'ATTEMPT', 'OUTCOME', 'LATE', 'TOOK', 'MISSED', 'HOLDER', 'ERROR'], rows, colours(STDOUT).dim)
}

function runJson(run: PastRun): object {
  const { endedAt, error } = run
  return { ...run, endedAt: endedAt ?? null, tookMs: tookMs(run) ?? null, error: error ?? null }
}

/** In UTC, like all that `cron` says of times. */
function time(date: Date): string {
  return date.toISOString().replace('.000Z', 'Z')
}

function took(run: PastRun): string {
  const ms = tookMs(run)
  return ms === undefined ? '' : formatDuration(ms)
}

function tookMs({ startedAt, endedAt }: PastRun): number | undefined {
  return endedAt === undefined ? undefined : endedAt.getTime() - startedAt.getTime()
}
