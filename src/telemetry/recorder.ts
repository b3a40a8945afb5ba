/**
 * From events on `diagnostics_channel` to measurements: the one place that knows which event counts for which metric.
 * OpenTelemetry and the text for Prometheus are two ways to keep what it records.
 */
import { channels, type EventName, type Events, type Operation } from '../core/diagnostics.ts'
import type { LineGauges } from './line-gauges.ts'
import type { AttributeName, Labels, MetricName } from './metrics.ts'

/** One measurement: to be added to a counter, or recorded in a histogram. */
export type Measure = (metric: MetricName, value: number, labels: Labels) => void

export interface RecorderOptions {
  readonly record: Measure
  /** Keeps what samples of lines say. */
  readonly gauges: LineGauges
  readonly classOf: (key: string) => string
}

/** Begin to record. Returns what ends it. */
export function recordEvents({ record, gauges, classOf }: RecorderOptions): () => void {
  const labels = new SharedLabels()
  const lockLabels = ({ engine, key }: Operation, name?: AttributeName, value?: string): Labels =>
    labels.of(engine, classOf(key), name, value)
  // What had begun before us is not counted down: `waiting` and `held` would go below zero.
  const waiting = new WeakSet<Operation>()
  const held = new WeakSet<Operation>()
  const enter = (metric: 'holdfast.waiting' | 'holdfast.held', set: WeakSet<Operation>, operation: Operation): void => {
    set.add(operation)
    record(metric, 1, lockLabels(operation))
  }
  const leave = (metric: 'holdfast.waiting' | 'holdfast.held', set: WeakSet<Operation>, operation: Operation): void => {
    if (set.delete(operation)) record(metric, -1, lockLabels(operation))
  }
  return subscribeAll({
    request({ operation }) {
      enter('holdfast.waiting', waiting, operation)
    },
    grant({ operation, waitedMs, queued }) {
      leave('holdfast.waiting', waiting, operation)
      enter('holdfast.held', held, operation)
      record('holdfast.wait.duration', waitedMs / 1000, lockLabels(operation, 'holdfast.outcome', 'granted'))
      if (queued) record('holdfast.handoffs', 1, lockLabels(operation))
    },
    refusal({ operation, waitedMs, why }) {
      leave('holdfast.waiting', waiting, operation)
      record('holdfast.wait.duration', waitedMs / 1000, lockLabels(operation, 'holdfast.outcome', why))
    },
    release({ operation, heldMs, why }) {
      leave('holdfast.held', held, operation)
      const outcome = why === undefined ? 'released' : 'lost'
      record('holdfast.hold.duration', heldMs / 1000, lockLabels(operation, 'holdfast.outcome', outcome))
    },
    renewal({ engine, marginMs }) {
      record('holdfast.renewal.margin', marginMs / 1000, { 'holdfast.engine': engine })
    },
    jeopardy({ operation }) {
      record('holdfast.jeopardies', 1, lockLabels(operation))
    },
    loss({ operation, why }) {
      // The lease may never be released: it is not held any more from here on.
      leave('holdfast.held', held, operation)
      record('holdfast.losses', 1, lockLabels(operation, 'holdfast.why', why))
    },
    failure({ operation, verb, error }) {
      const labels = { 'holdfast.engine': operation.engine, 'holdfast.verb': verb, 'holdfast.outcome': error.outcome }
      record('holdfast.failures', 1, labels)
    },
    cleanup({ operation, wasThere }) {
      record('holdfast.cleanups', 1, { 'holdfast.engine': operation.engine, 'holdfast.was_there': String(wasThere) })
    },
    inversion() {
      record('holdfast.inversions', 1, {})
    },
    warning({ engine, name }) {
      record('holdfast.warnings', 1, { 'holdfast.engine': engine, 'holdfast.finding': name })
    },
    sample(message) {
      gauges.hear(message)
      const { engine, tookMs, error, over } = message
      const outcome = error === undefined ? 'done' : 'failed'
      if (!over)
        record('holdfast.sample.duration', tookMs / 1000, { 'holdfast.engine': engine, 'holdfast.outcome': outcome })
    },
  })
}

/** One object for each set of labels that acquires have: to make them anew for each event would cost more. */
class SharedLabels {
  readonly #labels = new Map<string, Labels>()

  of(engine: string, className: string, name: AttributeName | undefined, value: string | undefined): Labels {
    const id = `${engine}\n${name}\n${value}\n${className}`
    const known = this.#labels.get(id)
    if (known !== undefined) return known
    const made: Labels = {
      'holdfast.engine': engine,
      'holdfast.class': className,
      ...(name === undefined ? {} : { [name]: value }),
    }
    this.#labels.set(id, made)
    return made
  }
}

type Handlers = { readonly [Name in EventName]?: (message: Events[Name]) => void }

/** Subscribe to several channels at once. Returns what ends it. */
export function subscribeAll(handlers: Handlers): () => void {
  const names = Object.keys(handlers) as EventName[]
  const subscribed = names.map((name) => {
    const listener = (message: unknown): void => (handlers[name] as (message: unknown) => void)(message)
    channels[name].subscribe(listener)
    return () => channels[name].unsubscribe(listener)
  })
  return () => {
    for (const unsubscribe of subscribed) unsubscribe()
  }
}
