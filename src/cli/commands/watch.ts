/**
 * `holdfast watch KEY`: the line of a key, again whenever it changes. On a terminal in place, else one after the other.
 * It ends when no reader is left, which only writing tells: `holdfast watch KEY | head -1` ends with the next change.
 */
import type { Line } from '../../core/engine.ts'
import type { CommandSpec } from '../args.ts'
import { EXITS } from '../exits.ts'
import type { Interrupted } from '../failure.ts'
import { lineJson, lineText } from '../line-view.ts'
import { open } from '../open.ts'
import { isTerminal, print, printJson, STDOUT, write } from '../output.ts'
import { Signals } from '../signals.ts'

/** Ages and times left go on, also while the line stays as it is. */
const LOOK_EVERY_MS = 1_000
/** Home, and erase what is below after writing. */
const HOME = '\x1b[H\x1b[2J'

export const command: CommandSpec = {
  usage: 'KEY [options]',
  takes: { least: 1, most: 1 },
  runs: false,
  options: { count: { short: 'c', takes: 'N', help: 'end after N changes, the first look included' } },
  examples: [
    ['holdfast watch nightly', 'until Ctrl-C'],
    ['holdfast watch nightly --json', 'one JSON object in a line for every change'],
  ],
  run: async (input) => {
    const { key } = input
    const most = input.wholeNumber('count', 1, Number.MAX_SAFE_INTEGER) ?? Number.POSITIVE_INFINITY
    await using opened = await open(input)
    const { interrupted } = new Signals()
    const redraw = isTerminal(STDOUT) && !input.json
    await opened.ask(async (locks) => {
      let [seen, last] = [0, '']
      for await (const line of locks.watch(key, { every: LOOK_EVERY_MS, signal: interrupted })) {
        if (interrupted.aborted) break
        const now = identity(line)
        if (now !== last) seen += 1
        let isRead = true
        if (redraw) isRead = write(STDOUT, `${HOME}${lineText(line)}\n`)
        else if (now !== last && input.json) isRead = printJson(STDOUT, input.command, lineJson(line))
        else if (now !== last) isRead = print(`${lineText(line)}\n`)
        last = now
        if (seen === most || !isRead) break
      }
    })
    // Ctrl-C is how one ends it: no error. Other signals end it as they end other commands.
    if (interrupted.aborted && (interrupted.reason as Interrupted).signal !== 'SIGINT') throw interrupted.reason
    return EXITS.ok.code
  },
}

/** What has to differ for a line to be another one: renewals and ages do not count. */
function identity(line: Line): string {
  return JSON.stringify([line.key, ...line.entries.map(({ id, state, evicted }) => [id, state, evicted])])
}
