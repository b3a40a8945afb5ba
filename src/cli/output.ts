/**
 * What people and scripts see. Everything is written synchronously and straight to the descriptor: `process.stdout`
 * would switch a pipe to non-blocking mode, for the command under the lock too, which shares it and may not expect
 * that; and nothing is cut off when we exit.
 */
import { fstatSync, writeSync } from 'node:fs'

export const STDOUT = 1
export const STDERR = 2
type Descriptor = typeof STDOUT | typeof STDERR

const AGAIN_MS = 5
const bell = new Int32Array(new SharedArrayBuffer(4))

/** False: no reader is left. */
export function write(fd: Descriptor, text: string): boolean {
  const bytes = Buffer.from(text)
  for (let sent = 0; sent < bytes.length; ) {
    try {
      sent += writeSync(fd, bytes, sent)
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException
      // The program that started us made it non-blocking, and its reader is slow.
      if (code === 'EAGAIN') Atomics.wait(bell, 0, 0, AGAIN_MS)
      // `holdfast ls | head -1`, or a terminal that is gone: no reader is left to tell.
      else if (code === 'EPIPE' || code === 'EIO' || code === 'EBADF') return false
      else throw error
    }
  }
  return true
}

export function print(text: string): boolean {
  return write(STDOUT, `${text}\n`)
}

/** A message of our own, beside whatever the command prints. */
export function say(text: string): void {
  write(STDERR, `holdfast: ${text}\n`)
}

/**
 * The one shape of everything `--json` prints: one object on one line. Tokens are decimal strings, durations are
 * milliseconds.
 */
export function printJson(fd: Descriptor, command: string, members: object): boolean {
  const text = JSON.stringify({ holdfast: 1, command, ...members }, (_, value: unknown) =>
    typeof value === 'bigint' ? String(value) : value,
  )
  return write(fd, `${text}\n`)
}

/**
 * Files and pipes, as in a crontab or a script, are told from terminals without Node's module for the latter: with the
 * sockets and streams that come along, loading it takes a fifth of Node's own start.
 */
export function isTerminal(fd: Descriptor): boolean {
  try {
    if (!fstatSync(fd).isCharacterDevice()) return false
  } catch {
    // It is closed.
    return false
  }
  return process.getBuiltinModule('node:tty').isatty(fd)
}

export type Paint = (text: string) => string

/**
 * Colours for one descriptor: none unless it is a terminal, none with NO_COLOR (https://no-color.org) or a dumb
 * terminal.
 */
export function colours(fd: Descriptor): { bold: Paint; dim: Paint; red: Paint; green: Paint; yellow: Paint } {
  const { NO_COLOR = '', TERM } = process.env
  const coloured = isTerminal(fd) && NO_COLOR === '' && TERM !== 'dumb'
  const paint =
    (on: number, off: number): Paint =>
    (text) =>
      coloured ? `\x1b[${on}m${text}\x1b[${off}m` : text
  return { bold: paint(1, 22), dim: paint(2, 22), red: paint(31, 39), green: paint(32, 39), yellow: paint(33, 39) }
}

/** Keys and holders come from others and may contain anything; a terminal would obey some of it. */
export function printable(text: string): string {
  return text.replace(
    /\p{Cc}|\p{Cf}|\p{Zl}|\p{Zp}/gu,
    (character) => `\\u{${(character.codePointAt(0) as number).toString(16).padStart(4, '0')}}`,
  )
}

/** Columns as wide as their widest cell; the last one takes what it needs. Cells are made printable, then painted. */
export function table(heads: readonly string[], rows: readonly (readonly string[])[], paintHead: Paint): string {
  const cells = [heads, ...rows.map((row) => row.map(printable))]
  const widths = heads.map((_, column) => Math.max(...cells.map((row) => row[column]?.length ?? 0)))
  const lines = cells.map((row) =>
    row.map((cell, column) => (column === row.length - 1 ? cell : cell.padEnd(widths[column] ?? 0))).join('  '),
  )
  return lines.map((line, index) => (index === 0 ? paintHead(line.trimEnd()) : line.trimEnd())).join('\n')
}
