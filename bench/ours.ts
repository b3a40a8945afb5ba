/**
 * What the benches of all servers ask of Holdfast itself, in the same words: a race beside others, many that are held,
 * many that wait.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Locks } from '../src/index.ts'
import { type Contender, callers, figure, type RaceOptions, type Result, race, ratio, resultOf } from './driver.ts'
import { untilWaiting } from './processes.ts'

/** Another way to the same lock. */
export interface Peer {
  readonly name: string
  /** Acquire and release, as that caller. */
  readonly pair: (caller: number) => Promise<unknown>
}

export interface Beside extends RaceOptions {
  readonly peers: readonly Peer[]
  /** For the headline. */
  readonly where?: string
  /** What ought to be, beside hand-written, for one caller and for many. */
  readonly wanted: { readonly one: string; readonly many: string }
}

/**
 * Acquire and release, each caller its own key, beside others. The first peer whose name begins with `hand-written` is
 * what counts.
 */
export async function acquireAndRelease(locks: Locks, count: number, beside: Beside): Promise<readonly Result[]> {
  const where = beside.where === undefined ? '' : ` ${beside.where},`
  const results = await race(
    `acquire + release, ${count} caller${count === 1 ? '' : 's'},${where} no contention`,
    [...beside.peers.map(({ name, pair }) => ({ name, run: callers(count, pair) })), holdfast(locks, count)],
    beside,
  )
  const hand = resultOf(results, 'hand-written')
  const times = ratio(resultOf(results, 'holdfast'), hand).toFixed(2)
  figure(`holdfast to ${hand?.name}`, `${times} x   (${count === 1 ? beside.wanted.one : beside.wanted.many})`)
  return results
}

/** Ourselves, in such a race. */
export function holdfast(locks: Locks, count: number): Contender {
  const mutexes = Array.from({ length: count }, (_, caller) => locks.mutex(`key:${caller}`))
  return {
    name: 'holdfast (fenced, renewed, ordered)',
    run: callers(count, async (caller) => {
      const lease = await mutexes[caller]?.acquire()
      await lease?.release()
    }),
  }
}

/** 10,000 leases that are held, and some time to come into step. */
export async function holdManyLeases(locks: Locks): Promise<void> {
  for (let batch = 0; batch < 20; batch += 1) {
    await Promise.all(Array.from({ length: 500 }, (_, index) => locks.mutex(`held:${batch}:${index}`).acquire()))
  }
  await sleep(4_000)
}

/** A hundred that wait on a hundred keys, and some time to come into step. Resolves with what ends the waiting. */
export async function letManyWait(holding: Locks, waiting: Locks): Promise<() => void> {
  const cancel = new AbortController()
  const keys = Array.from({ length: 100 }, (_, index) => `idle:${index}`)
  await Promise.all(keys.map((key) => holding.mutex(key).acquire()))
  for (const key of keys) {
    waiting
      .mutex(key)
      .acquire({ signal: cancel.signal })
      .catch(() => undefined)
  }
  for (const key of keys) await untilWaiting(holding, key, 1)
  await sleep(3_000)
  return () => cancel.abort()
}

/**
 * A hundred of one process wait for one key, and are served one after the other. `measured` is called before and after
 * them; the answer is both of its answers.
 */
export async function serveLine<Reading>(
  holding: Locks,
  waiting: Locks,
  measured: () => Promise<Reading>,
): Promise<readonly [before: Reading, after: Reading]> {
  const first = await holding.mutex('line').acquire()
  const tokens: bigint[] = []
  const served = Array.from({ length: 100 }, async () => {
    const lease = await waiting.mutex('line').acquire()
    tokens.push(lease.token ?? 0n)
    await lease.release()
  })
  await untilWaiting(holding, 'line', 100)
  const before = await measured()
  const startedAt = performance.now()
  await first.release()
  await Promise.all(served)
  const tookMs = performance.now() - startedAt
  const after = await measured()
  const inOrder = tokens.every((token, index) => index === 0 || token > (tokens[index - 1] as bigint))
  console.log('\n100 waiters of one process on one key')
  figure('time of one hand-off', `${(tookMs / 100).toFixed(2)} ms`)
  figure('served in order', inOrder ? 'yes' : 'NO')
  return [before, after]
}
