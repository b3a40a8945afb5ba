/**
 * How a script is called: only while there is a connection, by its short name, and by its text where the server does
 * not know it (yet, or any more).
 *
 * Nothing waits for a connection for longer than a moment: what is not sent was surely not applied, and the core asks
 * again when it wants to.
 */
import type { Clock, Timer } from '../../core/clock.ts'
import type { EngineCall } from '../../core/failed-call.ts'
import { NotSent } from '../shared/driver-errors.ts'
import { asEngineError, codeOf, isPassing } from './errors.ts'
import type { RedisWire } from './wire.ts'

/** How long a call waits for a connection, at most: long enough for a first one, and for most blips. */
const PATIENCE_MS = 1000

/** A Lua script, as the `scripts.ts` that are made of Lua files have it. */
export interface Script {
  /** What EVALSHA calls it: the SHA-1 of the text. */
  readonly sha: string
  readonly text: string
  /**
   * Its answer can say that an entry holds, or that a record is stored. Where replicas have to confirm that, they are
   * asked after this script.
   */
  readonly grants: boolean
}

export class ScriptCaller {
  readonly #wire: RedisWire
  readonly #clock: Clock
  readonly #confirm: ((call: EngineCall) => Promise<void>) | undefined
  readonly #waiting = new Set<() => void>()
  /**
   * Called when the server does not know a script, which is therefore sent a second time: after what was sent
   * meanwhile.
   */
  onResend: () => void = () => undefined

  /**
   * `confirm` is called right behind each script that grants: what the script answers counts when `confirm` resolves.
   */
  constructor(wire: RedisWire, clock: Clock, confirm?: (call: EngineCall) => Promise<void>) {
    this.#wire = wire
    this.#clock = clock
    this.#confirm = confirm
    wire.onChange = () => {
      for (const look of [...this.#waiting]) look()
    }
  }

  /**
   * Call a script with `words`: a place for its name, the number of keys, the keys, and the arguments. `key` is one of
   * the keys. Resolves with what `read` makes of the reply; where replicas have to confirm, when they have. A caller
   * with little time says how long to wait for a connection. Rejects with an `EngineError` that names `verb`.
   */
  call<Answer>(
    verb: EngineCall,
    script: Script,
    words: string[],
    key: string,
    read: (reply: unknown) => Answer,
    patienceMs?: number,
  ): Promise<Answer> {
    const { ready, silence } = this.#wire
    if (!ready)
      return this.connected(patienceMs).then(
        () => this.call(verb, script, words, key, read),
        (error: unknown) => Promise.reject(asEngineError(verb, error)),
      )
    words[0] = script.sha
    silence?.asked()
    // All that is to be done with a reply in one promise: each further one costs a single caller a microsecond.
    return this.#send(verb, 'EVALSHA', script, words, key).then(
      (reply) => {
        silence?.answered()
        return read(reply)
      },
      (error: unknown) => {
        silence?.answered()
        return this.#again(error, () => this.#send(verb, 'EVAL', script, words.with(0, script.text), key))
          .then(read)
          .catch((second: unknown) => Promise.reject(asEngineError(verb, second)))
      },
    )
  }

  /**
   * The same with a callback: a promise less, where several servers are asked for one thing. It waits for no
   * connection; `words` may be shared by the calls to several servers. The error is the client's own, or `NotSent`.
   */
  tell(script: Script, words: string[], hear: (reply: unknown, error?: unknown) => void): void {
    const { ready, silence, trouble } = this.#wire
    words[0] = script.sha
    silence?.asked()
    const sent = ready ? this.#wire.send('EVALSHA', words) : Promise.reject(new NotSent(trouble))
    sent.then(
      (reply) => {
        silence?.answered()
        hear(reply)
      },
      (error: unknown) => {
        silence?.answered()
        this.#again(error, () => this.#wire.send('EVAL', words.with(0, script.text))).then(
          (reply) => hear(reply),
          (second: unknown) => hear(undefined, second),
        )
      },
    )
  }

  /** Send a plain command that reads, and answers a list. As with `call`, nothing waits long for a connection. */
  command<Answer>(
    verb: EngineCall,
    command: string,
    words: readonly string[],
    read: (reply: readonly unknown[]) => Answer,
  ): Promise<Awaited<Answer>> {
    const { ready, silence } = this.#wire
    if (!ready)
      return this.connected().then(
        () => this.command(verb, command, words, read),
        (error: unknown) => Promise.reject(asEngineError(verb, error)),
      )
    silence?.asked()
    return this.#wire.send(command, words, words[0]).then(
      (reply): Answer => {
        silence?.answered()
        return read(reply as readonly unknown[])
      },
      (error: unknown) => {
        silence?.answered()
        throw asEngineError(verb, error)
      },
    ) as Promise<Awaited<Answer>>
  }

  /** By its text, if the error says that its name is not known. */
  #again(error: unknown, resend: () => Promise<unknown>): Promise<unknown> {
    if (codeOf(error) !== 'NOSCRIPT') return Promise.reject(error)
    this.onResend()
    return resend()
  }

  #send(
    verb: EngineCall,
    command: 'EVAL' | 'EVALSHA',
    { grants }: Script,
    words: readonly string[],
    key: string,
  ): Promise<unknown> {
    const reply = this.#wire.send(command, words, key)
    if (this.#confirm === undefined || !grants) return reply
    return afterBoth(verb, reply, this.#confirm(verb))
  }

  /** Resolves when there is a connection; rejects with `NotSent`. */
  connected(patienceMs: number = PATIENCE_MS): Promise<void> {
    const alive = this.#clock.stayAlive()
    return new Promise((resolve, reject) => {
      let limit: Timer | undefined
      const end = (): void => {
        alive.cancel()
        this.#waiting.delete(look)
        limit?.cancel()
      }
      const giveUp = (): void => {
        end()
        reject(new NotSent(this.#wire.trouble))
      }
      const look = (): void => {
        if (this.#wire.ready) {
          end()
          resolve()
        } else if (!isPassing(this.#wire.trouble)) giveUp()
      }
      limit = this.#clock.timer(Math.min(patienceMs, PATIENCE_MS), giveUp)
      this.#waiting.add(look)
      look()
    })
  }
}

/**
 * The reply, when the replicas have confirmed. What is said of a script that failed is its own error. One that was
 * answered has been executed, also where the server has refused to ask the replicas.
 */
async function afterBoth(verb: EngineCall, reply: Promise<unknown>, confirmed: Promise<void>): Promise<unknown> {
  const [said, both] = await Promise.allSettled([reply, confirmed])
  if (said.status === 'rejected') throw said.reason
  if (both.status === 'rejected') throw asEngineError(verb, both.reason, { outcome: 'unknown' })
  return said.value
}
