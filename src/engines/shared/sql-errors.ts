/** What an error of PostgreSQL or MySQL means for the core: of its server, of its client, or of a call not sent. */
import { NotSent } from '../../clients/shared/driver-errors.ts'
import { type AsEngineError, engineErrors } from '../../core/failed-call.ts'
import { thrownText } from '../../core/thrown.ts'

/** What an engine knows of the errors of its server. */
export interface SqlErrorFacts {
  /** What users can do about it, if that is known. */
  adviceOn(error: unknown): string | undefined
  /** Whether the server may have applied what it was sent. */
  isDoubtful(error: unknown): boolean
  /** Whether trying again cannot help. */
  isLasting(error: unknown): boolean
}

export function sqlErrors(engine: string, { adviceOn, isDoubtful, isLasting }: SqlErrorFacts): AsEngineError {
  return engineErrors(engine, (error) => {
    const sent = !(error instanceof NotSent)
    const cause = sent ? error : error.cause
    const advice = adviceOn(cause)
    return {
      message: `${sent ? '' : 'not connected: '}${thrownText(cause)}${advice === undefined ? '' : `; ${advice}`}`,
      outcome: sent && isDoubtful(cause) ? 'unknown' : 'not-applied',
      transient: !isLasting(cause),
      cause,
    }
  })
}
