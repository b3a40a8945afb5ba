/** What ends a command early, a signal or anything thrown, and from that to an exit code and one sentence. */
import {
  AcquireTimeoutError,
  DeadlockError,
  EngineError,
  LeaseLostError,
  LineFullError,
  UnsupportedError,
} from '../core/errors.ts'
import { redactUrl } from '../core/redact.ts'
import { UsageError } from './args.ts'
import { EXITS, type Exit, signalExit } from './exits.ts'

/** We were asked to end by a signal, before there was a command to pass it on to. */
export class Interrupted extends Error {
  readonly signal: NodeJS.Signals

  constructor(signal: NodeJS.Signals) {
    super(`ended by ${signal}`)
    this.signal = signal
  }
}

export interface Failure {
  readonly kind: Exit | 'signal'
  readonly exit: number
  readonly message: string
}

/** An engine that cannot be used, by the URL the user knows it by. */
export class Unreachable extends Error {
  constructor(url: string, error: EngineError) {
    // The URL says which engine it is; of the default, there is only the name to say.
    const what = error.message.replaceAll(`${error.engine}: `, '')
    super(`cannot use ${redactUrl(url).replace(/:$/, '')}: ${what}`, { cause: error })
  }
}

/** The command, or the guardian beside it, could not be started. */
export class CannotRun extends Error {}

export function failureOf(error: unknown): Failure {
  const message = error instanceof Error ? error.message : String(error)
  if (error instanceof Interrupted) return { kind: 'signal', exit: signalExit(error.signal), message }
  const kind = kindOf(error)
  return { kind, exit: EXITS[kind].code, message }
}

function kindOf(error: unknown): Exit {
  if (error instanceof UsageError || error instanceof UnsupportedError || error instanceof DeadlockError) return 'usage'
  if (error instanceof Unreachable || error instanceof EngineError || error instanceof LineFullError)
    return 'unreachable'
  if (error instanceof AcquireTimeoutError) return 'waited'
  if (error instanceof LeaseLostError) return 'lost'
  if (error instanceof CannotRun) return 'cannotRun'
  return 'bug'
}
