/** What users say about a job, checked, with what holds unless they say it. */
import { type Duration, parseDuration } from '../../core/duration.ts'
import { UnsupportedError } from '../../core/errors.ts'
import { checkOptions, type OptionNames } from '../../core/options.ts'
import type { Locks } from '../../locks.ts'
import type { JobPolicy, Missed, Overlap } from './decision.ts'

/** Options that `add` and `tick` have in common. */
export interface RunOptions {
  /**
   * How late a tick may begin, also for another time (`takeover`). 1 minute unless given, and 12 hours for a take-over;
   * a day for both where missed ticks are to be run (`missed: 'last'` or `'all'`).
   */
  readonly grace?: Duration
  /**
   * What to do about a tick that comes while the job still runs. `skip` (the default): nothing. `queue`: run it when
   * that run has ended. `replace`: tell that run to stop, and run the new one when it has.
   */
  readonly overlap?: Overlap
  /**
   * How often a tick is run again whose host died in the middle, or was told to stop. 0 unless given: a run that has
   * begun is not begun again, and a deployment in the middle of it drops it. Work that throws by itself is not run
   * again either way. A grace that you give limits it: let it be longer than the work and the ttl take together.
   */
  readonly takeover?: number
  /** How long the lock lives without renewal: after a crash, the next host waits this long. That of the locks. */
  readonly ttl?: Duration
}

/** Options of one job. */
export interface JobOptions extends RunOptions {
  /** The time zone of a cron pattern: `Europe/Berlin`. UTC unless given, whatever the host is set to. */
  readonly zone?: string
  /**
   * What to do about ticks for which no host was there, or could reach the server. `skip` (the default): nothing,
   * unless the last one is within the grace. `last`: run the last one. `all`: run each, in order; of more than a
   * hundred, the last hundred.
   */
  readonly missed?: Missed
  /** Hears what the work of this job throws, instead of the `onError` of `cron()`. */
  readonly onError?: (error: unknown, name: string) => void
}

export const RUN_OPTIONS: OptionNames<RunOptions> = { grace: true, overlap: true, takeover: true, ttl: true }
const JOB_OPTIONS: OptionNames<JobOptions> = { ...RUN_OPTIONS, zone: true, missed: true, onError: true }

const MISSED: readonly Missed[] = ['skip', 'last', 'all']
const OVERLAP: readonly Overlap[] = ['skip', 'queue', 'replace']
const DEFAULT_GRACE: Duration = '1m'
const DEFAULT_GRACE_OF_MISSED: Duration = '24h'
/**
 * A run may work for hours before its host dies, so a minute would be no grace for a take-over. What was left behind in
 * one night is not done in the next one.
 */
const DEFAULT_GRACE_OF_TAKEOVER: Duration = '12h'
const MOST_TAKEOVERS = 1000

/** Throws a `TypeError` or a `RangeError` for what cannot be meant, `UnsupportedError` for what `locks` cannot do. */
export function jobPolicyOf(locks: Locks, options: JobOptions): JobPolicy {
  checkOptions('add()', options, JOB_OPTIONS)
  const { missed = 'skip' } = options
  checkChoice('missed', missed, MISSED)
  return policyOf(locks, missed, options)
}

export function policyOf(locks: Locks, missed: Missed, options: RunOptions): JobPolicy {
  const { overlap = 'skip', takeover = 0 } = options
  const usual = missed === 'skip' ? DEFAULT_GRACE : DEFAULT_GRACE_OF_MISSED
  const again = missed === 'skip' ? DEFAULT_GRACE_OF_TAKEOVER : DEFAULT_GRACE_OF_MISSED
  checkChoice('overlap', overlap, OVERLAP)
  if (!Number.isInteger(takeover) || takeover < 0 || takeover > MOST_TAKEOVERS)
    throw new RangeError(`takeover must be a whole number from 0 to ${MOST_TAKEOVERS}; got ${takeover}`)
  const { name, traits } = locks.engine
  if (overlap === 'replace' && !traits.fencing)
    throw new UnsupportedError(name, `${name} has no tokens, by which a run is replaced; use overlap: 'queue'`)
  const graceMs = parseDuration(options.grace ?? usual, 'grace')
  const takeoverMs = parseDuration(options.grace ?? again, 'grace')
  return { missed, overlap, takeover, graceMs, takeoverMs, takesOlder: true }
}

function checkChoice(name: string, value: string, choices: readonly string[]): void {
  if (!choices.includes(value)) throw new TypeError(`${name} must be ${choices.join(', ')}; got '${String(value)}'`)
}
