/**
 * Samples of lines: how long they are, and for how long the oldest entry has held and waited. What `locks.sample`
 * publishes on `holdfast:sample` is for gauges; the command line shows the same.
 *
 * A sample asks the engine as other callers do: one listing for each prefix, and one look for each line, one after the
 * other, so that it never disturbs those who lock.
 */
import type { Clock } from './clock.ts'
import type { Publish } from './diagnostics.ts'
import { type Duration, parseDuration } from './duration.ts'
import { EngineError } from './errors.ts'
import { checkKey, compareKeys } from './keys.ts'
import type { Line, LineEntry, LineSample, LineSummary, Sample } from './line-view.ts'
import { onAbort } from './on-abort.ts'
import { checkOptions, type OptionNames } from './options.ts'

/** Which lines `locks.sample()` looks at, and how often. */
export interface SampleOptions {
  /** Lines to look at, by key: one call for each. */
  readonly keys?: readonly string[]
  /**
   * And all lines whose key begins with one of these; `''` is every line. One listing for each, then one call for each
   * line that was found.
   */
  readonly prefixes?: readonly string[]
  /** How often: every 15 s unless given, every second at most. */
  readonly every?: Duration
  /**
   * How many of the lines that a listing has found to look into: 100 unless given, those with the most waiters first.
   * How many were left out is in the sample.
   */
  readonly most?: number
  /** Ends the sampling. */
  readonly signal?: AbortSignal
}

/** What a sample is taken from: `Locks`. */
export interface LineSource {
  inspect(key: string): Promise<Line>
  list(prefix: string): AsyncIterable<LineSummary>
}

/** Which lines. */
export interface SampleRange {
  readonly keys: readonly string[]
  readonly prefixes: readonly string[]
  readonly most: number
}

const DEFAULT_EVERY_MS = 15_000
const SHORTEST_EVERY_MS = 1_000
const DEFAULT_MOST = 100

const SAMPLE_OPTIONS: OptionNames<SampleOptions> = { keys: true, prefixes: true, every: true, most: true, signal: true }

export function parseSampleOptions(options: SampleOptions): SampleRange & { readonly everyMs: number } {
  checkOptions('sample()', options, SAMPLE_OPTIONS)
  const { keys = [], prefixes = [], most = DEFAULT_MOST } = options
  if (!Array.isArray(keys) || !Array.isArray(prefixes)) throw new TypeError('keys and prefixes must be arrays')
  if (keys.length + prefixes.length === 0)
    throw new TypeError("sample takes keys or prefixes: { prefixes: ['order:'] }, or { prefixes: [''] } for every line")
  for (const key of keys) checkKey(key)
  if (!Number.isInteger(most) || most < 1) throw new RangeError(`most must be a whole number from 1; got ${most}`)
  const everyMs = parseDuration(options.every ?? DEFAULT_EVERY_MS, 'every')
  if (everyMs < SHORTEST_EVERY_MS)
    throw new RangeError(`every must be at least ${SHORTEST_EVERY_MS} ms; got ${everyMs} ms`)
  return { keys, prefixes, most, everyMs }
}

/** What a sampler lends to each of its samples: when to stop, and what the samples before have seen. */
interface SampleAids {
  /** Stop looking, and answer what there is. */
  over(): boolean
  /** How long this entry was seen as it is; null if that is not known. For engines that do not store it. */
  seenMs(entry: LineEntry): number | null
}

const NO_AIDS: SampleAids = { over: () => false, seenMs: () => null }

/** Look once. */
export async function takeSample(
  source: LineSource,
  range: SampleRange,
  { over, seenMs }: SampleAids = NO_AIDS,
): Promise<Sample> {
  const found = new Map<string, LineSummary>()
  for (const prefix of range.prefixes) {
    for await (const line of source.list(prefix)) {
      if (over()) break
      found.set(line.key, line)
    }
  }
  for (const key of range.keys) found.delete(key)
  const busiest = [...found.values()].sort((a, b) => b.waiting - a.waiting || compareKeys(a.key, b.key))
  const keys = [...new Set(range.keys), ...busiest.slice(0, range.most).map(({ key }) => key)]
  const lines: LineSample[] = []
  for (const key of keys) {
    if (over()) break
    const line = await source.inspect(key)
    if (line.entries.length > 0) lines.push(sampleOf(line, seenMs))
  }
  return { lines, unsampled: Math.max(0, busiest.length - range.most) }
}

function sampleOf({ key, entries }: Line, seenMs: SampleAids['seenMs']): LineSample {
  const lasted = entries.map((entry) => ({ entry, ms: lastedMs(entry) ?? seenMs(entry) }))
  const held = lasted.filter(({ entry }) => entry.state === 'held').toSorted(byLength)
  const waiting = lasted.filter(({ entry }) => entry.state === 'waiting').toSorted(byLength)
  return {
    key,
    held: held.length,
    waiting: waiting.length,
    oldestHoldMs: held[0]?.ms ?? null,
    oldestWaitMs: waiting[0]?.ms ?? null,
    holder: held[0]?.entry.holder ?? null,
  }
}

/** Where the engine does not store since when an entry holds: how long it has been in the line. */
function lastedMs({ heldMs, ageMs }: LineEntry): number | null {
  return heldMs ?? ageMs
}

/** The longest first. */
function byLength(a: { readonly ms: number | null }, b: { readonly ms: number | null }): number {
  return (b.ms ?? 0) - (a.ms ?? 0)
}

/** When a sampler saw entries first, for engines that do not store since when. */
class FirstSeen {
  readonly #clock: Clock
  #before = new Map<string, number>()
  #now = new Map<string, number>()

  constructor(clock: Clock) {
    this.#clock = clock
  }

  seenMs({ id, state }: LineEntry): number {
    const now = this.#clock.now()
    const seenAs = `${state} ${id}`
    const since = this.#before.get(seenAs) ?? now
    this.#now.set(seenAs, since)
    return now - since
  }

  /** A sample is complete: what it has not seen is gone. */
  complete(): void {
    this.#before = this.#now
    this.#now = new Map()
  }
}

export interface SamplerTools {
  readonly engine: string
  readonly clock: Clock
  readonly publish: Publish
  /** Each ends the sampling. */
  readonly endings: readonly AbortSignal[]
}

/**
 * Sample until one of the endings aborts. What fails is published, too, and tried again in time; only an error that
 * will not go away rejects.
 */
export async function sampleUntil(
  source: LineSource,
  range: SampleRange & { readonly everyMs: number },
  { engine, clock, publish, endings }: SamplerTools,
): Promise<void> {
  const sampler = {}
  const firstSeen = new FirstSeen(clock)
  const over = (): boolean => endings.some(({ aborted }) => aborted)
  const aids: SampleAids = { over, seenMs: (entry) => firstSeen.seenMs(entry) }
  try {
    while (!over()) {
      const startedAt = clock.now()
      try {
        const sample = await takeSample(source, range, aids)
        firstSeen.complete()
        if (!over()) publish.sample({ sampler, engine, ...sample, tookMs: clock.now() - startedAt })
      } catch (error) {
        if (over()) break
        if (error instanceof EngineError && !error.transient) throw error
        publish.sample({ sampler, engine, lines: [], unsampled: 0, tookMs: clock.now() - startedAt, error })
      }
      await pause(clock, startedAt + range.everyMs - clock.now(), endings)
    }
  } finally {
    publish.sample({ sampler, engine, lines: [], unsampled: 0, tookMs: 0, over: true })
  }
}

/** Does not keep the process alive: watching is no work of its own. */
function pause(clock: Clock, ms: number, endings: readonly AbortSignal[]): Promise<void> {
  return new Promise((resolve) => {
    const timer = clock.timer(Math.max(0, ms), () => end())
    const forget = endings.map((ending) => onAbort(ending, () => end()))
    const end = (): void => {
      timer.cancel()
      for (const stop of forget) stop()
      resolve()
    }
    if (endings.some(({ aborted }) => aborted)) end()
  })
}
