/** `holdfast ls [PREFIX]`: every key that is held or waited for. */
import type { LineSummary } from '../../core/engine.ts'
import { compareKeys } from '../../core/keys.ts'
import type { CommandSpec } from '../args.ts'
import { EXITS } from '../exits.ts'
import { open } from '../open.ts'
import { colours, print, printJson, STDOUT, table } from '../output.ts'

export const command: CommandSpec = {
  usage: '[PREFIX] [options]',
  takes: { least: 0, most: 1 },
  runs: false,
  options: {},
  examples: [
    ['holdfast ls', 'everything'],
    ['holdfast ls backup:', 'keys that begin with backup:'],
    ["holdfast ls --json | jq -r '.lines[].key'", 'only the keys'],
  ],
  run: async (input) => {
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
  },
}

function listing(lines: readonly LineSummary[]): string {
  const rows = lines.map(({ key, held, waiting }) => [String(held), String(waiting), key])
  return table(['HELD', 'WAITING', 'KEY'], rows, colours(STDOUT).dim)
}
