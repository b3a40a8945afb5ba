/** The values behind the text for Prometheus: for each metric one number, or one histogram, for each set of labels. */
import type { Measurement } from './line-gauges.ts'
import { type Labels, type MetricName, metricSpec } from './metrics.ts'

/** What one set of labels has. */
export interface Series {
  readonly labels: Labels
  /** The value; of a histogram, the sum of what was recorded. */
  sum: number
  /** How often something was recorded. */
  count: number
  /** Of a histogram: how much was recorded up to each bound and above the one before. Not cumulative. */
  readonly counts: number[]
}

interface MetricSeries {
  readonly byText: Map<string, Series>
  /** The same, for labels that come again as the same object. */
  readonly byLabels: WeakMap<Labels, Series>
}

export class SeriesStore {
  readonly #metrics = new Map<MetricName, MetricSeries>()

  /** Add `value` to a counter, or record it in a histogram. */
  record(metric: MetricName, value: number, labels: Labels): void {
    const { buckets = [] } = metricSpec(metric)
    const series = this.#series(metric, labels, buckets.length)
    series.sum += value
    series.count += 1
    const bucket = buckets.findIndex((bound) => value <= bound)
    if (bucket >= 0) series.counts[bucket] = (series.counts[bucket] ?? 0) + 1
  }

  /** Set a gauge. */
  set({ metric, value, labels }: Measurement): void {
    this.#series(metric, labels, 0).sum = value
  }

  /** In an order that does not depend on what happened first. */
  seriesOf(metric: MetricName): readonly Series[] {
    const found = [...(this.#metrics.get(metric)?.byText ?? [])]
    return found.sort(([a], [b]) => (a < b ? -1 : 1)).map(([, series]) => series)
  }

  #series(metric: MetricName, labels: Labels, buckets: number): Series {
    const all = this.#metrics.get(metric) ?? { byText: new Map<string, Series>(), byLabels: new WeakMap() }
    const known = all.byLabels.get(labels)
    if (known !== undefined) return known
    this.#metrics.set(metric, all)
    const text = JSON.stringify(metricSpec(metric).attributes.map((name) => labels[name]))
    const series = all.byText.get(text) ?? { labels, sum: 0, count: 0, counts: Array<number>(buckets).fill(0) }
    all.byText.set(text, series)
    all.byLabels.set(labels, series)
    return series
  }
}
