/**
 * What the types accept and refuse. Nothing here runs: `tsc` is the test. A line after `@ts-expect-error` has to be an
 * error, or else the compiler complains of the comment; this is the only file in which that comment is allowed.
 */

import type { Engine, Standing } from '../src/engine.ts'
import { Locked, Once } from '../src/frameworks/nest/index.ts'
import {
  type AcquireOptions,
  type AllLease,
  type ChannelMessages,
  type Clock,
  channels,
  createLocks,
  type Duration,
  EngineError,
  type Lease,
  type Lock,
  type Locks,
  type LossReason,
  type Semaphore,
} from '../src/index.ts'
import { type FakeClock, fakeClock, memory } from '../src/testing.ts'

const clock: FakeClock = fakeClock()
const engine: Engine = memory({ clock })
const locks: Locks = createLocks(engine, { ttl: '30s', holder: 'api-7', callTimeout: 5000, checkOrder: true, clock })

/** Durations: milliseconds, or a number with its unit. */
export const durations: readonly Duration[] = [0, 1500, '250ms', '30s', '5m', '1h', '0.5s']
// @ts-expect-error a number without a unit is no string duration
export const withoutUnit: Duration = '30'
// @ts-expect-error days are no unit
export const days: Duration = '5d'
// @ts-expect-error words are no durations
export const word: Duration = 'soon'
// @ts-expect-error bigint milliseconds are none
export const big: Duration = 30n

/** Never called: what is in it only has to compile. */
export async function compiles(signal: AbortSignal): Promise<void> {
  const mutex = locks.mutex('a', { ttl: '1m', reentrant: true })
  mutex satisfies Lock
  const lease = await mutex.acquire({ wait: '5s', signal })
  lease satisfies Lease
  lease.token satisfies bigint | null
  await mutex.acquire({ within: lease })
  // @ts-expect-error a mutex has no weights
  await mutex.acquire({ weight: 2 })
  // @ts-expect-error a wait is a duration
  await mutex.acquire({ wait: 'forever' })
  // @ts-expect-error one try has nothing to wait for
  await mutex.tryAcquire({ wait: '5s' })
  // @ts-expect-error one try may not get it
  await (await mutex.tryAcquire()).release()
  // @ts-expect-error tokens are bigints: comparing them as numbers would round
  lease.token satisfies number | null
  // @ts-expect-error a controller is not its signal
  await mutex.acquire({ signal: new AbortController() })

  const semaphore: Semaphore = locks.semaphore('gpu', 4)
  await semaphore.acquire({ weight: 2 })
  semaphore.limit satisfies number
  // @ts-expect-error parts of a semaphore do not nest
  await semaphore.acquire({ within: lease })
  // @ts-expect-error a semaphore is not reentrant
  locks.semaphore('gpu', 4, { reentrant: true })
  // @ts-expect-error a semaphore needs its limit
  locks.semaphore('gpu')

  const { read, write } = locks.rw('doc', { reentrant: true })
  await read.using(() => write.tryAcquire())
  // @ts-expect-error readers have no weights
  await read.acquire({ weight: 2 })

  const all = locks.all([mutex, semaphore, read, write])
  all satisfies Lock<AcquireOptions, AllLease>
  const both = await all.acquire({ wait: 100 })
  both.tokens satisfies ReadonlyMap<string, bigint | null>
  // @ts-expect-error a lease of one key has a token, not tokens
  lease.tokens satisfies unknown
  // @ts-expect-error the parts of all are not weighted
  await all.acquire({ weight: 2 })

  const result = await mutex.using(async ({ token }) => ({ token, done: true }))
  result.done satisfies boolean
  const plain = await mutex.using({ wait: '1s' }, () => 42)
  plain satisfies number
  // @ts-expect-error the work comes last
  await mutex.using(() => 42, { wait: '1s' })
  // @ts-expect-error there has to be work
  await mutex.using({ wait: '1s' })

  const election = locks.election('jobs', { ttl: '10s' })
  const term = await election.lead({ again: true, signal }, ({ token }) => token)
  term satisfies bigint | null
  for await (const leader of election.observe({ signal })) leader satisfies { holder: string } | undefined
  // @ts-expect-error an election is not reentrant
  locks.election('jobs', { reentrant: true })

  await locks.evict('a', 7n, 'now')
  // @ts-expect-error a token is a bigint
  await locks.evict('a', '7')
  // @ts-expect-error there are two ways only
  await locks.evict('a', 7n, 'later')
  ;(await lease.release({ after: '1m' })) satisfies boolean

  await using block = await mutex.acquire()
  block.held satisfies boolean
  // @ts-expect-error what a lease says of itself cannot be set
  block.held = true
}

/** An engine's standings are told apart by their state. */
export function standing(each: Standing): string {
  switch (each.state) {
    case 'held':
      return `${each.token} ${each.heldForMs}`
    case 'waiting':
    case 'busy':
      // @ts-expect-error a waiter has no token yet
      return `${each.ahead} ${each.token}`
    case 'gone':
      return each.why
    case 'failed':
      return each.error.code
  }
}

/** Errors are told apart by their class. */
export function explained(error: unknown): string {
  if (error instanceof EngineError)
    return `${error.outcome satisfies 'not-applied' | 'unknown'} ${error.code satisfies 'ENGINE' | 'CLOSED'}`
  return 'something else'
}

/** Channels know their messages. */
channels.loss.subscribe(({ operation, token, why }) => void [operation.key, token, why satisfies LossReason])
export const told = (message: ChannelMessages['holdfast:grant']): number => message.waitedMs
channels.grant.subscribe(told)
// @ts-expect-error a grant has no reason
channels.grant.subscribe(({ why }) => why)
// @ts-expect-error there is no such event
channels.grants.subscribe(told)

/** Decorators of Nest are made before they see their method: arguments may be anything, or what the user says. */
export const decorators: readonly unknown[] = [
  Locked((order) => order.id),
  Locked((order: { id: string }, at: number) => `${order.id}:${at}`),
  // @ts-expect-error a key is a string
  Locked((order: { id: number }) => order.id),
  Once('{0.key}', { fingerprint: (payment) => payment.body, scope: (payment) => payment.tenant }),
  Once((payment: { key: string }) => payment.key, { fingerprint: (payment: { cents: number }) => payment.cents }),
]

// @ts-expect-error a clock needs all three
export const halfClock: Clock = { now: () => 0 }
// @ts-expect-error createLocks takes an engine; a URL is for connect
export const byUrl: Locks = createLocks('redis://localhost')
