/** The options that do not depend on how the client was had, checked, and the engine they make. */

import { checkPrefix } from '../../clients/redis/names.ts'
import type { RedisWire } from '../../clients/redis/wire.ts'
import { type Clock, systemChance, systemClock } from '../../core/clock.ts'
import type { Durability } from './durability.ts'
import { type RedisEngine, RedisLines } from './engine.ts'

export interface CommonOptions {
  /**
   * What comes before every key: `lock:` unless given; may be ''. A program that takes `lock:order:42` by hand, with
   * `SET ... NX PX`, and Holdfast with the key `order:42` exclude each other.
   */
  readonly prefix?: string
  /**
   * Have every grant and every renewal confirmed by replicas before it is believed: a fail-over to one of them does not
   * lose it. One more round trip. Refused unless they are a majority; see the page on what it cannot promise.
   */
  readonly durability?: Durability
  /** For tests: where time comes from. */
  readonly clock?: Clock
}

const DEFAULT_PREFIX = 'lock:'

export function engineOn(makeWire: (clock: Clock) => RedisWire, options: CommonOptions): RedisEngine {
  const { prefix = DEFAULT_PREFIX, clock = systemClock, durability } = options
  checkPrefix(prefix)
  return new RedisLines({ wire: makeWire(clock), prefix, clock, client: systemChance.id(), durability })
}
