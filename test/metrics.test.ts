/** What people read about metrics, what they alert on and look at, and the table of metrics: all say the same. */
import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { publish } from '../src/core/diagnostics.ts'
import { prometheus } from '../src/prometheus.ts'
import { labelName, prometheusName } from '../src/telemetry/exposition.ts'
import { METRIC_NAMES, type MetricKind, type MetricName, metricSpec } from '../src/telemetry/metrics.ts'

const ALERTS = 'monitoring/alerts.yml'
const DASHBOARD = 'monitoring/dashboard.json'

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

/** Every series that Prometheus gets from us, with the labels that it has. */
function seriesLabels(): ReadonlyMap<string, readonly string[]> {
  const found = new Map<string, readonly string[]>()
  for (const metric of METRIC_NAMES) {
    const { kind, attributes } = metricSpec(metric)
    const name = prometheusName(metric)
    const labels = attributes.map(labelName)
    if (kind !== 'histogram') found.set(name, labels)
    else
      for (const part of ['bucket', 'sum', 'count'])
        found.set(`${name}_${part}`, part === 'bucket' ? [...labels, 'le'] : labels)
  }
  return found
}

/** What an expression names that is not there: a series, or a label that no series in it has. */
function unknownNames(expression: string): readonly string[] {
  const series = seriesLabels()
  const labels = new Set(['instance', 'le'])
  const names = [...expression.matchAll(/\bholdfast_\w+/g)].map(([name]) => name)
  for (const name of names) for (const label of series.get(name) ?? []) labels.add(label)
  const selected = [...expression.matchAll(/(holdfast_\w+)\{([^}]*)\}/g)].flatMap(([, name = '', selectors = '']) => {
    const used = [...selectors.matchAll(/(\w+)\s*(?:=~|!~|!=|=)/g)].map(([, label = '']) => label)
    return used.filter((label) => !(series.get(name) ?? []).includes(label)).map((label) => `${name}{${label}}`)
  })
  return [...names.filter((name) => !series.has(name) && !labels.has(name)), ...selected]
}

describe('an expression', () => {
  test('that names a metric or a label that is not there is found', () => {
    expect(unknownNames('sum by (holdfast_class) (rate(holdfast_losses_total{holdfast_why="x"}[5m]))')).toEqual([])
    expect(unknownNames('rate(holdfast_lost_total[5m])')).toEqual(['holdfast_lost_total'])
    expect(unknownNames('sum by (holdfast_verb) (holdfast_held)')).toEqual(['holdfast_verb'])
    expect(unknownNames('holdfast_held{holdfast_outcome="lost"}')).toContain('holdfast_held{holdfast_outcome}')
    expect(unknownNames('rate(holdfast_wait_duration_seconds[5m])')).toEqual(['holdfast_wait_duration_seconds'])
  })
})

/** The expressions of the rules, by name. YAML in the one form that the file is written in. */
function alerts(): ReadonlyMap<string, string> {
  const rules = readFileSync(ALERTS, 'utf8')
    .split(/^ {6}- alert: /m)
    .slice(1)
  return new Map(
    rules.map((rule) => {
      const [, name = ''] = /^(\w+)$/m.exec(rule) ?? []
      const [, expression = ''] = /^ {8}expr: \|\n((?: {10}.*\n)+)/m.exec(rule) ?? []
      return [name, expression]
    }),
  )
}

describe('the alert rules', () => {
  test('name metrics and labels that are there', () => {
    expect(alerts().size).toBeGreaterThan(8)
    for (const [name, expression] of alerts()) {
      expect(expression, name).toMatch(/holdfast_/)
      expect(unknownNames(expression), name).toEqual([])
    }
  })

  test('are told of in docs/monitoring.md, each under its name, in the same order', () => {
    const told = [...readFileSync('docs/monitoring.md', 'utf8').matchAll(/^### (Holdfast\w+)$/gm)]
    expect(told.map(([, name]) => name)).toEqual([...alerts().keys()])
    for (const name of alerts().keys())
      expect(readFileSync(ALERTS, 'utf8')).toContain(`docs/monitoring.md#${name.toLowerCase()}`)
  })
})

describe('the dashboard', () => {
  interface Panel {
    readonly id: number
    readonly title: string
    readonly type: string
    readonly gridPos: { readonly x: number; readonly y: number; readonly w: number; readonly h: number }
    readonly targets?: readonly { readonly expr: string }[]
  }
  const { panels, templating } = JSON.parse(readFileSync(DASHBOARD, 'utf8')) as {
    panels: readonly Panel[]
    templating: { list: readonly { name: string; query: string | { query: string } }[] }
  }
  const expressions = panels.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr))

  test('names metrics and labels that are there, and shows every metric', () => {
    for (const expression of expressions) expect(unknownNames(expression), expression).toEqual([])
    for (const { query } of templating.list.slice(1))
      expect(unknownNames((query as { query: string }).query)).toEqual([])
    const shown = METRIC_NAMES.filter((name) => expressions.join('\n').includes(prometheusName(name)))
    expect(shown).toEqual(METRIC_NAMES)
  })

  test('has panels with ids of their own, that do not lie on each other', () => {
    expect(new Set(panels.map(({ id }) => id)).size).toBe(panels.length)
    const cells = panels.flatMap(({ gridPos: { x, y, w, h } }) =>
      Array.from({ length: w * h }, (_, cell) => `${x + (cell % w)},${y + Math.floor(cell / w)}`),
    )
    expect(new Set(cells).size).toBe(cells.length)
  })
})

/** What promtool says to this; undefined where there is none. */
function promtool(args: readonly string[], input = ''): string | undefined {
  const { error, status, stdout, stderr } = spawnSync('promtool', [...args], { input, encoding: 'utf8' })
  return error === undefined ? `${status === 0 ? '' : `exit ${status}: `}${stdout}${stderr}` : undefined
}

test('promtool accepts the text, the rules, and what they fire on', (context) => {
  if (promtool(['--version']) === undefined) context.skip('promtool is not installed: apt-get install prometheus')
  using metrics = prometheus({ classOf: (key) => key })
  const operation = { engine: 'etcd', key: 'a"b\\c\nd', weight: 1, limit: 1 }
  publish.loss({ operation, token: 1n, why: 'deadline' })
  publish.request({ operation })
  publish.renewal({ engine: 'etcd', count: 1, marginMs: 20_000 })
  const line = { key: 'a', held: 1, waiting: 0, oldestHoldMs: 1, oldestWaitMs: null, holder: 'me' }
  publish.sample({ sampler: {}, engine: 'etcd', lines: [line], unsampled: 0, tookMs: 1 })
  expect(promtool(['check', 'metrics'], metrics.text())).toBe('')
  expect(promtool(['check', 'rules', ALERTS])).toMatch(new RegExp(`SUCCESS: ${alerts().size} rules found`))
  expect(promtool(['test', 'rules', 'test/monitoring/alerts.yml'])).toMatch(/SUCCESS/)
})
