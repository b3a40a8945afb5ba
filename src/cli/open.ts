/** The engine that a command talks to. */
import { connect, defaultUrl } from '../connect.ts'
import { systemClock as clock } from '../core/clock.ts'
import { EngineError } from '../core/errors.ts'
import type { LocksOptions } from '../core/locks-options.ts'
import { fallbackAfter } from '../core/time-limit.ts'
import type { Locks } from '../locks.ts'
import { type Input, UsageError } from './args.ts'
import { Unreachable } from './failure.ts'

export interface Opened extends AsyncDisposable {
  readonly locks: Locks
  /** As the user wrote it; not for printing. */
  readonly url: string
  /** Do something with the locks; a failure of the engine is told with its URL. */
  ask<Result>(work: (locks: Locks) => Promise<Result>): Promise<Result>
}

/** An engine that no longer answers is not waited for at the end: whatever of ours it still has expires by itself. */
const CLOSING_MS = 1_000

export async function open(input: Input, options: LocksOptions = {}): Promise<Opened> {
  const url = input.value('url') ?? defaultUrl()
  const told = (error: unknown): unknown => {
    if (error instanceof EngineError) return new Unreachable(url, error)
    // An unknown scheme, a wrong option in the query, a ttl that this engine cannot keep.
    return error instanceof TypeError || error instanceof RangeError
      ? new UsageError(error.message, { cause: error })
      : error
  }
  const locks = await connect(url, options).catch((error: unknown) => {
    throw told(error)
  })
  return {
    locks,
    url,
    ask: async (work) => {
      try {
        return await work(locks)
      } catch (error) {
        throw error instanceof EngineError ? told(error) : error
      }
    },
    [Symbol.asyncDispose]: () => fallbackAfter(clock, CLOSING_MS, locks.close(), undefined),
  }
}
