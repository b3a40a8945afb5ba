/** The text for Prometheus: its format, and that it says what happened. */
import { describe, expect, test } from 'vitest'
import { publish } from '../../src/core/diagnostics.ts'
import { type PrometheusMetrics, prometheus } from '../../src/prometheus.ts'
import { METRIC_NAMES, metricSpec } from '../../src/telemetry/metrics.ts'
import { inMemory, settled, watched } from './world.ts'

/** The lines of one metric, comments included. */
function linesOf(metrics: PrometheusMetrics, name: string): readonly string[] {
  return metrics
    .text()
    .split('\n')
    .filter((line) => line.split(/[ {]/).some((word) => word.replace(/_(?:bucket|sum|count)$/, '') === name))
}

const operation = (key: string): { engine: string; key: string; weight: number; limit: number } => ({
  engine: 'redis',
  key,
  weight: 1,
  limit: 1,
})

describe('the text', () => {
  test('has nothing before anything has happened', () => {
    using metrics = prometheus()
    expect(metrics.text()).toBe('')
    expect(metrics.contentType).toBe('text/plain; version=0.0.4; charset=utf-8')
  })

  test('has HELP and TYPE once, then one line for each set of labels, in an order that does not depend on time', () => {
    using metrics = prometheus()
    for (const key of ['b:1', 'a:1', 'b:2']) publish.loss({ operation: operation(key), token: 1n, why: 'deadline' })
    expect(metrics.text()).toBe(
      [
        '# HELP holdfast_losses_total Leases that ended before their release, by why.',
        '# TYPE holdfast_losses_total counter',
        'holdfast_losses_total{holdfast_engine="redis",holdfast_class="a:*",holdfast_why="deadline"} 1',
        'holdfast_losses_total{holdfast_engine="redis",holdfast_class="b:*",holdfast_why="deadline"} 2',
        '',
      ].join('\n'),
    )
  })

  test('of a histogram has cumulative buckets, all of them below +Inf, the sum and the count', () => {
    using metrics = prometheus()
    for (const marginMs of [-500, 0, 300, 20_000, 20_001, 9e9]) publish.renewal({ engine: 'etcd', count: 1, marginMs })
    const lines = linesOf(metrics, 'holdfast_renewal_margin_seconds')
    expect(lines.slice(0, 2)).toEqual([
      expect.stringMatching(/^# HELP holdfast_renewal_margin_seconds \w/),
      '# TYPE holdfast_renewal_margin_seconds histogram',
    ])
    const bucket = (le: string): string | undefined =>
      lines.find((line) => line.includes(`{holdfast_engine="etcd",le="${le}"}`))?.split(' ')[1]
    expect(['0', '0.25', '0.5', '15', '20', '30', '3600', '+Inf'].map(bucket)).toEqual([
      '2',
      '2',
      '3',
      '3',
      '4',
      '5',
      '5',
      '6',
    ])
    expect(lines.slice(-3)).toEqual([
      'holdfast_renewal_margin_seconds_bucket{holdfast_engine="etcd",le="+Inf"} 6',
      'holdfast_renewal_margin_seconds_sum{holdfast_engine="etcd"} 9000039.801',
      'holdfast_renewal_margin_seconds_count{holdfast_engine="etcd"} 6',
    ])
  })

  test('escapes what a class may contain', () => {
    using metrics = prometheus({ classOf: (key) => key })
    publish.jeopardy({ operation: operation('a"b\\c\nd'), token: 1n, remainingMs: 1 })
    expect(metrics.text()).toContain('holdfast_class="a\\"b\\\\c\\nd"} 1\n')
  })

  test('does not grow with the number of classes: from the 501st on, all are one', () => {
    using metrics = prometheus({ classOf: (key) => key })
    for (let made = 0; made < 600; made += 1)
      publish.jeopardy({ operation: operation(`key ${made}`), token: 1n, remainingMs: 1 })
    const series = linesOf(metrics, 'holdfast_jeopardies_total').filter((line) => !line.startsWith('#'))
    expect(series.length).toBe(501)
    expect(series).toContain('holdfast_jeopardies_total{holdfast_engine="redis",holdfast_class="*"} 100')
  })

  test('stays as it is after it was stopped', () => {
    const metrics = prometheus()
    publish.inversion({ first: 'a', second: 'b', message: 'a and b' })
    metrics.stop()
    publish.inversion({ first: 'a', second: 'b', message: 'a and b' })
    expect(linesOf(metrics, 'holdfast_inversions_total').at(-1)).toBe('holdfast_inversions_total 1')
  })
})

describe('what happens', () => {
  test('is counted: waits by outcome, holds, hand-offs; and nothing is left waiting or held', async () => {
    using metrics = prometheus()
    const { clock, locks } = inMemory()
    const first = await locks.mutex('order:1').acquire()
    const second = watched(locks.mutex('order:1').acquire())
    await locks.mutex('order:1').tryAcquire()
    await clock.advance(4000)
    const now = (name: string): readonly string[] =>
      linesOf(metrics, name)
        .filter((line) => !line.startsWith('#') && !line.includes('_bucket') && !line.includes('_sum'))
        .map((line) => line.replace('holdfast_engine="memory",holdfast_class="order:*"', ''))
    expect([now('holdfast_waiting'), now('holdfast_held')]).toEqual([['holdfast_waiting{} 1'], ['holdfast_held{} 1']])
    await first.release()
    await settled()
    await second.value.release()
    expect([now('holdfast_waiting'), now('holdfast_held')]).toEqual([['holdfast_waiting{} 0'], ['holdfast_held{} 0']])
    expect(now('holdfast_wait_duration_seconds')).toEqual([
      'holdfast_wait_duration_seconds_count{,holdfast_outcome="busy"} 1',
      'holdfast_wait_duration_seconds_count{,holdfast_outcome="granted"} 2',
    ])
    expect(now('holdfast_hold_duration_seconds')).toEqual([
      'holdfast_hold_duration_seconds_count{,holdfast_outcome="released"} 2',
    ])
    expect(now('holdfast_handoffs_total')).toEqual(['holdfast_handoffs_total{} 1'])
    await locks.close()
  })

  test('to leases that were there before is not counted down below zero', async () => {
    const { locks } = inMemory()
    const lease = await locks.mutex('a').acquire()
    const waiter = watched(locks.mutex('a').acquire())
    await settled()
    using metrics = prometheus()
    await lease.release()
    await settled()
    await waiter.value.release()
    expect(metrics.text()).not.toMatch(/ -/)
    expect(linesOf(metrics, 'holdfast_held').at(-1)).toMatch(/ 0$/)
    await locks.close()
  })
})

test('every metric of the table says its unit, and every histogram has rising bounds', () => {
  for (const name of METRIC_NAMES) {
    const { kind, unit, description, buckets } = metricSpec(name)
    expect(unit).toMatch(/^s$|^\{\w+\}$/)
    expect(description).toMatch(/^[A-Z].*\.$/)
    expect(buckets !== undefined, name).toBe(kind === 'histogram')
    expect(buckets ?? []).toEqual([...(buckets ?? [])].sort((a, b) => a - b))
  }
})
