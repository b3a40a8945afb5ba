/** What the scripts find at a key that is no line. What a Redis itself answers with is in clients/redis/errors.ts. */
import { ENGINE } from '../../clients/redis/errors.ts'
import { EngineError } from '../../core/errors.ts'

/** What is at that key is not a lock whose end could be waited for. `kind` and `detail` are those of lua/place.lua. */
export function unusable(serverKey: string, kind: string, detail: string): EngineError {
  return new EngineError(ENGINE, `'${serverKey}' ${whyUnusable(kind, detail)}`, {
    outcome: 'not-applied',
    transient: false,
  })
}

function whyUnusable(kind: string, detail: string): string {
  if (kind === 'type') return `is a ${detail}, not a lock; use another prefix`
  if (kind === 'version') return `was written by a newer Holdfast (format ${detail}), or is no lock`
  return `is a ${detail} without expiry that another program has set: its end cannot be waited for`
}
