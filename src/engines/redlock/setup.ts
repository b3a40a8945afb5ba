/** The options that do not depend on how the clients were had, checked, and the engine they make. */

import { checkPrefix } from '../../clients/redis/names.ts'
import type { RedisWire } from '../../clients/redis/wire.ts'
import { type Clock, systemClock } from '../../core/clock.ts'
import { type RedlockEngine, RedlockLines } from './engine.ts'

export interface RedlockCommonOptions {
  /**
   * What comes before every key: `lock:` unless given; may be ''. Other clients of Redlock that use the same names on
   * the same servers are excluded too.
   */
  readonly prefix?: string
  /**
   * How long a server that does not answer is waited for, if the others do not decide (ms): 50 unless given. The
   * shortest ttl is four times that.
   */
  readonly timeoutMs?: number
  /** For tests: where time comes from. */
  readonly clock?: Clock
}

const DEFAULT_PREFIX = 'lock:'
const DEFAULT_TIMEOUT_MS = 50
const LEAST_SERVERS = 3

/** An even number tolerates no more failures than one fewer, and can be split in halves. */
export function checkCount(count: number): void {
  if (count >= LEAST_SERVERS && count % 2 === 1) return
  throw new RangeError(`a Redlock has an odd number of servers, ${LEAST_SERVERS} or more; got ${count}`)
}

export function engineOn(
  makeWires: (clock: Clock) => readonly RedisWire[],
  count: number,
  options: RedlockCommonOptions,
): RedlockEngine {
  const { prefix = DEFAULT_PREFIX, timeoutMs = DEFAULT_TIMEOUT_MS, clock = systemClock } = options
  checkCount(count)
  checkPrefix(prefix)
  if (!Number.isInteger(timeoutMs) || timeoutMs < 1)
    throw new RangeError(`timeoutMs must be a whole number, 1 or more; got ${timeoutMs}`)
  const wires = makeWires(clock)
  if (wires.some(({ cluster }) => cluster))
    throw new TypeError('each server of a Redlock is a server of its own, not a Cluster')
  return new RedlockLines({ wires, prefix, clock, timeoutMs })
}
