/** `holdfast rate show KEY`: what is left of the limits of a key. */
import { formatDuration } from '../../core/duration.ts'
import { limitsOf, type ShownLimit } from '../../recipes/rate-limit/show.ts'
import { DrawStore } from '../../store/draws.ts'
import { type CommandSpec, didYouMean, UsageError } from '../args.ts'
import { EXITS } from '../exits.ts'
import { open } from '../open.ts'
import { colours, print, printable, printJson, STDOUT, say, table } from '../output.ts'

export const command: CommandSpec = {
  usage: 'show KEY [options]',
  takes: { least: 1, most: 2 },
  runs: false,
  options: {},
  examples: [
    ['holdfast rate show user:7', 'the limits that user:7 has taken from: what is left, and when there is more'],
    ["holdfast rate show user:7 --json | jq '.limits[].remaining'", 'the same, for a script'],
  ],
  async run(input) {
    const [verb = '', key] = input.rest
    if (verb !== 'show') throw new UsageError(`rate show; got '${verb}'${didYouMean(verb, ['show'])}`)
    if (key === undefined) throw new UsageError('which key? holdfast rate show KEY')
    await using opened = await open(input)
    const limits = await opened.ask(async (locks) => {
      const found: ShownLimit[] = []
      for await (const limit of limitsOf(new DrawStore('rate', locks), key)) found.push(limit)
      return found.toSorted((a, b) => (a.name < b.name ? -1 : 1))
    })
    if (input.json) printJson(STDOUT, input.command, { key, limits })
    else if (limits.length > 0) print(listing(limits))
    else say(`nothing is taken from any limit of '${printable(key)}'`)
    return EXITS.ok.code
  },
}

function listing(limits: readonly ShownLimit[]): string {
  const rows = limits.map(({ name, everyMs, burst, remaining, retryAfterMs, resetMs, bookedMs }) => [
    name,
    everyMs < 1 ? `${everyMs}ms` : formatDuration(everyMs),
    String(burst),
    String(remaining),
    retryAfterMs === 0 ? 'now' : formatDuration(retryAfterMs),
    formatDuration(resetMs),
    bookedMs === 0 ? '' : formatDuration(bookedMs),
  ])
  return table(['LIMIT', 'EVERY', 'BURST', 'REMAINING', 'NEXT', 'RESET', 'BOOKED'], rows, colours(STDOUT).dim)
}
