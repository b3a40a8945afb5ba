/** What people read about metrics, and the table of metrics, say the same. */
import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { METRIC_NAMES, type MetricKind, type MetricName, metricSpec } from '../src/telemetry/metrics.ts'

const KINDS: Readonly<Record<MetricKind, string>> = {
  counter: 'counter',
  updown: 'up-down counter',
  histogram: 'histogram',
  gauge: 'gauge',
}

/** The row of docs/telemetry.md, without its meaning: `metric | kind | attributes`. */
function row(name: MetricName): string {
  const { kind, unit, attributes } = metricSpec(name)
  const [engine, ...others] = attributes.includes('holdfast.engine') ? attributes : [undefined, ...attributes]
  const said = [KINDS[kind], ...(unit === 's' ? ['s'] : []), ...(engine === undefined ? ['without an engine'] : [])]
  return `\`${name}\` | ${said.join(', ')} | ${others.map((attribute) => `\`${attribute}\``).join(', ')}`.trim()
}

test('docs/telemetry.md lists every metric, in order, with its kind, unit and attributes', () => {
  const rows = [...readFileSync('docs/telemetry.md', 'utf8').matchAll(/^\| (`holdfast\.[^|]*\|[^|]*\|[^|]*)\|/gm)]
  expect(rows.map(([, text = '']) => text.trim())).toEqual(METRIC_NAMES.map(row))
})
