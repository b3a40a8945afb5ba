/** `holdfast ls [PREFIX]`: every key that is held or waited for. */
import { formatDuration } from '../../core/duration.ts'
import { parseHolder } from '../../core/holder.ts'
import { compareKeys } from '../../core/keys.ts'
import type { LineSample, LineSummary } from '../../core/line-view.ts'
import { takeSample } from '../../core/sample.ts'
import type { CommandSpec, Input } from '../args.ts'
import { EXITS } from '../exits.ts'
import { timeOf } from '../line-view.ts'
import { open } from '../open.ts'
import { colours, print, printJson, STDOUT, table } from '../output.ts'

export const command: CommandSpec = {
  usage: '[PREFIX] [options]',
  takes: { least: 0, most: 1 },
  runs: false,
  options: { long: { short: 'l', help: 'also who holds, and for how long: the longest hold first' } },
  examples: [
    ['holdfast ls', 'everything'],
    ['holdfast ls -l', 'what has been held for longest, by whom, and how long others have waited for it'],
    ['holdfast ls backup:', 'keys that begin with backup:'],
    ["holdfast ls --json | jq -r '.lines[].key'", 'only the keys'],
  ],
  run: (input) => (input.has('long') ? listLong(input) : list(input)),
}

async function list(input: Input): Promise<number> {
  await using opened = await open(input)
  const [prefix = ''] = input.rest
  const lines = await opened.ask(async (locks) => {
    const found: LineSummary[] = []
    for await (const line of locks.list(prefix)) found.push(line)
    return found
  })
  lines.sort((a, b) => compareKeys(a.key, b.key))
  if (input.json)
    printJson(STDOUT, input.command, {
      prefix,
      lines: lines.map(({ key, held, waiting }) => ({ key, held, waiting })),
    })
  else if (lines.length > 0) print(listing(lines))
  return EXITS.ok.code
}

function listing(lines: readonly LineSummary[]): string {
  const rows = lines.map(({ key, held, waiting }) => [String(held), String(waiting), key])
  return table(['HELD', 'WAITING', 'KEY'], rows, colours(STDOUT).dim)
}

/** With one more call for each line. */
async function listLong(input: Input): Promise<number> {
  await using opened = await open(input)
  const [prefix = ''] = input.rest
  const range = { keys: [], prefixes: [prefix], most: Number.POSITIVE_INFINITY }
  const { lines } = await opened.ask((locks) => takeSample(locks, range))
  const sorted = lines.toSorted(
    (a, b) => (b.oldestHoldMs ?? 0) - (a.oldestHoldMs ?? 0) || b.waiting - a.waiting || compareKeys(a.key, b.key),
  )
  if (input.json) printJson(STDOUT, input.command, { prefix, lines: sorted.map(longJson) })
  else if (sorted.length > 0) print(longListing(sorted))
  return EXITS.ok.code
}

function longJson({ oldestHoldMs, oldestWaitMs, holder, ...line }: LineSample): object {
  const rounded = (ms: number | null): number | null => (ms === null ? null : Math.round(ms))
  return {
    ...line,
    oldestHoldMs: rounded(oldestHoldMs),
    since: timeOf(oldestHoldMs),
    oldestWaitMs: rounded(oldestWaitMs),
    holder,
    ...(holder === null ? { host: null, pid: null, command: null } : parseHolder(holder)),
  }
}

function longListing(lines: readonly LineSample[]): string {
  const duration = (ms: number | null): string => (ms === null ? '' : formatDuration(ms))
  const rows = lines.map(({ key, held, waiting, oldestHoldMs, oldestWaitMs, holder }) => [
    String(held),
    timeOf(oldestHoldMs) ?? '',
    duration(oldestHoldMs),
    String(waiting),
    duration(oldestWaitMs),
    key,
    holder ?? '',
  ])
  return table(['HELD', 'SINCE', 'FOR', 'WAITING', 'WAITED', 'KEY', 'HOLDER'], rows, colours(STDOUT).dim)
}
