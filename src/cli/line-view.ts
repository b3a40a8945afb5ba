/** A line as people and programs see it: `show`, `watch` and the JSON of both. */
import { wallClockMs } from '../core/clock.ts'
import { formatDuration } from '../core/duration.ts'
import { type Line, type LineEntry, UNLIMITED } from '../core/engine.ts'
import { parseHolder } from '../core/holder.ts'
import { colours, printable, STDOUT, table } from './output.ts'

/** When that was, if it began `ms` ago: by the clock of this host, in UTC. */
export function timeOf(ms: number | null): string | null {
  return ms === null ? null : new Date(wallClockMs() - ms).toISOString().replace(/\.\d+Z$/, 'Z')
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
    since: timeOf(stayMs(entry)),
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
      timeOf(stayMs(entry)) ?? '',
      duration(stayMs(entry)),
      duration(entry.remainingMs),
      share(entry),
      command ?? entry.holder,
    ]
  })
  return `${title}\n${table(['STATE', 'TOKEN', 'HOST', 'PID', 'SINCE', 'FOR', 'LEFT', 'SHARE', 'HOLDER'], rows, dim)}`
}

/** For how long it has held, or waited. */
function stayMs({ state, heldMs, ageMs }: LineEntry): number | null {
  return state === 'held' ? (heldMs ?? ageMs) : ageMs
}

/** Blank for a mutex; `read`; `1 of 4`. */
function share({ weight, limit }: LineEntry): string {
  if (limit === 1) return ''
  return limit === UNLIMITED ? 'read' : `${weight} of ${limit}`
}

function duration(ms: number | null): string {
  return ms === null ? '' : formatDuration(ms)
}
