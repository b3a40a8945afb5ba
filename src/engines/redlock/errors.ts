/**
 * What can go wrong with a majority, as errors. What goes wrong with one server is told by the Redis engine
 * (../redis/faults.ts).
 */
import { EngineError, LineFullError } from '../../core/errors.ts'
import type { Summary } from './verdict.ts'

export const ENGINE = 'redlock'
/** As in lua/ask.lua. */
export const LINE_BOUND = 10_000

/** Too few nodes have answered. */
export function unanswered(answered: number, nodes: number, error?: Error): EngineError {
  const why = error === undefined ? '' : `: ${error.message}`
  const message = `${answered} of ${nodes} servers have answered, which is no majority${why}`
  // A password that all of them refuse is refused again. If some only are away, they may come back.
  const transient = !(error instanceof EngineError) || error.transient || answered > 0
  return new EngineError(ENGINE, message, { outcome: 'unknown', transient, cause: error })
}

/** It was had when it was of no use any more. */
export function outrun(ttlMs: number): EngineError {
  return new EngineError(ENGINE, `it took longer than the ttl of ${ttlMs} ms to get it`, { outcome: 'unknown' })
}

/** On a majority, what is at the key is not a lock, or the line is full. */
export function unusable(key: string, { unusable: found }: Summary): EngineError | LineFullError {
  const lasting = { outcome: 'not-applied', transient: false } as const
  const { kind = 'type', detail = '' } = found ?? {}
  if (kind === 'full') return new LineFullError(key, LINE_BOUND)
  if (kind === 'type')
    return new EngineError(ENGINE, `at '${key}' is a ${detail}, not a lock; use another prefix`, lasting)
  if (kind === 'version')
    return new EngineError(ENGINE, `'${key}' was written by a newer Holdfast (format ${detail})`, lasting)
  return new EngineError(
    ENGINE,
    `at '${key}' is a string without expiry that somebody else has set: nobody could wait for its end`,
    lasting,
  )
}
