/** The engine that a command talks to. */
import { defaultUrl, openEngine } from '../connect.ts'
import type { Engine } from '../core/engine.ts'
import { EngineError } from '../core/errors.ts'
import { createLocks, type Locks } from '../core/locks.ts'
import { type Input, UsageError } from './args.ts'
import { Unreachable } from './failure.ts'

export interface Opened extends AsyncDisposable {
  readonly engine: Engine
  /** As the user wrote it; not for printing. */
  readonly url: string
  /** Run a piece of work on it; a failure of the engine is told with its URL. */
  ask<Result>(work: (engine: Engine) => Promise<Result>): Promise<Result>
  locks(holder: string, ttlMs: number): Locks
}

export async function open(input: Input): Promise<Opened> {
  const url = input.value('url') ?? defaultUrl()
  const told = (error: unknown): unknown => (error instanceof EngineError ? new Unreachable(url, error) : error)
  const engine = await openEngine(url).catch((error: unknown) => {
    // An unknown scheme, a wrong option in the query.
    if (error instanceof TypeError || error instanceof RangeError) throw new UsageError(error.message)
    throw told(error)
  })
  const ask: Opened['ask'] = async (work) => {
    try {
      return await work(engine)
    } catch (error) {
      throw told(error)
    }
  }
  return {
    engine,
    url,
    ask,
    locks(holder, ttlMs) {
      try {
        return createLocks(engine, { holder, ttl: ttlMs })
      } catch (error) {
        if (error instanceof RangeError) throw new UsageError(error.message)
        throw error
      }
    },
    [Symbol.asyncDispose]: async () => engine[Symbol.asyncDispose](),
  }
}
