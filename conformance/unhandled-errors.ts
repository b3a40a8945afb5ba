/**
 * Collects errors that are not handled. While a suite runs, every unhandled rejection and uncaught exception, in this
 * process and in its actors, is written down, and fails the case in which it is seen. So does Node's warning that
 * listeners are added without end.
 */
import { setImmediate as turn } from 'node:timers/promises'

export class UnhandledErrors implements Disposable {
  readonly #seen: string[] = []
  readonly #rejected = (error: unknown): void => this.write(described(error))
  readonly #warned = (warning: Error): void => {
    if (warning.name === 'MaxListenersExceededWarning') this.write(described(warning))
  }

  constructor() {
    process.on('unhandledRejection', this.#rejected)
    // The monitor sees an exception and leaves it to the runner, who ends the process or not.
    process.on('uncaughtExceptionMonitor', this.#rejected)
    process.on('warning', this.#warned)
  }

  write(what: string): void {
    this.#seen.push(what)
  }

  /** How much was seen until now. */
  get mark(): number {
    return this.#seen.length
  }

  /**
   * Throws if something went unhandled since `mark`. A case that plays beside the guilty one is blamed, too; played
   * again, alone, only the guilty one is. Node tells of a rejection when its turn ends, so two turns are let pass.
   */
  async ask(mark: number): Promise<void> {
    await turn()
    await turn()
    const seen = this.#seen.slice(mark)
    if (seen.length > 0) throw new Error(`went unhandled, ${seen.length} in all:\n${seen.slice(0, 5).join('\n')}`)
  }

  [Symbol.dispose](): void {
    process.off('unhandledRejection', this.#rejected)
    process.off('uncaughtExceptionMonitor', this.#rejected)
    process.off('warning', this.#warned)
  }
}

function described(error: unknown): string {
  return error instanceof Error ? (error.stack ?? error.message) : String(error)
}
