/**
 * An outage of the engine while callers wait. It is borne for a whole ttl, since most are over by then; people are told
 * of it before, and the caller at the end, with how long it lasted and what the client said.
 */
import type { Publish } from './diagnostics.ts'
import { formatDuration } from './duration.ts'
import type { Entry } from './entry.ts'
import { EngineError } from './errors.ts'
import { withoutEngine } from './failed-call.ts'

/** How long it lasts before it is told. */
const TOLD_MS = 1_000
/** What other callers notice within this time after an outage was told is taken for the same outage. */
const SHARED_MS = 5_000

export class OutageReports {
  readonly #publish: Publish
  #toldAt: number = Number.NEGATIVE_INFINITY

  constructor(publish: Publish) {
    this.#publish = publish
  }

  /** A request for `entry` has failed. Warn, once for all callers that wait. */
  heard(entry: Entry, error: EngineError, now: number): void {
    const lastedMs = now - (entry.failingSince ?? now)
    if (entry.over || entry.phase === 'held' || entry.outageTold || lastedMs < TOLD_MS) return
    entry.outageTold = true
    if (now - this.#toldAt < SHARED_MS) return
    this.#toldAt = now
    const { operation, key } = entry
    const { engine } = operation
    const lasted = formatDuration(lastedMs)
    const message = `'${key}' is waited for, and ${engine} has not answered for ${lasted}: ${withoutEngine(error)}`
    this.#publish.warning({ engine, name: 'unreachable', message, operation })
  }
}

/** What a caller is told that has waited through an outage for a whole ttl. */
export function outageError(entry: Entry, last: EngineError, now: number): EngineError {
  const { key, failingSince, operation } = entry
  const lasted = formatDuration(now - (failingSince ?? now))
  const message = `no answer for ${lasted} while '${key}' was waited for: ${withoutEngine(last)}`
  const outcome = entry.outcomeAfter(last)
  return new EngineError(operation.engine, message, { outcome, transient: last.transient, cause: last })
}
