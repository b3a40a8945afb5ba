/**
 * OpenTelemetry for Holdfast: spans and metrics, made from the events on `diagnostics_channel`.
 *
 *     import { instrument } from 'holdfast/otel'
 *     const stop = instrument()
 *
 * Metrics are those of telemetry/metrics.ts. Their attributes have few values: the engine, and the *class* of the lock
 * (`order:42` is `order:*`), never the key itself. Spans have the key on request.
 */
import {
  type BatchObservableCallback,
  context,
  type Meter,
  metrics,
  type Span,
  SpanStatusCode,
  type Tracer,
  trace,
} from '@opentelemetry/api'
import type { Operation } from './core/diagnostics.ts'
import { checkOptions, type OptionNames } from './core/options.ts'
import { defaultClassOf, fewClasses } from './telemetry/classes.ts'
import { LINE_METRICS, LineGauges } from './telemetry/line-gauges.ts'
import { type Labels, METRIC_NAMES, type MetricName, metricSpec } from './telemetry/metrics.ts'
import { type Measure, recordEvents, subscribeAll } from './telemetry/recorder.ts'

export { defaultClassOf } from './telemetry/classes.ts'

/** What `instrument()` takes. */
export interface InstrumentOptions {
  /** The global provider's unless given. */
  readonly tracer?: Tracer
  /** The global provider's unless given. */
  readonly meter?: Meter
  /** The class of a key. Keep the number of classes small: from the 501st on, all are `*`. */
  readonly classOf?: (key: string) => string
  /**
   * Put the key on spans, as `holdfast.key`. Off unless asked for: keys can name customers, and spans often go to
   * another company. Metrics never have it.
   */
  readonly keyOnSpans?: boolean
}

const INSTRUMENT_OPTIONS: OptionNames<InstrumentOptions> = {
  tracer: true,
  meter: true,
  classOf: true,
  keyOnSpans: true,
}

/** Begin to report. Returns what ends it. */
export function instrument(options: InstrumentOptions = {}): () => void {
  checkOptions('instrument()', options, INSTRUMENT_OPTIONS)
  const { tracer = trace.getTracer('holdfast'), meter = metrics.getMeter('holdfast'), keyOnSpans = false } = options
  const classOf = fewClasses(options.classOf ?? defaultClassOf)
  const gauges = new LineGauges(classOf)
  const stopMetrics = recordEvents({ record: recordWith(meter), gauges, classOf })
  const stopGauges = observe(meter, gauges)
  const stopSpans = reportSpans(tracer, ({ engine, key }) => ({
    'holdfast.engine': engine,
    'holdfast.class': classOf(key),
    ...(keyOnSpans ? { 'holdfast.key': key } : {}),
  }))
  return () => {
    stopMetrics()
    stopGauges()
    stopSpans()
  }
}

type SpanAttributes = Labels & { readonly 'holdfast.key'?: string }

function reportSpans(tracer: Tracer, attributesOf: (operation: Operation) => SpanAttributes): () => void {
  const spans = new Map<Operation, Span>()
  const end = (operation: Operation, failed?: string): void => {
    const span = spans.get(operation)
    spans.delete(operation)
    if (failed !== undefined) span?.setStatus({ code: SpanStatusCode.ERROR, message: failed })
    span?.end()
  }
  return subscribeAll({
    request({ operation }) {
      // Published in the caller's own context, so the span is a child of whatever the caller is doing.
      const span = tracer.startSpan('holdfast.acquire', { attributes: attributesOf(operation) }, context.active())
      spans.set(operation, span)
    },
    grant({ operation, token, queued }) {
      const acquiring = spans.get(operation)
      const term = token === null ? {} : { 'holdfast.token': String(token) }
      acquiring?.setAttributes({ 'holdfast.outcome': 'granted', 'holdfast.queued': queued, ...term })
      const parent = acquiring === undefined ? context.active() : trace.setSpan(context.active(), acquiring)
      end(operation)
      const attributes = { ...attributesOf(operation), ...term }
      spans.set(operation, tracer.startSpan('holdfast.hold', { attributes }, parent))
    },
    refusal({ operation, why }) {
      spans.get(operation)?.setAttribute('holdfast.outcome', why)
      end(operation, why === 'error' ? 'the engine failed' : undefined)
    },
    release({ operation }) {
      end(operation)
    },
    jeopardy({ operation, remainingMs }) {
      spans.get(operation)?.addEvent('holdfast.jeopardy', { 'holdfast.remaining': remainingMs / 1000 })
    },
    loss({ operation, why }) {
      spans.get(operation)?.setAttribute('holdfast.why', why)
      // The lease may never be released: the span ends where the hold did.
      end(operation, `lost: ${why}`)
    },
  })
}

/** Asks for the gauges whenever metrics are collected. Returns what ends it. */
function observe(meter: Meter, gauges: LineGauges): () => void {
  const observables = new Map(
    LINE_METRICS.map((name) => {
      const { unit, description } = metricSpec(name)
      return [name, meter.createObservableGauge(name, { unit, description })]
    }),
  )
  const callback: BatchObservableCallback = (result) => {
    for (const { metric, value, labels } of gauges.measurements()) {
      const observable = observables.get(metric)
      if (observable !== undefined) result.observe(observable, value, labels)
    }
  }
  meter.addBatchObservableCallback(callback, [...observables.values()])
  return () => meter.removeBatchObservableCallback(callback, [...observables.values()])
}

/** Records with one instrument for each metric of the table that is not a gauge. */
function recordWith(meter: Meter): Measure {
  const recorded = METRIC_NAMES.filter((name) => metricSpec(name).kind !== 'gauge')
  const recorders = new Map(recorded.map((name) => [name, recorderOf(meter, name)]))
  return (metric, value, labels) => recorders.get(metric)?.(value, labels)
}

function recorderOf(meter: Meter, name: MetricName): (value: number, labels: Labels) => void {
  const { kind, unit, description, buckets } = metricSpec(name)
  if (kind === 'histogram') {
    // The buckets of OpenTelemetry are made for milliseconds.
    const advice = { explicitBucketBoundaries: [...(buckets ?? [])] }
    const histogram = meter.createHistogram(name, { unit, description, advice })
    return (value, labels) => histogram.record(value, labels)
  }
  const options = { unit, description }
  const counter = kind === 'counter' ? meter.createCounter(name, options) : meter.createUpDownCounter(name, options)
  return (value, labels) => counter.add(value, labels)
}
