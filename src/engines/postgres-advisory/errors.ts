/** What goes wrong, in our words. */
import { EngineError } from '../../core/errors.ts'
import { ENGINE } from './session.ts'

/** Wrong password or user, no such database, no right to make the table: time mends none of these. */
const LASTING = /^(?:28P01|28000|3D000|42501|3F000|42P01)$/

/** Nothing was asked: there is no session to ask. */
export function unreachable(error: unknown): EngineError {
  if (error instanceof EngineError) return error
  const { code, message } = error as { code?: string; message?: string }
  const transient = code === undefined || !LASTING.test(code)
  return new EngineError(ENGINE, `no session: ${message || code || String(error)}`, {
    outcome: 'not-applied',
    transient,
    cause: error,
  })
}

/** The statement may have done what it says; but its session is over, and whatever it locked is free. */
export function failure(error: unknown): EngineError {
  if (error instanceof EngineError) return error
  return new EngineError(ENGINE, (error as Error).message, { outcome: 'unknown', cause: error })
}
