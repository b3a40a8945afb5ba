/** What went wrong, as the core wants it. What MongoDB means by its codes is in clients/mongodb/errors.ts. */
import { asMongodbError } from '../../clients/mongodb/errors.ts'
import { EngineError } from '../../core/errors.ts'

export const ENGINE = 'mongodb'

export function asEngineError(error: unknown): EngineError {
  return asMongodbError(ENGINE, error)
}

/** Some calls of a batch went wrong, and others did not: nothing is known of the batch as a whole. */
export function asDoubtful(error: unknown): EngineError {
  const { message, transient, cause } = asEngineError(error)
  return new EngineError(ENGINE, message.replace(`${ENGINE}: `, ''), { outcome: 'unknown', transient, cause })
}

/** A newer version of Holdfast has written this line. */
export function newerFormat(key: string, format: number): EngineError {
  const message = `the line of '${key}' has format ${format}: a newer Holdfast made it, update this one`
  return new EngineError(ENGINE, message, { outcome: 'not-applied', transient: false })
}
