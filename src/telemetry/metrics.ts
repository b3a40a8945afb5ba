/**
 * Every metric of Holdfast, once: OpenTelemetry, the text for Prometheus, the alert rules, the dashboard and the
 * documentation all follow this table, and tests keep them to it.
 *
 * The scheme of names: a counter is the plural of the event that it counts (`holdfast.losses`), a histogram is what it
 * measures (`holdfast.wait.duration`), what this process has now is an adjective (`holdfast.waiting`), and what the
 * whole fleet has in lines, as the last sample saw it, begins with `holdfast.line.`. Durations are in seconds.
 */

export type MetricKind =
  | 'counter'
  /** Goes up and down by what happens in this process. */
  | 'updown'
  | 'histogram'
  /** What the last sample saw. */
  | 'gauge'

export interface MetricSpec {
  readonly kind: MetricKind
  /** `s` is seconds; what is in braces only says what is counted. */
  readonly unit: string
  readonly description: string
  readonly attributes: readonly AttributeName[]
  /** Upper bounds of a histogram. */
  readonly buckets?: readonly number[]
}

/** Every attribute of a metric or a span. All have few values, but for the key and the token, which only spans have. */
export type AttributeName =
  | 'holdfast.engine'
  /** The class of the key: `order:42` is `order:*`. */
  | 'holdfast.class'
  | 'holdfast.outcome'
  /** Why a lease was lost. */
  | 'holdfast.why'
  /** Which call of the engine. */
  | 'holdfast.verb'
  /** Which finding a warning is about. */
  | 'holdfast.finding'
  | 'holdfast.was_there'

export type Labels = Partial<Record<AttributeName, string>>

const WAIT_BUCKETS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600]
const MARGIN_BUCKETS = [0, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 20, 30, 60, 300, 900, 3600]
const SAMPLE_BUCKETS = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60]

/** The two that almost every metric has. */
const LOCK: readonly AttributeName[] = ['holdfast.engine', 'holdfast.class']

export type MetricName =
  | 'holdfast.wait.duration'
  | 'holdfast.hold.duration'
  | 'holdfast.renewal.margin'
  | 'holdfast.handoffs'
  | 'holdfast.jeopardies'
  | 'holdfast.losses'
  | 'holdfast.failures'
  | 'holdfast.cleanups'
  | 'holdfast.inversions'
  | 'holdfast.warnings'
  | 'holdfast.waiting'
  | 'holdfast.held'
  | 'holdfast.line.busy'
  | 'holdfast.line.held'
  | 'holdfast.line.waiting'
  | 'holdfast.line.longest'
  | 'holdfast.line.oldest_hold'
  | 'holdfast.line.oldest_wait'
  | 'holdfast.line.unsampled'
  | 'holdfast.sample.duration'

const METRICS: Readonly<Record<MetricName, MetricSpec>> = {
  'holdfast.wait.duration': {
    kind: 'histogram',
    unit: 's',
    description: 'From asking for a lock to the outcome: granted, busy, timeout, cancelled or error.',
    attributes: [...LOCK, 'holdfast.outcome'],
    buckets: WAIT_BUCKETS,
  },
  'holdfast.hold.duration': {
    kind: 'histogram',
    unit: 's',
    description: 'From the grant to the release; outcome: released or lost.',
    attributes: [...LOCK, 'holdfast.outcome'],
    buckets: WAIT_BUCKETS,
  },
  'holdfast.renewal.margin': {
    kind: 'histogram',
    unit: 's',
    description: 'Time that the most pressed lease of a batch of renewals had left when the batch was answered.',
    attributes: ['holdfast.engine'],
    buckets: MARGIN_BUCKETS,
  },
  'holdfast.handoffs': {
    kind: 'counter',
    unit: '{grant}',
    description: 'Grants to callers that had to stand in line.',
    attributes: LOCK,
  },
  'holdfast.jeopardies': {
    kind: 'counter',
    unit: '{lease}',
    description: 'Leases that went two thirds of their time without a renewal.',
    attributes: LOCK,
  },
  'holdfast.losses': {
    kind: 'counter',
    unit: '{lease}',
    description: 'Leases that ended before their release, by why.',
    attributes: [...LOCK, 'holdfast.why'],
  },
  'holdfast.failures': {
    kind: 'counter',
    unit: '{call}',
    description: 'Failed calls to the engine, by verb and by outcome (unknown or not-applied).',
    attributes: ['holdfast.engine', 'holdfast.verb', 'holdfast.outcome'],
  },
  'holdfast.cleanups': {
    kind: 'counter',
    unit: '{call}',
    description: 'Enters of unknown outcome that were cleaned up; was_there: they had been applied.',
    attributes: ['holdfast.engine', 'holdfast.was_there'],
  },
  'holdfast.inversions': {
    kind: 'counter',
    unit: '{inversion}',
    description: 'Pairs of keys that were taken in opposite orders (checkOrder).',
    attributes: [],
  },
  'holdfast.warnings': {
    kind: 'counter',
    unit: '{warning}',
    description:
      'Warnings, by finding: what could break the promises of a server, and holds and waits longer than warnAfter.',
    attributes: ['holdfast.engine', 'holdfast.finding'],
  },
  'holdfast.waiting': {
    kind: 'updown',
    unit: '{caller}',
    description: 'Callers of this process that wait for a lock.',
    attributes: LOCK,
  },
  'holdfast.held': {
    kind: 'updown',
    unit: '{lease}',
    description: 'Leases that this process holds.',
    attributes: LOCK,
  },
  'holdfast.line.busy': {
    kind: 'gauge',
    unit: '{line}',
    description: 'Lines that have entries, of the whole fleet, as the last sample saw them.',
    attributes: LOCK,
  },
  'holdfast.line.held': {
    kind: 'gauge',
    unit: '{entry}',
    description: 'Entries that hold, of the whole fleet, as the last sample saw them.',
    attributes: LOCK,
  },
  'holdfast.line.waiting': {
    kind: 'gauge',
    unit: '{entry}',
    description: 'Entries that wait, of the whole fleet, as the last sample saw them.',
    attributes: LOCK,
  },
  'holdfast.line.longest': {
    kind: 'gauge',
    unit: '{entry}',
    description: 'Entries that wait in the longest line of the class.',
    attributes: LOCK,
  },
  'holdfast.line.oldest_hold': {
    kind: 'gauge',
    unit: 's',
    description: 'How long the entry of the class that has held for longest has held.',
    attributes: LOCK,
  },
  'holdfast.line.oldest_wait': {
    kind: 'gauge',
    unit: 's',
    description: 'How long the entry of the class that has waited for longest has waited.',
    attributes: LOCK,
  },
  'holdfast.line.unsampled': {
    kind: 'gauge',
    unit: '{line}',
    description: 'Lines that the last sample did not look into, because there were too many.',
    attributes: ['holdfast.engine'],
  },
  'holdfast.sample.duration': {
    kind: 'histogram',
    unit: 's',
    description: 'How long a sample of lines took; outcome: done or failed.',
    attributes: ['holdfast.engine', 'holdfast.outcome'],
    buckets: SAMPLE_BUCKETS,
  },
}

export const METRIC_NAMES: readonly MetricName[] = Object.keys(METRICS) as MetricName[]

export function metricSpec(name: MetricName): MetricSpec {
  return METRICS[name]
}
