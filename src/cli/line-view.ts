/** A line as people and programs see it: `show`, `watch` and the JSON of both. */
import { formatDuration } from '../core/duration.ts'
import { type Line, type LineEntry, UNLIMITED } from '../core/engine.ts'
import { colours, printable, STDOUT, table } from './output.ts'

/** The parts of a holder that `holdfast` (job.ts) or the library wrote; a name that a user chose has none. */
export interface HolderParts {
  readonly host: string | null
  readonly pid: number | null
  readonly command: string | null
}

export function parseHolder(holder: string): HolderParts {
  const match = /^([^\s:]+):(\d+)(?: (.*))?$/s.exec(holder)
  if (match === null) return { host: null, pid: null, command: null }
  return { host: match[1] ?? null, pid: Number(match[2]), command: match[3] ?? null }
}

export function lineJson(line: Line): object {
  return { key: line.key, entries: line.entries.map(entryJson) }
}

function entryJson(entry: LineEntry): object {
  const { state, holder, token, weight, limit, ttlMs, remainingMs, ageMs, heldMs, evicted = false } = entry
  const rounded = (ms: number | null): number | null => (ms === null ? null : Math.round(ms))
  return {
    state,
    holder,
    ...parseHolder(holder),
    token,
    weight,
    limit: limit === UNLIMITED ? null : limit,
    ttlMs,
    remainingMs: rounded(remainingMs),
    ageMs: rounded(ageMs),
    heldMs: rounded(heldMs),
    evicted,
  }
}

/** The line in order, for a terminal. */
export function lineText(line: Line): string {
  const { bold, dim } = colours(STDOUT)
  const title = bold(printable(line.key))
  if (line.entries.length === 0) return `${title}: nobody holds it, nobody waits`
  const rows = line.entries.map((entry) => {
    const { host, pid, command } = parseHolder(entry.holder)
    return [
      entry.evicted === true ? 'evicted' : entry.state,
      entry.token === null ? '' : String(entry.token),
      host ?? '',
      pid === null ? '' : String(pid),
      duration(entry.state === 'held' ? (entry.heldMs ?? entry.ageMs) : entry.ageMs),
      duration(entry.remainingMs),
      share(entry),
      host === null ? entry.holder : (command ?? ''),
    ]
  })
  return `${title}\n${table(['STATE', 'TOKEN', 'HOST', 'PID', 'FOR', 'LEFT', 'SHARE', 'HOLDER'], rows, dim)}`
}

/** Blank for a mutex; `read`; `1 of 4`. */
function share({ weight, limit }: LineEntry): string {
  if (limit === 1) return ''
  return limit === UNLIMITED ? 'read' : `${weight} of ${limit}`
}

function duration(ms: number | null): string {
  return ms === null ? '' : formatDuration(ms)
}
