/** What is wrong with the server, published as the event `warning`: each kind once for each engine object. */
import { ENGINE } from '../../clients/redis/errors.ts'
import { channels, publish } from '../../core/diagnostics.ts'
import type { NamedFinding } from '../../core/finding-names.ts'

export class ServerWarnings {
  readonly #diagnose: () => Promise<readonly NamedFinding[]>
  readonly #given = new Set<string>()

  constructor(diagnose: () => Promise<readonly NamedFinding[]>) {
    this.#diagnose = diagnose
  }

  /** Ask the server, and warn of what is not as it should be. Without subscribers of the event, nothing is asked. */
  async ask(): Promise<void> {
    if (!channels.warning.hasSubscribers) return
    // A user who may not ask the server is not warned: if something is wrong, the calls for locks will fail and say so.
    const findings = await this.#diagnose().catch(() => [])
    for (const finding of findings) if (finding.status !== 'ok') this.warnOf(finding)
  }

  warnOf({ name, finding, todo }: Pick<NamedFinding, 'name' | 'finding' | 'todo'>): void {
    if (!channels.warning.hasSubscribers || this.#given.has(name)) return
    this.#given.add(name)
    publish.warning({ engine: ENGINE, name, message: todo === undefined ? finding : `${finding}: ${todo}` })
  }
}
