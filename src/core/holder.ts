/** How a process is called in lines, and how that name is read: `host:pid`, and then what the process is. */
import { hostname } from 'node:os'
import { basename } from 'node:path'
import { formatDuration } from './duration.ts'
import type { LineEntry } from './line-view.ts'

/** The name of a process that has not given itself one: `host:pid script.mjs`. No path and no arguments. */
export function defaultHolder(): string {
  const script = process.argv[1]
  const name = `${hostname()}:${process.pid}`
  return script === undefined ? name : `${name} ${basename(script)}`.toWellFormed()
}

/** The parts of a holder that the library or `holdfast run` wrote; a name that a user chose has none. */
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

/** `host pid 4711 (./backup.sh)`; a name that a user chose as it is. */
export function holderInWords(holder: string): string {
  const { host, pid, command } = parseHolder(holder)
  if (host === null) return holder
  return `${host} pid ${pid}${command === null ? '' : ` (${command})`}`
}

/** `host pid 4711 (./backup.sh) for 3s`. */
export function holdInWords(entry: LineEntry): string {
  const ms = entry.heldMs ?? entry.ageMs
  return `${holderInWords(entry.holder)}${ms === null ? '' : ` for ${formatDuration(ms)}`}`
}
