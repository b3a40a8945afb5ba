/**
 * How a script is called: only while there is a connection, by its short name, and by its text where the server does not know it (yet, or any more).
 *
 * Nothing is sent that its caller has given up, and nothing waits for a connection for longer than a moment: what is not sent was surely not applied, and the core
 * asks again when it wants to.
 */
import type { Clock, Timer } from '../../core/clock.ts'
import { codeOf, fault, offline } from './faults.ts'
import type { Script } from './scripts.ts'
import type { Wire } from './wires/wire.ts'

/** How long a call waits for a connection: long enough for a first one, and for most blips. */
const CONNECT_MS = 1000

export class Caller {
  readonly #wire: Wire
  readonly #clock: Clock
  readonly #waiting = new Set<() => void>()

  constructor(wire: Wire, clock: Clock) {
    this.#wire = wire
    this.#clock = clock
    wire.onChange = () => {
      for (const look of [...this.#waiting]) look()
    }
  }

  /**
   * Call a script with `words`: a place for its name, the number of keys, the keys, and the arguments. `key` is one of the keys. Rejects with an `EngineError`.
   */
  call(script: Script, words: string[], key: string, signal?: AbortSignal): Promise<unknown> {
    if (!this.#wire.ready) return this.connected(signal).then(() => this.call(script, words, key, signal))
    words[0] = script.sha
    return this.#wire.send('EVALSHA', words, key, signal).catch((error: unknown) => {
      if (codeOf(error) !== 'NOSCRIPT') throw fault(error)
      words[0] = script.text
      return this.#wire.send('EVAL', words, key, signal).catch(rethrow)
    })
  }

  /** Resolves when there is a connection. */
  connected(signal?: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      let limit: Timer | undefined
      const end = (): void => {
        this.#waiting.delete(look)
        limit?.cancel()
        signal?.removeEventListener('abort', giveUp)
      }
      const giveUp = (): void => {
        end()
        reject(offline(this.#wire.trouble))
      }
      const look = (): void => {
        if (this.#wire.ready) {
          end()
          resolve()
        } else if (signal?.aborted || !offline(this.#wire.trouble).transient) giveUp()
      }
      limit = this.#clock.timer(CONNECT_MS, giveUp)
      this.#waiting.add(look)
      signal?.addEventListener('abort', giveUp, { once: true })
      look()
    })
  }
}

function rethrow(error: unknown): never {
  throw fault(error)
}
