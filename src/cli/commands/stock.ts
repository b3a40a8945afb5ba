/** `holdfast stock show NAME`: what there is of each item, what is sold, held and left. */
import { formatDuration } from '../../core/duration.ts'
import { type StockView, stock } from '../../recipes/stock/index.ts'
import { checkStockName } from '../../recipes/stock/items.ts'
import { type CommandSpec, didYouMean, UsageError } from '../args.ts'
import { EXITS } from '../exits.ts'
import { open } from '../open.ts'
import { colours, print, printable, printJson, STDOUT, say, table } from '../output.ts'

export const command: CommandSpec = {
  usage: 'show NAME [options]',
  takes: { least: 1, most: 2 },
  runs: false,
  options: {},
  examples: [
    ['holdfast stock show concert:9', 'what is sold, held and left of each item, and when the next hold lapses'],
    ["holdfast stock show concert:9 --json | jq '.items[] | select(.left <= 0)'", 'what is sold out, for a script'],
  ],
  async run(input) {
    const [verb = '', name] = input.rest
    if (verb !== 'show') throw new UsageError(`stock show; got '${verb}'${didYouMean(verb, ['show'])}`)
    if (name === undefined) throw new UsageError('which stock? holdfast stock show NAME')
    refuseOtherNames(name)
    await using opened = await open(input)
    const view = await opened.ask((locks) => stock(locks, name).show())
    if (input.json) printJson(STDOUT, input.command, { ...view })
    else if (view.items.length > 0) print(listing(view))
    else say(`there is no stock '${printable(name)}'`)
    return EXITS.ok.code
  },
}

function refuseOtherNames(name: string): void {
  try {
    checkStockName(name)
  } catch (error) {
    throw new UsageError((error as Error).message)
  }
}

function listing({ items, holds, nextLapseMs }: StockView): string {
  const rows = items.map(({ item, stock: all, sold, held, left }) => [item, ...[all, sold, held, left].map(String)])
  const lapse = nextLapseMs === null ? '' : `, the next one lapses in ${formatDuration(Math.ceil(nextLapseMs))}`
  const { dim } = colours(STDOUT)
  const listed = table(['ITEM', 'STOCK', 'SOLD', 'HELD', 'LEFT'], rows, dim)
  return `${listed}\n${dim(`${holds} ${holds === 1 ? 'hold' : 'holds'}${lapse}`)}`
}
