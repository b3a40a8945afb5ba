/**
 * The text format of Prometheus, version 0.0.4
 * (https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format).
 *
 * Names follow OpenTelemetry's rules for Prometheus: dots are underscores, seconds are said at the end, counters end
 * with `_total` (https://opentelemetry.io/docs/specs/otel/compatibility/prometheus_and_openmetrics/).
 */
import {
  type AttributeName,
  type Labels,
  METRIC_NAMES,
  type MetricKind,
  type MetricName,
  metricSpec,
} from './metrics.ts'
import type { Series, SeriesStore } from './series.ts'

export const CONTENT_TYPE = 'text/plain; version=0.0.4; charset=utf-8'

const TYPES: Readonly<Record<MetricKind, string>> = {
  counter: 'counter',
  updown: 'gauge',
  histogram: 'histogram',
  gauge: 'gauge',
}

/** Every metric that has a value, in the order of the table. */
export function exposition(store: SeriesStore): string {
  return METRIC_NAMES.map((metric) => metricText(metric, store.seriesOf(metric))).join('')
}

/** `holdfast.wait.duration` is `holdfast_wait_duration_seconds`. */
export function prometheusName(metric: MetricName): string {
  const { kind, unit } = metricSpec(metric)
  const name = labelName(metric)
  return `${name}${unit === 's' ? '_seconds' : ''}${kind === 'counter' ? '_total' : ''}`
}

/** `holdfast.class` is `holdfast_class`. */
export function labelName(attribute: AttributeName | MetricName): string {
  return attribute.replaceAll('.', '_')
}

function metricText(metric: MetricName, all: readonly Series[]): string {
  if (all.length === 0) return ''
  const name = prometheusName(metric)
  const { kind, description } = metricSpec(metric)
  const lines = all.flatMap((series) =>
    kind === 'histogram' ? histogramLines(metric, series) : [sampleLine(name, labelsText(metric, series), series.sum)],
  )
  return [`# HELP ${name} ${escapeHelp(description)}`, `# TYPE ${name} ${TYPES[kind]}`, ...lines, ''].join('\n')
}

/** Buckets are cumulative, and the last one, without a bound, has everything. */
function histogramLines(metric: MetricName, series: Series): readonly string[] {
  const name = prometheusName(metric)
  const labels = labelsText(metric, series)
  let below = 0
  const buckets = (metricSpec(metric).buckets ?? []).map((bound, index) => {
    below += series.counts[index] ?? 0
    return sampleLine(`${name}_bucket`, [...labels, `le="${bound}"`], below)
  })
  return [
    ...buckets,
    sampleLine(`${name}_bucket`, [...labels, 'le="+Inf"'], series.count),
    sampleLine(`${name}_sum`, labels, series.sum),
    sampleLine(`${name}_count`, labels, series.count),
  ]
}

function labelsText(metric: MetricName, { labels }: { readonly labels: Labels }): readonly string[] {
  return metricSpec(metric).attributes.map((name) => `${labelName(name)}="${escapeLabel(labels[name] ?? '')}"`)
}

function sampleLine(name: string, labels: readonly string[], value: number): string {
  return `${name}${labels.length === 0 ? '' : `{${labels.join(',')}}`} ${value}`
}

function escapeHelp(text: string): string {
  return text.replaceAll('\\', '\\\\').replaceAll('\n', '\\n')
}

function escapeLabel(text: string): string {
  return escapeHelp(text).replaceAll('"', '\\"')
}
