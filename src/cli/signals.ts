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
  /**
   * The signal that this process has to end by when its command has, though it was passed on. TERM, since it says no
   * more than that. Of the others only those that came while the command was being ended: one that came before it has
   * survived, as daemons do that read their configuration again at a HUP.
   */
  toldToEnd: NodeJS.Signals | undefined
  #commandEnds = false
  readonly #interrupt = new AbortController()
  #listener = (signal: NodeJS.Signals): void => this.#interrupt.abort(new Interrupted(signal))

  /** They are heard from now on. */
  constructor() {
    for (const signal of PASSED_ON) {
      process.on(signal, () => {
        if (signal === 'SIGTERM' || (this.#commandEnds && ENDING.has(signal))) this.toldToEnd = signal
        this.#listener(signal)
      })
    }
  }

  /** Aborts, with an `Interrupted`, at the first signal that is not diverted. */
  get interrupted(): AbortSignal {
    return this.#interrupt.signal
  }

  /** The command that has them is being ended. */
  commandEnds(): void {
    this.#commandEnds = true
  }

  /**
   * `listener`, a command that begins, hears them until the answer is called; then the listener of before. What another
   * command has heard is forgotten.
   */
  readonly divert = (listener: (signal: NodeJS.Signals) => void): (() => void) => {
    this.toldToEnd = undefined
    this.#commandEnds = false
    const before = this.#listener
    this.#listener = listener
    return () => {
      this.#listener = before
    }
  }
}
