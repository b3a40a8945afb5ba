/** `holdfast show KEY`: who holds it and who waits, in order. */
import type { CommandSpec } from '../args.ts'
import { EXITS } from '../exits.ts'
import { lineJson, lineText } from '../line-view.ts'
import { open } from '../open.ts'
import { print, printJson, STDOUT } from '../output.ts'

export const command: CommandSpec = {
  usage: 'KEY [options]',
  takes: { least: 1, most: 1 },
  runs: false,
  options: {},
  examples: [
    ['holdfast show nightly', 'who holds it, with token, host, pid, since when and for how long still'],
    ["holdfast show nightly --json | jq -r '.entries[0].token'", 'the token of its holder, as evict wants it'],
  ],
  notes: {
    columns: [
      ['SINCE', 'since when it has been held, or waited for: by the clock of this host, in UTC'],
      ['FOR', 'for how long that is'],
      ['LEFT', 'when it expires unless it is renewed; a holder that lives renews it every third of its ttl'],
      ['SHARE', 'blank for a mutex; read, or the part of a semaphore'],
      ['HOLDER', 'the command or the script, or the name that the process has given itself'],
    ],
  },
  run: async (input) => {
    const { key } = input
    await using opened = await open(input)
    const line = await opened.ask((locks) => locks.inspect(key))
    if (input.json) printJson(STDOUT, input.command, lineJson(line))
    else print(lineText(line))
    return EXITS.ok.code
  },
}
