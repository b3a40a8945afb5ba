/**
 * Gauges of lines, from samples: for each class what its lines are like, as the last sample saw them.
 *
 * A class that was seen once stays, with zeros, when its lines are gone or the sampler has ended: OpenTelemetry would
 * repeat the last value for ever. A sample that failed changes nothing; `holdfast.sample.duration` says that it did.
 */
import type { Events } from '../core/diagnostics.ts'
import type { LineSample } from '../core/line-view.ts'
import type { Labels, MetricName } from './metrics.ts'

export interface Measurement {
  readonly metric: MetricName
  readonly value: number
  readonly labels: Labels
}

/** Which measurements this makes. */
export const LINE_METRICS: readonly MetricName[] = [
  'holdfast.line.busy',
  'holdfast.line.held',
  'holdfast.line.waiting',
  'holdfast.line.longest',
  'holdfast.line.oldest_hold',
  'holdfast.line.oldest_wait',
  'holdfast.line.unsampled',
]

interface Sampled {
  readonly engine: string
  readonly classes: ReadonlyMap<string, readonly LineSample[]>
  readonly unsampled: number
}

export class LineGauges {
  readonly #classOf: (key: string) => string
  readonly #samplers = new Map<object, Sampled>()
  /** Every class that was ever seen, by engine. */
  readonly #known = new Map<string, Set<string>>()

  constructor(classOf: (key: string) => string) {
    this.#classOf = classOf
  }

  hear({ sampler, engine, lines, unsampled, error, over }: Events['sample']): void {
    if (over) this.#samplers.delete(sampler)
    if (over || error !== undefined) return
    const known = this.#known.get(engine) ?? new Set()
    this.#known.set(engine, known)
    const classes = new Map<string, LineSample[]>()
    for (const line of lines) {
      const name = this.#classOf(line.key)
      known.add(name)
      const same = classes.get(name)
      if (same === undefined) classes.set(name, [line])
      else same.push(line)
    }
    this.#samplers.set(sampler, { engine, classes, unsampled })
  }

  measurements(): readonly Measurement[] {
    return [...this.#known].flatMap(([engine, classes]) => this.#ofEngine(engine, [...classes]))
  }

  #ofEngine(engine: string, classes: readonly string[]): readonly Measurement[] {
    const samplers = [...this.#samplers.values()].filter((sampled) => sampled.engine === engine)
    const unsampled = sum(samplers.map((sampled) => sampled.unsampled))
    const ofClasses = classes.flatMap((name) => {
      const lines = samplers.flatMap((sampled) => sampled.classes.get(name) ?? [])
      return ofLines(lines, { 'holdfast.engine': engine, 'holdfast.class': name })
    })
    return [
      ...ofClasses,
      { metric: 'holdfast.line.unsampled', value: unsampled, labels: { 'holdfast.engine': engine } },
    ]
  }
}

function ofLines(lines: readonly LineSample[], labels: Labels): readonly Measurement[] {
  const values: readonly (readonly [MetricName, number | null])[] = [
    ['holdfast.line.busy', lines.length],
    ['holdfast.line.held', sum(lines.map(({ held }) => held))],
    ['holdfast.line.waiting', sum(lines.map(({ waiting }) => waiting))],
    ['holdfast.line.longest', largest(lines.map(({ waiting }) => waiting))],
    ['holdfast.line.oldest_hold', oldestSeconds(lines.filter(({ held }) => held > 0).map((line) => line.oldestHoldMs))],
    [
      'holdfast.line.oldest_wait',
      oldestSeconds(lines.filter(({ waiting }) => waiting > 0).map((line) => line.oldestWaitMs)),
    ],
  ]
  return values.flatMap(([metric, value]) => (value === null ? [] : [{ metric, value, labels }]))
}

/** Null: there are some, and the engine stores of none for how long. */
function oldestSeconds(ages: readonly (number | null)[]): number | null {
  const known = ages.filter((age) => age !== null)
  return ages.length > 0 && known.length === 0 ? null : largest(known) / 1000
}

function largest(numbers: readonly number[]): number {
  return numbers.reduce((most, number) => Math.max(most, number), 0)
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0)
}
