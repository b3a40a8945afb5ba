/** `holdfast metrics [PREFIX...]`: what lines are like, as gauges for Prometheus. It looks once. */
import { takeSample } from '../../core/sample.ts'
import { defaultClassOf, fewClasses } from '../../telemetry/classes.ts'
import { exposition } from '../../telemetry/exposition.ts'
import { LineGauges } from '../../telemetry/line-gauges.ts'
import { SeriesStore } from '../../telemetry/series.ts'
import type { CommandSpec } from '../args.ts'
import { EXITS } from '../exits.ts'
import { open } from '../open.ts'
import { printJson, STDOUT, write } from '../output.ts'

const DEFAULT_MOST = 1_000

export const command: CommandSpec = {
  usage: '[PREFIX...] [options]',
  takes: { least: 0, most: Number.POSITIVE_INFINITY },
  runs: false,
  options: {
    most: { takes: 'N', help: `look at N keys at most (${DEFAULT_MOST}), those with the most waiters first` },
  },
  examples: [
    [
      'holdfast metrics',
      'how many hold and wait, and the longest hold and wait; order:41 and order:42 are counted together, as order:*',
    ],
    ['holdfast metrics order: > holdfast.prom', 'for the textfile collector of node_exporter, once a minute from cron'],
  ],
  run: async (input) => {
    await using opened = await open(input)
    const most = input.wholeNumber('most', 1, Number.MAX_SAFE_INTEGER) ?? DEFAULT_MOST
    const prefixes = input.rest.length === 0 ? [''] : input.rest
    const sample = await opened.ask((locks) => takeSample(locks, { keys: [], prefixes, most }))
    if (input.json) printJson(STDOUT, input.command, { prefixes, ...sample })
    else {
      const gauges = new LineGauges(fewClasses(defaultClassOf))
      gauges.hear({ ...sample, sampler: {}, engine: opened.locks.engine.name, tookMs: 0 })
      const store = new SeriesStore()
      for (const measurement of gauges.measurements()) store.set(measurement)
      write(STDOUT, exposition(store))
    }
    return EXITS.ok.code
  },
}
