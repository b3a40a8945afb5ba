/**
 * What `run` and `elect` have in common: opening the engine, waiting for the lock, running a command line under it, and
 * who is told what happens.
 */

import { hostname } from 'node:os'
import { defaultUrl } from '../connect.ts'
import { systemClock as clock, systemChance } from '../core/clock.ts'
import { channels, type Events } from '../core/diagnostics.ts'
import { formatDuration } from '../core/duration.ts'
import { type Engine, UNLIMITED } from '../core/engine.ts'
import { DeadlockError, EngineError, type LossReason } from '../core/errors.ts'
import type { CoreLease, Lease } from '../core/lease.ts'
import type { AcquireOptions, Lock } from '../core/lock.ts'
import { ttlMsOf } from '../core/locks-options.ts'
import { redactCommand, redactUrl } from '../core/redact.ts'
import type { Locks } from '../locks.ts'
import { type Input, UsageError } from './args.ts'
import { EXITS } from './exits.ts'
import { type Opened, open } from './open.ts'
import { printable, printJson, STDERR, say } from './output.ts'
import { Signals } from './signals.ts'
import { type CommandOutcome, type EndReason, type RunLimits, supervise } from './supervise.ts'
import { pause, WaitDisplay } from './wait-display.ts'

/** The contract's bound on a holder, in bytes. */
const LONGEST_HOLDER_BYTES = 512

/**
 * This process, in words: `host:pid command arguments`. It is what others see while they wait, so secrets have no place
 * in it: on a shared engine it can be read by people who could never have listed the processes of this host.
 */
function ownHolder(command: readonly string[]): string {
  const holder = `${hostname()}:${process.pid} ${redactCommand(command).join(' ')}`.toWellFormed()
  if (Buffer.byteLength(holder) <= LONGEST_HOLDER_BYTES) return holder
  // Cut at a character, not inside one.
  const cut = new TextDecoder().decode(Buffer.from(holder).subarray(0, LONGEST_HOLDER_BYTES - 3))
  return `${cut.replace(/\uFFFD+$/, '')}…`
}

/**
 * SQLite frees the lock of a dead process before its ttl. `alsoAlive` names a process group (guardian, command) that
 * must be dead, too.
 */
interface JudgesDeath extends Engine {
  alsoAlive(processGroup: number): Promise<void>
}

function judgesDeath(engine: Engine): engine is JudgesDeath {
  return 'alsoAlive' in engine
}

/** For which lock to wait, and how long. */
export interface Wanted {
  /** Up to so many hold together. `UNLIMITED` is a read lock, which writers exclude. */
  readonly limit: number
  /** 0: one try. */
  readonly waitMs: number
  /** Whether to wait through outages, too, once the engine has answered. */
  readonly outlasts: boolean
}

/** Between two waits, each of which has borne an outage for a whole ttl. */
const OUTAGE_PAUSE_MS = 1_000

/** Tell that the command does not run, and why. */
export function refuse(input: Input, outcome: 'busy' | 'not-run', exit: number, message: string): number {
  if (input.json) printJson(STDERR, input.command, { key: input.key, outcome, exit, message })
  else if (outcome !== 'busy' || !input.has('quiet')) say(message)
  return exit
}

/** How one run of the command under the lock went. `lease` is not given back yet. */
export interface RunResult extends CommandOutcome {
  readonly lease: Lease
  readonly waitedMs: number
  readonly heldMs: number
}

export class JobRunner implements AsyncDisposable {
  readonly #input: Input
  readonly #limits: RunLimits
  readonly #opened: Opened
  readonly #signals: Signals
  #renewalError: string | undefined
  /** The engine has answered: it is the right one, and can be used. */
  #answered = false

  /** Open the engine that `input` names, for a command under `limits`. Signals are heard from now on. */
  static async open(input: Input, limits: RunLimits): Promise<JobRunner> {
    const url = input.value('url') ?? defaultUrl()
    if (/^memory:/i.test(url)) {
      throw new UsageError('memory: keeps locks inside one process, so a command under it would exclude no other')
    }
    const signals = new Signals()
    const opened = await open(input, { holder: ownHolder(input.program), ttl: `${limits.ttlMs}ms` })
    // What the lease has, not what was asked for: the grace has to fit into it.
    const ttlMs = ttlMsOf(`${limits.ttlMs}ms`, opened.locks.engine)
    return new JobRunner(input, opened, { ...limits, ttlMs }, signals)
  }

  private constructor(input: Input, opened: Opened, limits: RunLimits, signals: Signals) {
    this.#input = input
    this.#opened = opened
    this.#signals = signals
    this.#limits = limits
    channels.jeopardy.subscribe((message) => this.#jeopardy(message))
    const { engine } = opened.locks
    const where = 'file' in engine ? `file ${String(engine.file)}` : redactUrl(opened.url)
    this.remark(`engine ${engine.name}, ${where}`)
  }

  get locks(): Locks {
    return this.#opened.locks
  }

  /** The signal that asked us to end, also if it was passed on to the command, unless that has survived it. */
  get toldToEnd(): NodeJS.Signals | undefined {
    return this.#signals.toldToEnd
  }

  /** With -v. */
  remark(text: string): void {
    if (this.#input.has('verbose')) say(text)
  }

  /** stdout is the command's: what we have to say goes to stderr, also as JSON. */
  report(result: RunResult): void {
    if (!this.#input.json) return
    const { lease, lost, signal, waitedMs, heldMs } = result
    printJson(STDERR, this.#input.command, {
      key: lease.key,
      outcome: lost ? 'lost' : 'ran',
      exit: result.exit,
      signal,
      token: lease.token,
      holder: this.locks.holder,
      waitedMs: Math.round(waitedMs),
      heldMs: Math.round(heldMs),
    })
  }

  /** Wait for the lock and run the command under it. Undefined: it is busy, and `waitMs` is 0. */
  async run({ limit, waitMs, outlasts }: Wanted): Promise<RunResult | undefined> {
    const lock = this.#lock(limit)
    const askedAt = clock.now()
    const isKnown = this.#answered && outlasts
    const tried = isKnown ? undefined : await this.#opened.ask(() => this.#tryFirst(lock, waitMs))
    const waits = waitMs > 0 && tried === undefined
    const lease = waits ? await this.#opened.ask(() => this.#wait(lock, waitMs, outlasts)) : tried
    if (lease === undefined) return undefined
    const grantedAt = clock.now()
    const waitedMs = grantedAt - askedAt
    this.remark(`holding '${printable(lock.key)}', token ${lease.token}, after ${formatDuration(waitedMs)}`)
    const outcome = await this.#supervise(lease)
    const ignored = outcome.lost && this.#limits.onLost === 'ignore'
    if (ignored) this.#tell(`lost '${printable(lock.key)}' while the command ran`)
    const exit = outcome.lost && !ignored ? EXITS.lost.code : outcome.exit
    return { ...outcome, exit, lease, waitedMs, heldMs: clock.now() - grantedAt }
  }

  #lock(limit: number): Lock<AcquireOptions> {
    const { key } = this.#input
    const { maxHoldMs } = this.#limits
    const options = maxHoldMs === undefined ? {} : { maxHold: maxHoldMs }
    if (limit === UNLIMITED) return this.locks.rw(key, options).read
    return limit === 1 ? this.locks.mutex(key, options) : this.locks.semaphore(key, limit, options)
  }

  /** One try first: it fails at once where waiting would try an unreachable engine again and again. */
  async #tryFirst(lock: Lock<AcquireOptions>, waitMs: number): Promise<Lease | undefined> {
    const lease = await lock.tryAcquire({ signal: this.#signals.interrupted })
    if (lease === undefined && waitMs > 0) await this.#refuseDeadlock(lock.key)
    this.#answered = true
    return lease
  }

  async #wait(lock: Lock<AcquireOptions>, waitMs: number, outlasts: boolean): Promise<Lease> {
    const signal = this.#signals.interrupted
    const options = { quiet: this.#input.has('quiet') || this.#input.json, verbose: this.#input.has('verbose') }
    const waiting = WaitDisplay.begin(this.locks, lock.key, options)
    try {
      for (;;) {
        try {
          return await lock.acquire({ signal, ...(waitMs === Number.POSITIVE_INFINITY ? {} : { wait: waitMs }) })
        } catch (error) {
          if (!outlasts || !(error instanceof EngineError) || !error.transient) throw error
          this.remark(`${printable(error.message)}; still a candidate for '${printable(lock.key)}'`)
        }
        await pause(OUTAGE_PAUSE_MS, signal)
      }
    } finally {
      await waiting?.end()
    }
  }

  /**
   * Throws for a `holdfast run` on the key of an outer one, whose command it is a part of: the outer one gives its lock
   * back when its command ends, and we would wait for that in its command.
   */
  async #refuseDeadlock(key: string): Promise<void> {
    const { HOLDFAST_KEY, HOLDFAST_TOKEN } = process.env
    if (HOLDFAST_KEY !== key || !HOLDFAST_TOKEN) return
    const { entries } = await this.locks.inspect(key)
    const outer = entries.find(({ state, token }) => state === 'held' && String(token) === HOLDFAST_TOKEN)
    // Two shares of a semaphore can be fine; a whole lock, inside or outside, cannot.
    if (outer === undefined || (outer.limit > 1 && (this.#input.has('limit') || this.#input.has('shared')))) return
    throw new DeadlockError(
      key,
      `'${key}' is held by the command that this one is part of (token ${HOLDFAST_TOKEN}): it would wait for itself`,
    )
  }

  #supervise(lease: Lease): Promise<CommandOutcome> {
    const { engine, holder } = this.locks
    const { key, token } = lease
    return supervise({
      // Whatever lock `createLocks` has made: its lease is one.
      lease: lease as CoreLease,
      program: this.#input.program,
      env: {
        ...process.env,
        HOLDFAST_KEY: key,
        HOLDFAST_TOKEN: token === null ? '' : String(token),
        HOLDFAST_HOLDER: holder,
      },
      id: systemChance.id(),
      limits: this.#limits,
      alsoAlive: async (group) => {
        if (judgesDeath(engine)) await this.#opened.ask(() => engine.alsoAlive(group))
      },
      signals: this.#signals.divert,
      interrupted: this.#signals.interrupted,
      onUnguarded: () => this.#tell('the guardian was killed: if this process is killed, too, its command runs on'),
      onRefused: () => this.#tell('the command cannot be signalled: it runs as another user'),
      onEnding: (why) => this.#ending(key, why),
    })
  }

  #ending(key: string, why: EndReason): void {
    const { atMostMs = 0 } = this.#limits
    this.#signals.commandEnds()
    if (why === 'at-most') this.#tell(`the command has had its ${formatDuration(atMostMs)}: ending it`)
    else this.#tell(`losing '${printable(key)}' (${this.#lossInWords(why)}): ending the command`)
  }

  #lossInWords(why: LossReason): string {
    if (why === 'evicted') return 'it was evicted'
    if (why === 'expired') return 'the server does not have it any more'
    if (why === 'maxHold') return `it was held for ${formatDuration(this.#limits.maxHoldMs ?? 0)}, its --max-hold`
    const error = this.#renewalError === undefined ? '' : `: ${this.#renewalError}`
    return `it could not be renewed in time${error}`
  }

  #jeopardy({ operation, error, remainingMs }: Events['jeopardy']): void {
    // Servers quote in their errors what others have stored.
    this.#renewalError = error === undefined ? undefined : printable(error.message)
    const why = error === undefined ? '' : ` (${this.#renewalError})`
    this.#tell(`'${printable(operation.key)}' could not be renewed${why}; ${formatDuration(remainingMs)} left`)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#opened[Symbol.asyncDispose]()
  }

  #tell(text: string): void {
    if (!this.#input.has('quiet')) say(text)
  }
}
