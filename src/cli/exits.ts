/**
 * How `holdfast` ends: every exit code it gives of its own, in one table. docs/cli.md has the same rows, and a test
 * keeps them equal.
 *
 * The numbers above 63 are those of sysexits.h, of timeout(1) and of shells, where they have one for the case.
 */
import { constants } from 'node:os'

export const EXITS = {
  ok: { code: 0, means: 'done; for `run` and `elect`: the command ended with 0' },
  no: {
    code: 1,
    means:
      'the answer is no: `evict` found no entry with that token, `guard reset` no such mark, `doctor` found a failure',
  },
  usage: { code: 64, means: 'wrong usage, or something that this engine cannot do' },
  unreachable: { code: 69, means: 'the engine cannot be reached or used' },
  bug: { code: 70, means: 'an error inside holdfast; please report it' },
  busy: { code: 75, means: '`-n`: another holder has it (`--busy-exit` changes the number)' },
  lost: { code: 79, means: 'the lock was lost, or `--max-hold` was over, while the command ran; it was ended' },
  waited: { code: 124, means: '`--wait` ran out' },
  cannotRun: { code: 126, means: 'the command was found and cannot be run' },
  notFound: { code: 127, means: 'the command was not found' },
} as const

export type Exit = keyof typeof EXITS

/** For the help of a command: these codes, in words. */
export function exitRows(exits: readonly Exit[]): readonly (readonly [string, string])[] {
  return exits.map((exit) => [String(EXITS[exit].code), EXITS[exit].means.replaceAll('`', '')])
}

const SIGNAL_BASE = 128

/** A process that was ended by signal n counts as 128 + n, as in a shell. */
export function signalExit(signal: NodeJS.Signals): number {
  return SIGNAL_BASE + constants.signals[signal]
}
