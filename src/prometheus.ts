/**
 * Metrics for Prometheus, as text, without a client library: made from the events on `diagnostics_channel`.
 *
 *     import { prometheus } from 'holdfast/prometheus'
 *     const metrics = prometheus()
 *     server.get('/metrics', (_, reply) => reply.type(metrics.contentType).send(metrics.text()))
 *
 * The metrics are those of telemetry/metrics.ts, under the names that OpenTelemetry's rules for Prometheus give them:
 * alert rules and dashboards are the same for both. With a client library of your own, append `text()` to its text.
 */
import { checkOptions, type OptionNames } from './core/options.ts'
import { defaultClassOf, fewClasses } from './telemetry/classes.ts'
import { CONTENT_TYPE, exposition } from './telemetry/exposition.ts'
import { LineGauges } from './telemetry/line-gauges.ts'
import { type Measure, recordEvents } from './telemetry/recorder.ts'
import { SeriesStore } from './telemetry/series.ts'

export { defaultClassOf } from './telemetry/classes.ts'

/** What `prometheus()` takes. */
export interface PrometheusOptions {
  /** The class of a key. Keep the number of classes small: from the 501st on, all are `*`. */
  readonly classOf?: (key: string) => string
}

/** What was counted. */
export interface PrometheusMetrics extends Disposable {
  /** Everything since `prometheus()` was called, in the text format of Prometheus. Ends with a newline. */
  text(): string
  /** The `Content-Type` of that text. */
  readonly contentType: string
  /** Stop counting. The text stays as it is. */
  stop(): void
}

const PROMETHEUS_OPTIONS: OptionNames<PrometheusOptions> = { classOf: true }

/** Begin to count what happens in this process. Once in a process is enough: all locks are in it. */
export function prometheus(options: PrometheusOptions = {}): PrometheusMetrics {
  checkOptions('prometheus()', options, PROMETHEUS_OPTIONS)
  const store = new SeriesStore()
  const classOf = fewClasses(options.classOf ?? defaultClassOf)
  const gauges = new LineGauges(classOf)
  const record: Measure = (metric, value, labels) => store.record(metric, value, labels)
  const stop = recordEvents({ record, gauges, classOf })
  const text = (): string => {
    for (const measurement of gauges.measurements()) store.set(measurement)
    return exposition(store)
  }
  return { text, contentType: CONTENT_TYPE, stop, [Symbol.dispose]: stop }
}
