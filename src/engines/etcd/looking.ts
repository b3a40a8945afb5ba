/** Looking at lines: who is in one, which ones there are, and word of a change for those who only watch. */

import type { EtcdClient, LeaseTime } from '../../clients/etcd/client.ts'
import type { WatchStream } from '../../clients/etcd/watch-stream.ts'
import type { Clock, Timer } from '../../core/clock.ts'
import type { Line, LineEntry, LineSummary } from '../../core/engine.ts'
import { heldCount } from '../../core/line.ts'
import type { Names } from './names.ts'
import { frontOf, type Seat, seatOf } from './stored.ts'

const PAGE = 1_000
/** Each try of a watch that is refused costs a stream and a login, also those who may watch. */
const REFUSED_PAUSE_MS = 10_000

export async function inspect(client: EtcdClient, names: Names, key: string): Promise<Line> {
  const { seats, held } = frontOf(await client.range({ ...names.line(key), oldestFirst: true }))
  const times = new Map<bigint, LeaseTime>()
  await Promise.all(
    [...new Set(seats.map(({ lease }) => lease))].map(async (lease) => {
      times.set(lease, await client.timeOf(lease))
    }),
  )
  const entries = seats.map(({ id, holder, token, weight, limit, lease }, index): LineEntry => {
    const { leftSeconds = 0, grantedSeconds = 0 } = times.get(lease) ?? {}
    const state = index < held ? 'held' : 'waiting'
    const [ttlMs, remainingMs] = [grantedSeconds * 1000, Math.max(leftSeconds, 0) * 1000]
    // etcd keeps no time of day.
    return { id, holder, state, token, weight, limit, ttlMs, remainingMs, ageMs: null, heldMs: null }
  })
  return { key, entries }
}

/** Page by page, in the order of the keys; a line may go on from one page to the next. */
export async function* list(client: EtcdClient, names: Names, prefix: string): AsyncIterable<LineSummary> {
  const { key: first, end } = names.lines(prefix)
  let from = first
  let [line, seats]: [string | undefined, Seat[]] = [undefined, []]
  for (let more = true; more; ) {
    const { kvs, count } = await client.range({ key: from, end, limit: PAGE })
    more = count > kvs.length
    for (const kv of kvs) {
      from = `${kv.key}\0`
      if (!kv.key.startsWith(first)) {
        more = false
        break
      }
      const { key } = names.parse(kv.key)
      if (line !== undefined && key !== line) {
        yield summary(line, seats)
        seats = []
      }
      line = key
      seats.push(seatOf(kv))
    }
  }
  if (line !== undefined) yield summary(line, seats)
}

function summary(key: string, seats: Seat[]): LineSummary {
  const held = heldCount(seats.sort((a, b) => Number(a.token - b.token)))
  return { key, held, waiting: seats.length - held }
}

export interface Observing {
  readonly watches: WatchStream
  readonly names: Names
  readonly clock: Clock
}

/**
 * Resolves when nothing is missed any more; rejects if we may not watch. Should the right be taken away later, whoever
 * watches finds out by looking, and we try again now and then.
 */
export async function observe(
  { watches, names, clock }: Observing,
  key: string,
  listener: () => void,
): Promise<AsyncDisposable> {
  let stop = (): void => {}
  let begun = false
  let pause: Timer | undefined
  const again = (): void => {
    // What changes until it is created, nobody tells us.
    void begin().then(listener)
  }
  const missed = (): void => {
    again()
    listener()
  }
  const later = (): void => {
    pause = clock.timer(REFUSED_PAUSE_MS, again)
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
        { changed: listener, created, compacted: missed, refused: (error) => (begun ? later() : reject(error)) },
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
