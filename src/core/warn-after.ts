/**
 * Warnings about long holds and long waits (`warnAfter`): one for each acquire that holds, or waits, for longer than
 * the user expects. They look at nothing but the clock of this process, and ask the engine nothing.
 *
 * This stands between the core and its channels, and listens to what the core publishes: without `warnAfter` it does
 * not exist, and costs nothing. With it, an acquire costs one small object, and all of them share one timer.
 */
import type { Clock } from './clock.ts'
import type { Operation, Publish } from './diagnostics.ts'
import { type Duration, formatDuration, parseDuration } from './duration.ts'
import { checkOptions, type OptionNames } from './options.ts'
import { type Scheduled, TimerQueue } from './timer-queue.ts'

/** How long a hold or a wait may last before `holdfast:warning` tells of it, once. What is left out never warns. */
export interface WarnAfter {
  /** From the grant on: the finding is `long-hold`. Elections are left out, because a leader leads. */
  readonly hold?: Duration
  /** From the request on: the finding is `long-wait`. Elections are left out, because a candidate waits. */
  readonly wait?: Duration
}

const WARN_AFTER_OPTIONS: OptionNames<WarnAfter> = { hold: true, wait: true }

/** The same in milliseconds; Infinity: never. */
export interface WarnAfterMs {
  readonly holdMs: number
  readonly waitMs: number
}

export function parseWarnAfter(warnAfter: WarnAfter): WarnAfterMs {
  if (typeof warnAfter !== 'object' || warnAfter === null)
    throw new TypeError(`warnAfter must be like { hold: '5m', wait: '1m' }; got ${String(warnAfter)}`)
  checkOptions('warnAfter', warnAfter, WARN_AFTER_OPTIONS)
  const { hold, wait } = warnAfter
  return { holdMs: parseThreshold(hold, 'warnAfter.hold'), waitMs: parseThreshold(wait, 'warnAfter.wait') }
}

function parseThreshold(threshold: Duration | undefined, what: string): number {
  if (threshold === undefined) return Number.POSITIVE_INFINITY
  const ms = parseDuration(threshold, what)
  if (ms > 0) return ms
  throw new RangeError(`${what} must be more than 0; leave it out to be told of none`)
}

/** One acquire, waiting or holding. */
interface TimedOperation extends Scheduled {
  readonly operation: Operation
  since: number
  /** Undefined: it waits. */
  token: bigint | null | undefined
}

export class LongHoldWarnings {
  readonly #clock: Clock
  readonly #limits: WarnAfterMs
  readonly #tell: Publish
  readonly #exempt: ReadonlySet<string>
  readonly #url: string | undefined
  readonly #timed = new Map<Operation, TimedOperation>()
  readonly #queue: TimerQueue<TimedOperation>
  #stopped = false

  /** `exempt`: keys that are not looked at. It may grow. `url`: where to look at lines, fit to be printed. */
  constructor(clock: Clock, limits: WarnAfterMs, tell: Publish, exempt: ReadonlySet<string>, url: string | undefined) {
    this.#clock = clock
    this.#limits = limits
    this.#tell = tell
    this.#exempt = exempt
    this.#url = url
    this.#queue = new TimerQueue(clock, (timed, now) => this.#warn(timed, now))
  }

  /** Publishes as before, and follows what is published. */
  get publish(): Publish {
    const tell = this.#tell
    return {
      ...tell,
      request: (message) => {
        tell.request(message)
        this.#begin(message.operation, undefined)
      },
      grant: (message) => {
        tell.grant(message)
        this.#begin(message.operation, message.token)
      },
      refusal: (message) => {
        tell.refusal(message)
        this.#end(message.operation)
      },
      release: (message) => {
        tell.release(message)
        this.#end(message.operation)
      },
      loss: (message) => {
        tell.loss(message)
        this.#end(message.operation)
      },
    }
  }

  /** What is asked of closed locks is refused at once, and sets no timer. */
  stop(): void {
    this.#stopped = true
    this.#queue.stop()
    this.#timed.clear()
  }

  #begin(operation: Operation, token: bigint | null | undefined): void {
    if (this.#stopped || this.#exempt.has(operation.key)) return
    const now = this.#clock.now()
    const timed = this.#timed.get(operation) ?? { operation, since: now, token, at: now, slot: -1, slackMs: 0 }
    timed.since = now
    timed.token = token
    this.#timed.set(operation, timed)
    const limitMs = token === undefined ? this.#limits.waitMs : this.#limits.holdMs
    if (limitMs < Number.POSITIVE_INFINITY) this.#queue.put(timed, now + limitMs, now)
    else this.#queue.remove(timed)
  }

  #end(operation: Operation): void {
    const timed = this.#timed.get(operation)
    if (timed === undefined) return
    this.#timed.delete(operation)
    this.#queue.remove(timed)
  }

  #warn({ operation, since, token }: TimedOperation, now: number): void {
    const { engine, key } = operation
    const lasted = formatDuration(now - since)
    const where = this.#url === undefined ? '' : ` --url '${this.#url}'`
    const message =
      token === undefined
        ? `a caller has waited for '${key}' for ${lasted}; holdfast show '${key}'${where} tells who holds it`
        : `'${key}' has been held for ${lasted}${token === null ? '' : ` (token ${token})`}`
    this.#tell.warning({ engine, name: token === undefined ? 'long-wait' : 'long-hold', message, operation })
  }
}
