/**
 * `holdfast/redis`: locks on the Redis or Valkey you already run: one server, Sentinel or Cluster.
 *
 * Read in this order:
 *
 *     lua/line.lua                                what is stored
 *     lua/enter.lua, renew.lua, leave.lua         what is decided
 *     engine.ts                                   the verbs, each one call of a script for a whole batch
 *     codec.ts                                    the arguments of such a call, its answer, and messages
 *     slots.ts, names.ts                          Cluster: one call for each slot, and names for it
 *     listen.ts, ../shared/news-channel.ts        how a waiter hears that it holds
 *     observers.ts                                how an observer hears of a change
 *     replica-confirmation.ts                     grants that survive a fail-over
 *     store.ts, record-codec.ts, recent-reads.ts  records beside the lines
 *     draw-codec.ts, pool-codec.ts                draws and pools: what records are for
 *     ../../clients/redis/script-caller.ts        the way of a script to the server
 *     ../../clients/redis/                        your client
 *     inspect.ts                                  looking at lines
 *     diagnose.ts, warnings.ts                    `holdfast doctor`, and the same as an event
 */
import { openWire } from '../../clients/redis/connect.ts'
import { type RedisClient, type RedisSubscriber, wireOf } from '../../clients/redis/detect.ts'
import { checkPrefix, DEFAULT_PREFIX } from '../../clients/redis/names.ts'
import { parseUrl } from '../../clients/redis/url.ts'
import type { RedisWire } from '../../clients/redis/wire.ts'
import { type Clock, systemChance, systemClock } from '../../core/clock.ts'
import { checkOptions, type OptionNames, withoutUndefined } from '../../core/options.ts'
import { showEngine } from '../../core/show.ts'
import { RedisEngine } from './engine.ts'
import type { Durability } from './replica-confirmation.ts'

export type { RedisClient, RedisSubscriber } from '../../clients/redis/detect.ts'
export type { RedisEngine } from './engine.ts'
export type { Durability } from './replica-confirmation.ts'

/** The options that do not depend on how the client was had. */
export interface RedisEngineOptions {
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

/** Options of `redis()`. */
export interface RedisOptions extends RedisEngineOptions {
  /** Your client: of ioredis, node-redis (`redis`) or @valkey/valkey-glide. You connect it and close it. */
  readonly client: RedisClient
  /**
   * A second client to listen with, for clients that cannot be duplicated (pools of node-redis, valkey-glide). Without
   * it, waiters poll.
   */
  readonly subscriber?: RedisSubscriber
}

const ENGINE_OPTIONS: OptionNames<RedisEngineOptions> = { prefix: true, durability: true, clock: true }
const OPTIONS: OptionNames<RedisOptions> = { client: true, subscriber: true, ...ENGINE_OPTIONS }
const DURABILITY_OPTIONS: OptionNames<Durability> = { replicas: true, timeout: true }

/** An engine on a Redis client of yours. For one by URL: `openRedis(url)`, or `connect(url)`. */
export function redis(options: RedisOptions): RedisEngine {
  if (typeof options !== 'object' || options === null)
    throw new TypeError('redis() takes your client: redis({ client }); for a URL: await connect(url)')
  checkOptions('redis()', options, OPTIONS)
  return engineOn((clock) => wireOf(options.client, clock, options.subscriber), options)
}

/**
 * The engine behind a URL; see clients/redis/url.ts for what one looks like. It connects by itself, and closes its
 * connections when it is closed.
 */
export async function openRedis(url: string, options: RedisEngineOptions = {}): Promise<RedisEngine> {
  checkOptions('openRedis()', options, ENGINE_OPTIONS)
  const target = parseUrl(url)
  const wire = await openWire(target, options.clock ?? systemClock)
  const inUrl: RedisEngineOptions = {
    ...(target.prefix === undefined ? {} : { prefix: target.prefix }),
    ...(target.replicas === undefined ? {} : { durability: { replicas: target.replicas } }),
  }
  try {
    return engineOn(() => wire, { ...inUrl, ...withoutUndefined(options) }, url)
  } catch (error) {
    // Options that are refused leave nothing behind that goes on connecting.
    await wire.close()
    throw error
  }
}

function engineOn(makeWire: (clock: Clock) => RedisWire, options: RedisEngineOptions, url?: string): RedisEngine {
  const { prefix = DEFAULT_PREFIX, clock = systemClock, durability } = options
  checkPrefix(prefix)
  if (durability !== undefined) checkOptions('durability', durability, DURABILITY_OPTIONS)
  const engineId = systemChance.id()
  return showEngine(new RedisEngine({ wire: makeWire(clock), prefix, clock, engineId, durability }), { url })
}
