/**
 * Who holds, in words: `host:pid command arguments`. It is what others see while they wait, so secrets have no place in
 * it: on a shared engine it can be read by people who could never have listed the processes of this host.
 */
import { hostname } from 'node:os'
import { redactCommand } from '../core/redact.ts'

/** The contract's bound on a holder, in bytes. */
const LONGEST_BYTES = 512

/** This process, as others shall see it. */
export function ownHolder(command: readonly string[]): string {
  const holder = `${hostname()}:${process.pid} ${redactCommand(command).join(' ')}`.toWellFormed()
  if (Buffer.byteLength(holder) <= LONGEST_BYTES) return holder
  // Cut at a character, not inside one.
  const cut = new TextDecoder().decode(Buffer.from(holder).subarray(0, LONGEST_BYTES - 3))
  return `${cut.replace(/�+$/, '')}…`
}

/** The parts of a holder that `holdfast` or the library wrote; a name that a user chose has none. */
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
