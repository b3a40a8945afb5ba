/**
 * Signals that we get are not only for us. They belong to the command under the lock, or, while there is none, end the
 * waiting.
 */
import { Interrupted } from './failure.ts'

/**
 * In the order of their numbers. STOP and KILL cannot be had; TSTP, CONT and WINCH reach the command by the terminal.
 */
const PASSED_ON: readonly NodeJS.Signals[] = ['SIGHUP', 'SIGINT', 'SIGQUIT', 'SIGUSR1', 'SIGUSR2', 'SIGTERM']
/**
 * What a supervisor or a shell sends to all of a job, to end it. The others are messages to one program: its neighbours
 * would die of them.
 */
export const ENDING: ReadonlySet<NodeJS.Signals> = new Set(['SIGHUP', 'SIGINT', 'SIGQUIT', 'SIGTERM'])

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
