/**
 * OpenTelemetry for Holdfast: spans and metrics, made from the events on `diagnostics_channel`.
 *
 *     import { instrument } from 'holdfast/otel'
 *     const stop = instrument()
 *
 * Labels have few values: the engine, and the *class* of the lock (`order:42` is `order:*`), never the key itself.
 * Durations are in seconds.
 */
import {
  type Attributes,
  context,
  type Meter,
  metrics,
  type Span,
  SpanStatusCode,
  type Tracer,
  trace,
} from '@opentelemetry/api'
import { channels, type EventName, type Events, type Operation } from './core/diagnostics.ts'

export interface InstrumentOptions {
  /** The global provider's unless given. */
  readonly tracer?: Tracer
  readonly meter?: Meter
  /** The class of a key. Keep the number of classes small. */
  readonly classOf?: (key: string) => string
}

/**
 * `order:42` is `order:*`, `tenant/7/import` is `tenant/*`. A key without a separator is its own class, unless it has a
 * digit: then it is probably one of many, and its class is `*`.
 */
export function defaultClassOf(key: string): string {
  const cut = key.search(/[:/]/)
  if (cut > 0) return `${key.slice(0, cut + 1)}*`
  return /\d/.test(key) || key.length > 64 ? '*' : key
}

/** Begin to report. Returns what ends it. */
export function instrument(options: InstrumentOptions = {}): () => void {
  const {
    tracer = trace.getTracer('holdfast'),
    meter = metrics.getMeter('holdfast'),
    classOf = defaultClassOf,
  } = options
  const spans = new Map<Operation, Span>()
  const instruments = createInstruments(meter)
  const labels = ({ engine, key }: Operation): Attributes => ({
    'holdfast.engine': engine,
    'holdfast.lock.class': classOf(key),
  })

  const end = (operation: Operation, failed?: string): void => {
    const span = spans.get(operation)
    spans.delete(operation)
    if (failed !== undefined) span?.setStatus({ code: SpanStatusCode.ERROR, message: failed })
    span?.end()
  }

  return subscribeAll({
    request({ operation }) {
      instruments.waiting.add(1, labels(operation))
      // Published in the caller's own context, so the span is a child of whatever the caller is doing.
      spans.set(operation, tracer.startSpan('holdfast.acquire', { attributes: labels(operation) }, context.active()))
    },
    grant({ operation, token, waitedMs, queued }) {
      const attributes = labels(operation)
      instruments.waiting.add(-1, attributes)
      instruments.held.add(1, attributes)
      instruments.wait.record(waitedMs / 1000, { ...attributes, outcome: 'granted' })
      if (queued) instruments.handOffs.add(1, attributes)
      const acquiring = spans.get(operation)
      acquiring?.setAttributes({
        'holdfast.queued': queued,
        ...(token === null ? {} : { 'holdfast.token': String(token) }),
      })
      const parent = acquiring === undefined ? context.active() : trace.setSpan(context.active(), acquiring)
      end(operation)
      spans.set(operation, tracer.startSpan('holdfast.hold', { attributes }, parent))
    },
    refusal({ operation, waitedMs, why }) {
      const attributes = labels(operation)
      instruments.waiting.add(-1, attributes)
      instruments.wait.record(waitedMs / 1000, { ...attributes, outcome: why })
      spans.get(operation)?.setAttribute('holdfast.outcome', why)
      end(operation, why === 'error' ? 'the engine failed' : undefined)
    },
    release({ operation, heldMs, lost }) {
      const attributes = labels(operation)
      instruments.hold.record(heldMs / 1000, { ...attributes, outcome: lost === undefined ? 'released' : 'lost' })
      if (lost === undefined) instruments.held.add(-1, attributes)
      end(operation)
    },
    renewal({ engine, marginMs }) {
      instruments.renewalMargin.record(marginMs / 1000, { 'holdfast.engine': engine })
    },
    jeopardy({ operation, remainingMs }) {
      instruments.jeopardy.add(1, labels(operation))
      spans.get(operation)?.addEvent('jeopardy', { 'holdfast.remaining_s': remainingMs / 1000 })
    },
    loss({ operation, why }) {
      const attributes = labels(operation)
      instruments.held.add(-1, attributes)
      instruments.losses.add(1, { ...attributes, why })
      // The lease may never be released: the span ends where the hold did.
      end(operation, `lost: ${why}`)
    },
    failure({ engine, verb, error }) {
      instruments.failures.add(1, { 'holdfast.engine': engine, verb, outcome: error.outcome })
    },
    cleanup({ engine, wasThere }) {
      instruments.cleanups.add(1, { 'holdfast.engine': engine, was_there: wasThere })
    },
    warning({ engine, name }) {
      instruments.warnings.add(1, { 'holdfast.engine': engine, name })
    },
  })
}

// The return type names each instrument: that is the documentation of the metrics.
function createInstruments(meter: Meter) {
  return {
    wait: meter.createHistogram('holdfast.wait.duration', {
      unit: 's',
      description: 'From asking to being granted, refused or cancelled.',
    }),
    hold: meter.createHistogram('holdfast.hold.duration', { unit: 's', description: 'From the grant to the release.' }),
    renewalMargin: meter.createHistogram('holdfast.renewal.margin', {
      unit: 's',
      description: 'Time the most pressed lease of a beat had left when the beat was answered.',
    }),
    handOffs: meter.createCounter('holdfast.handoffs', { description: 'Grants to callers that had to stand in line.' }),
    jeopardy: meter.createCounter('holdfast.jeopardy', {
      description: 'Leases that went two thirds of their time without a renewal.',
    }),
    losses: meter.createCounter('holdfast.lost', { description: 'Leases that ended before their release.' }),
    failures: meter.createCounter('holdfast.call.failures', {
      description: 'Failed calls to the engine, by outcome (unknown or not-applied).',
    }),
    cleanups: meter.createCounter('holdfast.unknown.resolved', {
      description: 'Enters of unknown outcome that were cleaned up.',
    }),
    warnings: meter.createCounter('holdfast.warnings', {
      description: 'Findings about a server that could break the promises of its engine.',
    }),
    waiting: meter.createUpDownCounter('holdfast.waiting', {
      description: 'Callers of this process that wait for a lock.',
    }),
    held: meter.createUpDownCounter('holdfast.held', { description: 'Leases that this process holds.' }),
  }
}

type Handlers = { readonly [Name in EventName]?: (message: Events[Name]) => void }

function subscribeAll(handlers: Handlers): () => void {
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
