/**
 * One command under one lease: it begins after the grant, and it is over before the next holder can begin.
 *
 *        renewed         TERM, if renewals go on failing      KILL         the engine lets the next one in
 *     ───────┼───────────────────────┼──────────────────────────┼───┼──────────────────┼───────────►  time
 *            │                       └───── grace ──────────────┘   └ deadline: the core stops believing
 *            └─ every renewal moves all of this to the right
 *
 * Two watch the same times: this process, and the guardian, for the case that this process is stopped or dead.
 */
import { systemClock as clock, type Timer } from '../core/clock.ts'
import { channels } from '../core/diagnostics.ts'
import { LeaseLostError, type LossReason } from '../core/errors.ts'
import type { CoreLease } from '../core/lease.ts'
import { type Input, type OptionSpecs, UsageError } from './args.ts'
import { type CommandExit, CommandProcess } from './command-process.ts'
import { EXITS } from './exits.ts'
import { Guardian } from './guardian.ts'

export interface RunLimits {
  /** What a loss does to the command. `ignore`: nothing; it has its token to be refused by. */
  readonly onLost: 'term' | 'kill' | 'ignore'
  readonly ttlMs: number
  /**
   * Between TERM and KILL. Before a loss, a third of the ttl at most: else TERM would come before a failed renewal
   * could be tried again.
   */
  readonly graceMs: number
  /** How long the command may run. */
  readonly atMostMs: number | undefined
  /** How long the lock may be held. */
  readonly maxHoldMs: number | undefined
}

/** The options that `run` and `elect` have in common. */
export const JOB_OPTIONS: OptionSpecs = {
  ttl: { takes: 'D', help: 'life of the lock without renewal (30s); after a crash others wait this long at most' },
  'max-hold': {
    takes: 'D',
    help: 'hold the lock this long at most; then the command gets TERM, exit 79. For a lock that others need',
  },
  grace: {
    takes: 'D',
    help: 'how long the command has between TERM and KILL (5s); if the lock is being lost, a third of the ttl at most',
  },
  'on-lost': { takes: 'term|kill|ignore', help: 'what happens to the command if the lock cannot be kept (term)' },
  verbose: { short: 'v', help: 'say which engine and file, who is waited for, and when it is ours' },
  quiet: { short: 'q', help: 'say nothing but errors' },
}

const DEFAULT_TTL_MS = 30_000
const DEFAULT_GRACE_MS = 5_000

export function limitsOf(input: Input): RunLimits {
  if (input.has('quiet') && input.has('verbose')) throw new UsageError('--quiet and --verbose exclude each other')
  return {
    onLost: input.oneOf('on-lost', ['term', 'kill', 'ignore']) ?? 'term',
    ttlMs: input.durationMs('ttl') ?? DEFAULT_TTL_MS,
    graceMs: input.durationMs('grace') ?? DEFAULT_GRACE_MS,
    atMostMs: input.durationMs('at-most'),
    maxHoldMs: maxHoldOf(input),
  }
}

function maxHoldOf(input: Input): number | undefined {
  const maxHoldMs = input.durationMs('max-hold')
  if (maxHoldMs === 0) throw new UsageError('--max-hold must be more than 0')
  return maxHoldMs
}

export interface Job {
  readonly lease: CoreLease
  readonly program: readonly string[]
  readonly env: NodeJS.ProcessEnv
  /** Every process of the command has it in its environment, as HOLDFAST_ID. */
  readonly id: string
  readonly limits: RunLimits
  /** SQLite frees the lock of a dead process early: tell it that this process group has to be dead, too. */
  readonly alsoAlive: (group: number) => Promise<void>
  /** Signals for us, from now until the answer is called. */
  readonly signals: (listener: (signal: NodeJS.Signals) => void) => () => void
  /** Aborted by a signal that asked this process to end before there was a command to pass it on to. */
  readonly interrupted: AbortSignal
  /** The guardian was killed. */
  readonly onUnguarded: () => void
  /** The command runs as another user: the kernel lets this process signal nothing of it. */
  readonly onRefused: () => void
  /** The command is about to be ended, and why. */
  readonly onEnding: (why: EndReason) => void
}

/** Why a command is ended: its time is over, or the lease is lost, or is about to be (`deadline`). */
export type EndReason = 'at-most' | LossReason

export interface CommandOutcome extends CommandExit {
  /** The lease was over before the command was, or was about to be. */
  readonly lost: boolean
}

/** KILL comes this much before the deadline: a process takes a moment to die, and a timer a moment to fire. */
function marginMs(ttlMs: number): number {
  return Math.min(ttlMs / 10, 500)
}

/** The guardian's alarm is for the case that we do not act: it rings a little after we would have. */
const GUARDIAN_LATER = 1 / 5

export async function supervise(job: Job): Promise<CommandOutcome> {
  const guardian = await Guardian.start(job.limits.graceMs, job.id, job.onUnguarded)
  await job.alsoAlive(guardian.pid)
  if (!job.lease.held) {
    // We were stopped for a while, right after the grant.
    await guardian.dismiss()
    return { exit: EXITS.lost.code, signal: null, lost: true }
  }
  if (job.interrupted.aborted) {
    await guardian.dismiss()
    throw job.interrupted.reason
  }
  // From here to where signals are forwarded nothing is awaited, so no signal comes in between.
  const watch = new LeaseWatch(job, guardian)
  const child = new CommandProcess(job.program, { ...job.env, HOLDFAST_ID: job.id }, guardian, job.onRefused)
  const stopForwarding = job.signals((signal) => child.forward(signal))
  watch.begin(child)
  // The guardian lives as long as the command, unless it is killed: then the group of the command has to be known.
  if (child.group !== undefined) job.alsoAlive(child.group).catch(() => undefined)
  const ended = await child.ended
  if (child.diedOfOurs(ended)) watch.endRest()
  const lost = await watch.over()
  stopForwarding()
  // Not in a `finally`: whatever is thrown before, the guardian ends the command when we are gone.
  await guardian.dismiss()
  return { ...ended, lost }
}

class LeaseWatch {
  readonly #job: Job
  readonly #guardian: Guardian
  readonly #graceMs: number
  readonly #marginMs: number
  #child: CommandProcess | undefined
  #look: Timer | undefined
  #kill: Timer | undefined
  #atMost: Timer | undefined
  #ending: Promise<void> | undefined
  /** When the guardian begins to end the command, by our clock. */
  #alarmAt: number = Number.POSITIVE_INFINITY
  #lost = false
  #over = false

  constructor(job: Job, guardian: Guardian) {
    const { onLost, ttlMs, graceMs } = job.limits
    this.#job = job
    this.#guardian = guardian
    this.#marginMs = marginMs(ttlMs)
    this.#graceMs = onLost === 'kill' ? 0 : Math.min(graceMs, ttlMs / 3)
    // Before there is a command, so that it is guarded even if this process is stopped right after its start. The alarm
    // is set earlier than need be, because starting takes a while.
    if (onLost !== 'ignore') this.#arm(ttlMs / 10)
  }

  begin(child: CommandProcess): void {
    const { lease, limits } = this.#job
    const { onLost, graceMs, atMostMs } = limits
    this.#child = child
    if (atMostMs !== undefined) this.#atMost = clock.timer(atMostMs, () => this.#end(graceMs, 'at-most'))
    if (onLost === 'ignore') return
    lease.signal.addEventListener('abort', this.#check, { once: true })
    channels.renewal.subscribe(this.#renewed)
    this.#check()
    this.#armAgain()
  }

  /** The command has died of a signal that was meant for all of it, and that the rest may not have got. */
  endRest(): void {
    if (this.#ending !== undefined) return
    this.#ending = this.#guardian.end(this.#job.limits.graceMs)
    this.#armAgain()
  }

  /**
   * The command has ended: wait for the end of what it has started, if that is being ended too. Answers whether the
   * lease was lost.
   */
  async over(): Promise<boolean> {
    await this.#ending
    this.#over = true
    for (const timer of [this.#look, this.#kill, this.#atMost]) timer?.cancel()
    channels.renewal.unsubscribe(this.#renewed)
    this.#job.lease.signal.removeEventListener('abort', this.#check)
    return this.#lost || !this.#job.lease.held
  }

  /** A beat was answered. The lease hears of it right after us. */
  readonly #renewed = (): void => {
    setImmediate(() => {
      this.#check()
      this.#armAgain()
    })
  }

  /** Also while the command is ended because its time is over: its grace may be longer than the lease. */
  #armAgain(): void {
    if (this.#job.limits.onLost !== 'ignore' && !this.#lost && !this.#over) this.#arm(0)
  }

  /** Tell the guardian when to act without us. */
  #arm(earlierMs: number): void {
    const laterMs = this.#graceMs * GUARDIAN_LATER
    const killInMs = this.#job.lease.protectedMs - this.#marginMs - earlierMs
    const delayMs = killInMs - this.#graceMs + laterMs
    this.#alarmAt = clock.now() + delayMs
    this.#guardian.arm(delayMs, this.#graceMs - laterMs)
  }

  /** Is it time? If not, look again when it may be. */
  readonly #check = (): void => {
    if (this.#over) return
    const { lease } = this.#job
    const { held, protectedMs } = lease
    const killInMs = protectedMs - this.#marginMs
    this.#look?.cancel()
    // We were stopped until the guardian began to end the command: that is not taken back, though a beat was answered.
    const hasRung = clock.now() >= this.#alarmAt
    if (held && killInMs > this.#graceMs && !hasRung) {
      this.#look = clock.timer(killInMs - this.#graceMs, this.#check)
      return
    }
    // Evicted, or past its --max-hold, it still has until its deadline. Expired, another process may hold already.
    const { reason } = lease.signal
    const why = reason instanceof LeaseLostError ? reason.why : 'deadline'
    this.#lost = true
    this.#end(why === 'expired' ? 0 : Math.max(0, Math.min(killInMs, this.#graceMs)), why)
  }

  #end(graceMs: number, why: EndReason): void {
    if (this.#ending === undefined) {
      this.#ending = this.#guardian.end(graceMs)
      this.#armAgain()
      if (this.#guardian.gone && graceMs > 0) this.#child?.signal('SIGTERM')
      this.#job.onEnding(why)
    }
    // Ours, for a guardian that is slow or dead, and for a loss within the grace of --at-most.
    this.#kill?.cancel()
    this.#kill = clock.timer(graceMs, () => this.#child?.signal('SIGKILL'))
  }
}
