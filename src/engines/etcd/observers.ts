/**
 * Observers of lines, who have no entry in them: one watch for each. It tells every change of the line, also what comes
 * into it.
 */
import type { WatchStream } from '../../clients/etcd/watch-stream.ts'
import type { Clock, Timer } from '../../core/clock.ts'
import type { EtcdNames } from './names.ts'

/** Each try of a watch that is refused costs a stream and a login, for the other watches, too. */
const REFUSED_PAUSE_MS = 10_000

export interface LineWatchOptions {
  readonly watches: WatchStream
  readonly names: EtcdNames
  readonly clock: Clock
}

/**
 * Call `listener` whenever the line may have changed. Resolves when no change is missed any more; rejects if the user
 * has no right to watch. Should the right be taken away later, the observer finds out when it looks, and the watch is
 * requested again now and then.
 */
export async function observeLine(
  { watches, names, clock }: LineWatchOptions,
  key: string,
  listener: () => void,
): Promise<AsyncDisposable> {
  let stop = (): void => {}
  let begun = false
  let pause: Timer | undefined
  const beginAgain = (): void => {
    // What changes until the watch is created comes without an event.
    void begin().then(listener)
  }
  const compacted = (): void => {
    beginAgain()
    listener()
  }
  const refusedLater = (): void => {
    pause = clock.timer(REFUSED_PAUSE_MS, beginAgain)
    listener()
  }
  const begin = (): Promise<void> =>
    new Promise((resolve, reject) => {
      const created = (): void => {
        begun = true
        resolve()
      }
      stop = watches.add(
        { ...names.line(key), fromRevision: 0n, deletesOnly: false },
        { changed: listener, created, compacted, refused: (error) => (begun ? refusedLater() : reject(error)) },
      )
    })
  await begin()
  return {
    [Symbol.asyncDispose]: async () => {
      pause?.cancel()
      stop()
    },
  }
}
