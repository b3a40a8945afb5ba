/**
 * Looking at a line again whenever it may have changed: what `locks.watch` and `election.observe` are made of.
 *
 * The hint of an engine that can watch wakes it at once. A hint can be lost, and some engines send none: looking now
 * and then is the promise.
 */
import type { Clock } from './clock.ts'
import type { Line } from './engine.ts'
import type { Keeper } from './keeper.ts'
import { joinSignals, onAbort } from './on-abort.ts'
import { fallbackAfter } from './time-limit.ts'

export interface WatchTiming {
  /** How long to go without a look, if there is no hint. */
  readonly everyMs: number
  /** The same, where the engine sends no hints. */
  readonly unwatchedEveryMs: number
  /** For how long looks may fail before the watch does. */
  readonly toleratedMs: number
}

/**
 * The line now, and then after every look; it may be the same. Ends when `signal` aborts or the keeper is closed, also
 * while a look is not answered. Rejects if the keeper was closed before.
 */
export async function* watchLine(
  keeper: Keeper,
  key: string,
  timing: WatchTiming,
  signal: AbortSignal,
): AsyncGenerator<Line, void, void> {
  keeper.refuseIfClosed()
  const { clock } = keeper
  const endings = [signal, keeper.closing]
  const over = (): boolean => endings.some(({ aborted }) => aborted)
  const wakeSignal = new WakeSignal(clock)
  const forget = endings.map((ending) => onAbort(ending, () => wakeSignal.wake()))
  const asked = askForHints(keeper, key, () => wakeSignal.wake())
  let hints: AsyncDisposable | undefined
  try {
    hints = await untilEnded(asked, endings)
    const intervalMs = hints === undefined ? timing.unwatchedEveryMs : timing.everyMs
    let seenAt = clock.now()
    while (!over()) {
      const looking = look(keeper, key, () => over() || clock.now() - seenAt < timing.toleratedMs)
      const line = await untilEnded(looking, endings)
      if (line !== undefined) {
        yield line
        // After the yield: the consumer may take its time.
        seenAt = clock.now()
      }
      await wakeSignal.sleep(intervalMs, over)
    }
  } finally {
    for (const stop of forget) stop()
    const ended = asked.then((late) => late && endHints(keeper, late))
    // An engine that has not answered yet whether it sends hints is not waited for. They are ended when it does.
    if (hints !== undefined) await ended
  }
}

/** What `promise` resolves to; undefined as soon as one of `endings` aborts. */
function untilEnded<Value>(
  promise: Promise<Value | undefined>,
  endings: readonly AbortSignal[],
): Promise<Value | undefined> {
  return new Promise((resolve, reject) => {
    const forget = endings.map((ending) => onAbort(ending, () => end(() => resolve(undefined))))
    const end = (settle: () => void): void => {
      for (const stop of forget) stop()
      settle()
    }
    promise.then(
      (value) => end(() => resolve(value)),
      (error: unknown) => end(() => reject(error)),
    )
    if (endings.some(({ aborted }) => aborted)) end(() => resolve(undefined))
  })
}

/** Never rejects, and takes no longer than a call may. Once the locks are closed, it does not wait. */
function endHints({ clock, callTimeoutMs, closing }: Keeper, hints: AsyncDisposable): Promise<void> {
  const ending = (async (): Promise<void> => hints[Symbol.asyncDispose]())()
  return fallbackAfter(clock, callTimeoutMs, ending, undefined, closing)
}

/** Undefined: no answer, and that is tolerated. */
async function look(keeper: Keeper, key: string, tolerated: () => boolean): Promise<Line | undefined> {
  try {
    return await keeper.call('inspect', (engine) => engine.inspect(key))
  } catch (error) {
    if (tolerated()) return undefined
    throw error
  }
}

/** Calls `wake` when the line of `key` may have changed, until `end`. `ready`: whether the engine does so. */
export function hintsOf(
  keeper: Keeper,
  key: string,
  wake: () => void,
): { readonly ready: Promise<boolean>; end(): Promise<void> } {
  const asked = askForHints(keeper, key, wake)
  return {
    ready: asked.then((hints) => hints !== undefined),
    end: async () => {
      const hints = await asked
      if (hints !== undefined) await endHints(keeper, hints)
    },
  }
}

/** Undefined: this engine cannot watch, or not now. */
async function askForHints(keeper: Keeper, key: string, wake: () => void): Promise<AsyncDisposable | undefined> {
  let late = false
  const watching = keeper.call('watch', async (engine) => {
    const watch = await engine.watch?.(key, wake)
    if (late) await watch?.[Symbol.asyncDispose]()
    return watch
  })
  return watching.catch(() => {
    late = true
    return undefined
  })
}

/**
 * A generator that ends when its consumer asks for that, also while it waits: a generator that waits cannot be told to
 * end, but the signal that it waits under can be aborted.
 */
export function endable<Value>(
  signal: AbortSignal | undefined,
  generate: (signal: AbortSignal) => AsyncGenerator<Value, void, void>,
): AsyncGenerator<Value, void, void> {
  const ending = new AbortController()
  const values = (async function* () {
    const joined = joinSignals([signal, ending.signal])
    try {
      yield* generate(joined.signal)
    } finally {
      joined.stop()
    }
  })()
  return {
    next: () => values.next(),
    return: (value) => {
      ending.abort()
      return values.return(value)
    },
    throw: (error) => {
      ending.abort()
      return values.throw(error)
    },
    [Symbol.asyncIterator]() {
      return this
    },
    async [Symbol.asyncDispose]() {
      await this.return()
    },
  }
}

/** Sleep until the next `wake`, or for a while. A `wake` while the consumer is awake ends its next sleep at once. */
export class WakeSignal {
  readonly #clock: Clock
  #woken = false
  #wake: (() => void) | undefined

  constructor(clock: Clock) {
    this.#clock = clock
  }

  wake(): void {
    this.#woken = true
    this.#wake?.()
  }

  async sleep(atMostMs: number, over: () => boolean): Promise<void> {
    if (!this.#woken && !over()) {
      const alive = this.#clock.stayAlive()
      await new Promise<void>((resolve) => {
        const timer = this.#clock.timer(atMostMs, resolve)
        this.#wake = () => {
          timer.cancel()
          resolve()
        }
      })
      this.#wake = undefined
      alive.cancel()
    }
    this.#woken = false
  }
}
