/** How locks end in good order: how long holders may go on, and which signals begin it. The rest is in keeper.ts. */
import { type Duration, parseDuration } from './duration.ts'
import type { Keeper } from './keeper.ts'
import { checkOptions, type OptionNames } from './options.ts'
import { drainOnSignals } from './process-signals.ts'
import { quoted } from './quoted.ts'

/** How `drain` lets holders end. */
export interface DrainOptions {
  /** How long holders, or runs of jobs, have to end by themselves: 5 s unless given. */
  readonly grace?: Duration
}

const DRAIN_OPTIONS: OptionNames<DrainOptions> = { grace: true }
const DEFAULT_GRACE_MS = 5_000

/** How long holders have to end, in milliseconds. */
export function graceMsOf(options: DrainOptions, call = 'drain()'): number {
  checkOptions(call, options, DRAIN_OPTIONS)
  return parseDuration(options.grace ?? DEFAULT_GRACE_MS, 'grace')
}

/** Drain on SIGTERM and SIGINT, if `signals` says so. The answer ends that. */
export function heedSignals(
  signals: boolean | DrainOptions,
  keeper: Keeper,
  drain: (options: DrainOptions) => Promise<void>,
): () => void {
  if (signals === false) return () => {}
  if (signals !== true && (typeof signals !== 'object' || signals === null))
    throw new TypeError(`signals must be true, false, or like { grace: '10s' }; got ${quoted(signals)}`)
  const options = signals === true ? {} : signals
  graceMsOf(options, 'signals')
  return drainOnSignals({ drain: () => drain(options), heldKeys: () => keeper.entries.heldKeys() })
}
