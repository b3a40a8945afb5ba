/**
 * Whether the engine of the locks answers, for readiness probes. `check` answers what an indicator of
 * `@nestjs/terminus` answers, and rejects as one rejects; nothing of that package is needed for it.
 */
import { ServiceUnavailableException } from '@nestjs/common'
import type { Locks } from '../../locks.ts'

/** `{ holdfast: { status: 'up', ms: 1 } }`. */
export type HealthOfLocks = Record<string, { readonly status: 'up'; readonly ms: number }>

/**
 * What terminus takes for a service that is down: by this field, until its version 11. Version 12 lets it pass, and so
 * does a route without terminus: it is a 503 then, with the body that terminus has for it.
 */
class HealthOfLocksError extends ServiceUnavailableException {
  readonly isHealthCheckError = true
  readonly causes: object

  constructor(key: string, message: string, options?: ErrorOptions) {
    const down = { [key]: { status: 'down', message } }
    super({ status: 'error', info: {}, error: down, details: down }, options)
    this.name = 'HealthCheckError'
    this.message = message
    this.causes = down
  }
}

/** Asks the engine. The module provides one for its locks; for others, make one yourself. */
export class HoldfastHealth {
  readonly #locks: Locks

  constructor(locks: Locks) {
    this.#locks = locks
  }

  /** One round trip to the engine: how many milliseconds it took. Rejects if it does not answer. */
  ping(): Promise<number> {
    return this.#locks.ping()
  }

  /** For terminus: `health.check([() => this.locks.check('locks')])`. Down while the application is ending, too. */
  async check(key = 'holdfast'): Promise<HealthOfLocks> {
    if (this.#locks.draining.aborted) throw new HealthOfLocksError(key, 'the locks are being drained')
    try {
      return { [key]: { status: 'up', ms: await this.ping() } }
    } catch (error) {
      throw new HealthOfLocksError(key, error instanceof Error ? error.message : String(error), { cause: error })
    }
  }
}
