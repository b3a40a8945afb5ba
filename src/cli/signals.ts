/**
 * Signals: those that we get are not only for us. They belong to the command, or, while there is none, end the waiting.
 */

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
  /** The last one that asks a program to end, whichever listener heard it. */
  toldToEnd: NodeJS.Signals | undefined
  #listener: (signal: NodeJS.Signals) => void

  /** `first` hears them until they are diverted. */
  constructor(first: (signal: NodeJS.Signals) => void) {
    this.#listener = first
    for (const signal of PASSED_ON) {
      process.on(signal, () => {
        if (ENDING.has(signal)) this.toldToEnd = signal
        this.#listener(signal)
      })
    }
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

export function signalGroup(group: number, signal: NodeJS.Signals): void {
  try {
    process.kill(-group, signal)
  } catch (error) {
    // No process is left, or only processes of another user (setuid), whose end is their own.
    const { code } = error as NodeJS.ErrnoException
    if (code !== 'ESRCH' && code !== 'EPERM') throw error
  }
}
