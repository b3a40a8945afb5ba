/** Telemetry, with a real OpenTelemetry SDK and a real pino: what a user would see in their own backend. */

import { context, trace } from '@opentelemetry/api'
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks'
import {
  AggregationTemporality,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from '@opentelemetry/sdk-metrics'
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } from '@opentelemetry/sdk-trace-base'
import { pino } from 'pino'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { delegate } from '../../conformance/delegate.ts'
import { publish } from '../../src/core/diagnostics.ts'
import { type Engine, EngineError } from '../../src/engine.ts'
import { createLocks } from '../../src/index.ts'
import { defaultClassOf, instrument } from '../../src/otel.ts'
import { METRIC_NAMES } from '../../src/telemetry/metrics.ts'
import { fakeClock, memory } from '../../src/testing.ts'

const spanExporter = new InMemorySpanExporter()
const tracerProvider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(spanExporter)] })
const metricExporter = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE)
const reader = new PeriodicExportingMetricReader({ exporter: metricExporter, exportIntervalMillis: 3_600_000 })
const meterProvider = new MeterProvider({ readers: [reader] })
let stop = (): void => {}

beforeAll(() => {
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable())
  stop = instrument({ tracer: tracerProvider.getTracer('test'), meter: meterProvider.getMeter('test') })
})

afterAll(async () => {
  stop()
  context.disable()
  await meterProvider.shutdown()
  await tracerProvider.shutdown()
})

/** Every data point of the newest export, by metric name. */
async function points(): Promise<Map<string, { attributes: object; value: unknown }[]>> {
  metricExporter.reset()
  await reader.forceFlush()
  const found = new Map<string, { attributes: object; value: unknown }[]>()
  for (const { scopeMetrics } of metricExporter.getMetrics()) {
    for (const { metrics } of scopeMetrics) {
      for (const { descriptor, dataPoints } of metrics) found.set(descriptor.name, [...dataPoints])
    }
  }
  return found
}

/** An engine that a test can cut off. */
function cuttable(engine: Engine): Engine & { cut: boolean } {
  const lost = async (): Promise<never> => {
    throw new EngineError('memory', 'cut off', { outcome: 'unknown' })
  }
  const renew: Engine['renew'] = (places) => (wrapped.cut ? lost() : engine.renew(places))
  const wrapped = Object.assign(delegate(engine, { renew }), { cut: false })
  return wrapped
}

describe('telemetry', () => {
  it('makes a span for the acquire, inside the span of the caller, and one for the hold', async () => {
    spanExporter.reset()
    const locks = createLocks(memory())
    const caller = tracerProvider.getTracer('caller').startSpan('request')
    await context.with(trace.setSpan(context.active(), caller), () => locks.mutex('order:42').using(() => undefined))
    caller.end()
    const spans = new Map(spanExporter.getFinishedSpans().map((span) => [span.name, span]))
    expect(spans.get('holdfast.acquire')?.parentSpanContext?.spanId).toBe(caller.spanContext().spanId)
    expect(spans.get('holdfast.hold')?.parentSpanContext?.spanId).toBe(
      spans.get('holdfast.acquire')?.spanContext().spanId,
    )
    expect(spans.get('holdfast.acquire')?.attributes).toMatchObject({
      'holdfast.class': 'order:*',
      'holdfast.engine': 'memory',
    })
    await locks.close()
  })

  it('labels metrics with the class of the lock, never with the key', async () => {
    const locks = createLocks(memory())
    await locks.mutex('secret-tenant:4711').using(() => undefined)
    const all = JSON.stringify([...(await points())])
    expect(all).toContain('secret-tenant:*')
    expect(all).not.toContain('4711')
    await locks.close()
  })

  it('counts waits, hand-offs, losses, jeopardy and unknown outcomes, and brings the gauges back to zero', async () => {
    const clock = fakeClock()
    const engine = cuttable(memory({ clock }))
    const locks = createLocks(engine, { clock, ttl: '3s' })
    const mutex = locks.mutex('story:1')
    const first = await mutex.acquire()
    const second = mutex.acquire()
    await clock.advance(1)
    await first.release()
    await second
    engine.cut = true
    await clock.advance('4s')
    engine.cut = false
    const found = await points()
    const story = (name: string): { attributes: object; value: unknown }[] =>
      (found.get(name) ?? []).filter(({ attributes }) => JSON.stringify(attributes).includes('story:*'))
    expect(story('holdfast.handoffs').map(({ value }) => value)).toEqual([1])
    expect(story('holdfast.losses')).toMatchObject([{ value: 1, attributes: { 'holdfast.why': 'deadline' } }])
    expect(story('holdfast.jeopardies').map(({ value }) => value)).toEqual([1])
    expect(story('holdfast.wait.duration')).toMatchObject([
      { attributes: { 'holdfast.outcome': 'granted' }, value: { count: 2 } },
    ])
    expect(story('holdfast.waiting').map(({ value }) => value)).toEqual([0])
    expect(story('holdfast.held').map(({ value }) => value)).toEqual([0])
    expect(found.get('holdfast.failures')).toMatchObject([
      { attributes: { 'holdfast.verb': 'renew', 'holdfast.outcome': 'unknown' } },
    ])
    await locks.close()
  })

  it('counts the warnings of engines', async () => {
    publish.warning({ engine: 'redis', name: 'eviction', message: 'keys are evicted' })
    const found = await points()
    expect(found.get('holdfast.warnings')).toMatchObject([
      { value: 1, attributes: { 'holdfast.engine': 'redis', 'holdfast.finding': 'eviction' } },
    ])
  })

  it('has gauges of sampled lines, which are zero when the sampling is over', async () => {
    const clock = fakeClock()
    const locks = createLocks(memory({ clock }), { clock })
    await locks.mutex('sampled:1').acquire()
    await clock.advance('5s')
    const ending = new AbortController()
    const sampling = locks.sample({ prefixes: ['sampled:'], signal: ending.signal })
    await clock.advance('1s')
    const gauge = async (name: string): Promise<unknown> =>
      (await points()).get(name)?.map(({ attributes, value }) => [attributes, value])
    const attributes = { 'holdfast.engine': 'memory', 'holdfast.class': 'sampled:*' }
    expect(await gauge('holdfast.line.oldest_hold')).toEqual([[attributes, 5]])
    ending.abort()
    await sampling
    expect(await gauge('holdfast.line.oldest_hold')).toEqual([[attributes, 0]])
    await locks.close()
  })

  it('has every attribute in one namespace, and every metric in the table', async () => {
    const found = await points()
    const attributes = [...found.values()].flat().flatMap((point) => Object.keys(point.attributes))
    expect(attributes).toContain('holdfast.why')
    expect(attributes.filter((name) => !name.startsWith('holdfast.'))).toEqual([])
    expect([...found.keys()].filter((name) => !(METRIC_NAMES as readonly string[]).includes(name))).toEqual([])
  })

  it('puts the key on spans on request only', async () => {
    spanExporter.reset()
    const locks = createLocks(memory())
    const tracer = tracerProvider.getTracer('test')
    await locks.mutex('order:42').using(() => undefined)
    const stopKeys = instrument({ tracer, meter: meterProvider.getMeter('keys'), keyOnSpans: true })
    await locks.mutex('order:43').using(() => undefined)
    stopKeys()
    const keys = spanExporter.getFinishedSpans().map(({ name, attributes }) => [name, attributes['holdfast.key']])
    expect(keys.slice(0, 2), 'not asked for').toEqual([
      ['holdfast.acquire', undefined],
      ['holdfast.hold', undefined],
    ])
    expect(keys).toContainEqual(['holdfast.acquire', 'order:43'])
    expect(keys).toContainEqual(['holdfast.hold', 'order:43'])
    await locks.close()
  })

  it('is silent after it was stopped', async () => {
    stop()
    spanExporter.reset()
    const locks = createLocks(memory())
    await locks.mutex('order:1').using(() => undefined)
    expect(spanExporter.getFinishedSpans()).toEqual([])
    await locks.close()
  })

  it.each([
    ['order:42', 'order:*'],
    ['tenant/7/import', 'tenant/*'],
    ['nightly-report', 'nightly-report'],
    ['user42', '*'],
    [':x', ':x'],
  ])('the class of %s is %s', (key, expected) => {
    expect(defaultClassOf(key)).toBe(expected)
  })
})

describe('a logger', () => {
  it('gets grants at debug, losses at error, with the key and the token, as pino takes them', async () => {
    const lines: { level: number; msg: string; key?: string; token?: string; why?: string }[] = []
    const logger = pino({ level: 'debug' }, { write: (line: string) => lines.push(JSON.parse(line)) })
    const clock = fakeClock()
    const engine = cuttable(memory({ clock }))
    const locks = createLocks(engine, { clock, ttl: '3s', logger })
    await locks.mutex('job').acquire()
    engine.cut = true
    await clock.advance('4s')
    expect(lines.find(({ msg }) => msg === "acquired 'job'")).toMatchObject({ level: 20, key: 'job', token: '1' })
    expect(lines.find(({ msg }) => msg === "lost 'job'")).toMatchObject({ level: 50, why: 'deadline' })
    expect(lines.some(({ level, msg }) => level === 40 && msg.includes('not renewed'))).toBe(true)
    await locks.close()
  })
})
