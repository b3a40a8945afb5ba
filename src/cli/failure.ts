/**
 * What ends a command early, a signal or anything thrown, and from that to an exit code and one sentence.
 *
 * Signals that we get are not only for us. They belong to the command under the lock, or, while there is none, end the
 * waiting.
 */

import {
  AcquireTimeoutError,
  DeadlockError,
  EngineError,
  LeaseLostError,
  LineFullError,
  UnsupportedError,
} from '../core/errors.ts'
import { redactUrl } from '../core/redact.ts'
import { UsageError } from './args.ts'
import { EXITS, type Exit, signalExit } from './exits.ts'

/**
 * In the order of their numbers. STOP and KILL cannot be had; TSTP, CONT and WINCH reach the command by the terminal.
 */
const PASSED_ON: readonly NodeJS.Signals[] = ['SIGHUP', 'SIGINT', 'SIGQUIT', 'SIGUSR1', 'SIGUSR2', 'SIGTERM']
/**
 * What a supervisor or a shell sends to all of a job, to end it. The others are messages to one program: its neighbours
 * would die of them.
 */
export const ENDING: ReadonlySet<NodeJS.Signals> = new Set(['SIGHUP', 'SIGINT', 'SIGQUIT', 'SIGTERM'])

/** We were asked to end by a signal, before there was a command to pass it on to. */
export class Interrupted extends Error {
  readonly signal: NodeJS.Signals

  constructor(signal: NodeJS.Signals) {
    super(`ended by ${signal}`)
    this.signal = signal
  }
}

export class Signals {
  /** The last one that asks a program to end, also while they are diverted. */
  toldToEnd: NodeJS.Signals | undefined
  readonly #interrupt = new AbortController()
  #listener = (signal: NodeJS.Signals): void => this.#interrupt.abort(new Interrupted(signal))

  /** They are heard from now on. */
  constructor() {
    for (const signal of PASSED_ON) {
      process.on(signal, () => {
        if (ENDING.has(signal)) this.toldToEnd = signal
        this.#listener(signal)
      })
    }
  }

  /** Aborts, with an `Interrupted`, at the first signal that is not diverted. */
  get interrupted(): AbortSignal {
    return this.#interrupt.signal
  }

  /** `listener` hears them, until the answer is called; then the listener of before. */
  readonly divert = (listener: (signal: NodeJS.Signals) => void): (() => void) => {
    const before = this.#listener
    this.#listener = listener
    return () => {
      this.#listener = before
    }
  }
}

export interface Failure {
  readonly kind: Exit | 'signal'
  readonly exit: number
  readonly message: string
}

/** An engine that cannot be used, by the URL the user knows it by. */
export class Unreachable extends Error {
  constructor(url: string, error: EngineError) {
    // The URL says which engine it is; of the default, there is only the name to say.
    const what = error.message.replaceAll(`${error.engine}: `, '')
    super(`cannot use ${redactUrl(url).replace(/:$/, '')}: ${what}`, { cause: error })
  }
}

/** The command, or the guardian beside it, could not be started. */
export class CannotRun extends Error {}

export function failureOf(error: unknown): Failure {
  const message = error instanceof Error ? error.message : String(error)
  if (error instanceof Interrupted) return { kind: 'signal', exit: signalExit(error.signal), message }
  const kind = kindOf(error)
  return { kind, exit: EXITS[kind].code, message }
}

function kindOf(error: unknown): Exit {
  if (error instanceof UsageError || error instanceof UnsupportedError || error instanceof DeadlockError) return 'usage'
  if (error instanceof Unreachable || error instanceof EngineError || error instanceof LineFullError)
    return 'unreachable'
  if (error instanceof AcquireTimeoutError) return 'waited'
  if (error instanceof LeaseLostError) return 'lost'
  if (error instanceof CannotRun) return 'cannotRun'
  return 'bug'
}
