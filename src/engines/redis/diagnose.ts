/**
 * What about the server could break the promises of this engine: asked for by `diagnose()`, and published as the event
 * `warning`, each kind once for each engine object. The judgements are in clients/redis/server-findings.ts.
 */
import { ENGINE } from '../../clients/redis/errors.ts'
import type { RedisNames } from '../../clients/redis/names.ts'
import { serverFindings } from '../../clients/redis/server-findings.ts'
import type { RedisWire } from '../../clients/redis/wire.ts'
import { channels, publish } from '../../core/diagnostics.ts'
import type { Finding } from '../../core/engine.ts'

export class ServerDiagnosis {
  readonly #wire: RedisWire
  readonly #names: RedisNames
  readonly #replicas: number
  readonly #warned = new Set<string>()

  /** `replicas`: how many replicas confirm every grant. */
  constructor(wire: RedisWire, names: RedisNames, replicas: number) {
    this.#wire = wire
    this.#names = names
    this.#replicas = replicas
  }

  /** `thorough`: look through all keys for those of strangers that never end. */
  findings({ thorough }: { readonly thorough: boolean }): Promise<readonly Finding[]> {
    return serverFindings({
      wire: this.#wire,
      prefix: this.#names.serverKey(''),
      replicas: this.#replicas,
      thorough,
    })
  }

  /** Publish what is found, if the event has subscribers. */
  async warn(): Promise<void> {
    if (!channels.warning.hasSubscribers) return
    // A user who may not ask the server is not warned: if something is wrong, the calls for locks will fail and say so.
    const findings = await this.findings({ thorough: false }).catch(() => [])
    for (const finding of findings) if (finding.status !== 'ok') this.warnOf(finding)
  }

  warnOf({ name, finding, todo }: Pick<Finding, 'name' | 'finding' | 'todo'>): void {
    if (!channels.warning.hasSubscribers || this.#warned.has(name)) return
    this.#warned.add(name)
    publish.warning({ engine: ENGINE, name, message: todo === undefined ? finding : `${finding}: ${todo}` })
  }
}
