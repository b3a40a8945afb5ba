/** The engine's own errors. What an error of the driver means is in clients/mongodb/errors.ts. */
import { asEngineError, ENGINE } from '../../clients/mongodb/errors.ts'
import { EngineError } from '../../core/errors.ts'
import { type EngineCall, withOutcome } from '../../core/failed-call.ts'

/** Some calls of a batch went wrong, and others did not: nothing is known of the batch as a whole. */
export function asDoubtful(call: EngineCall, error: unknown): EngineError {
  return withOutcome(asEngineError(call, error), 'unknown')
}

/** A newer version of Holdfast has written this line. */
export function newerFormat(key: string, format: number): EngineError {
  const message = `the line of '${key}' has format ${format}: a newer Holdfast made it, update this one`
  return new EngineError(ENGINE, message, { outcome: 'not-applied', transient: false })
}
