/**
 * `holdfast/redlock`: one lock on several Redis servers that know nothing of each other, with a fencing token.
 *
 * Read in this order:
 *
 *     quorum-decision.ts            when a lock is granted, and with which token
 *     quorum-server.ts              what one server is asked
 *     quorum-round.ts, quorum.ts    how a majority is asked
 *     own-entries.ts                what this process knows of its entries, beyond one call
 *     lua/common.lua, lua/take.lua  what one server does
 *     codec.ts, server.ts           how a script is called
 *     outgoing-messages.ts          what is sent to a server, and what becomes of that which may stay behind there
 *     engine.ts                     the verbs of the contract
 *     listen.ts                     when a waiter tries again
 *     errors.ts                     what can go wrong with a majority
 *     inspect.ts, diagnose.ts       looking at lines, and `holdfast doctor`
 */
import { openWires } from '../../clients/redis/connect.ts'
import { type RedisClient, type RedisSubscriber, wireOf } from '../../clients/redis/detect.ts'
import { checkPrefix, DEFAULT_PREFIX } from '../../clients/redis/names.ts'
import { parseUrl } from '../../clients/redis/url.ts'
import { type Clock, systemClock } from '../../core/clock.ts'
import { type Duration, parseDuration } from '../../core/duration.ts'
import { checkOptions, type OptionNames, withoutUndefined } from '../../core/options.ts'
import { showEngine } from '../../core/show.ts'
import { RedlockEngine, type RedlockEngineSetup } from './engine.ts'
import { ENGINE } from './errors.ts'

export type { RedisClient, RedisSubscriber } from '../../clients/redis/detect.ts'
export type { RedlockEngine } from './engine.ts'

/** What does not depend on how the clients were had. */
export interface RedlockEngineOptions {
  /**
   * What comes before every key: `lock:` unless given; may be ''. Other clients of Redlock that use the same names on
   * the same servers are excluded too.
   */
  readonly prefix?: string
  /**
   * How long a server that does not answer is waited for, if the others do not decide: 50 ms unless given. The shortest
   * ttl is four times that.
   */
  readonly timeout?: Duration
  /** For tests: where time comes from. */
  readonly clock?: Clock
}

/** Options of `redlock()`. */
export interface RedlockOptions extends RedlockEngineOptions {
  /**
   * Your clients, one for each server: of ioredis, node-redis (`redis`) or @valkey/valkey-glide. An odd number of them,
   * 3 or more. You connect them and close them.
   */
  readonly clients: readonly RedisClient[]
  /**
   * Second clients to listen with, one for each server, for those that cannot be duplicated. Without them, waiters
   * poll.
   */
  readonly subscribers?: readonly RedisSubscriber[]
}

const ENGINE_OPTIONS: OptionNames<RedlockEngineOptions> = { prefix: true, timeout: true, clock: true }
const OPTIONS: OptionNames<RedlockOptions> = { clients: true, subscribers: true, ...ENGINE_OPTIONS }

const DEFAULT_TIMEOUT: Duration = '50ms'
const LEAST_SERVERS = 3
/** Several servers in one URL, each by itself. */
const SCHEMES = { redlock: { kind: 'server', several: true } } as const

/** An engine on Redis clients of yours. For one by URL: `openRedlock(url)`, or `connect(url)`. */
export function redlock(options: RedlockOptions): RedlockEngine {
  const { clients, subscribers } = options ?? {}
  if (!Array.isArray(clients))
    throw new TypeError('redlock() takes a list of Redis clients, one for each server: redlock({ clients })')
  checkOptions('redlock()', options, OPTIONS)
  if (new Set(clients).size !== clients.length)
    throw new RangeError('clients must be of different servers; one of them is there twice')
  checkCount(clients.length)
  const setup = checked(options)
  const wires = clients.map((client, index) => wireOf(client, setup.clock, subscribers?.[index]))
  if (wires.some(({ cluster }) => cluster))
    throw new TypeError('each server of a Redlock is a server of its own, not a Cluster')
  return showEngine(new RedlockEngine({ ...setup, wires }))
}

/**
 * The engine behind a URL. It connects by itself, and closes its connections when it is closed.
 *
 *     redlock://user:password@host1:6379,host2:6379,host3:6379/0?prefix=lock:&timeout=50ms
 *
 * The options in it are those of a redis URL (`prefix`, `tls`, `ca`), and `timeout`. User, password and database are
 * those of all servers.
 */
export async function openRedlock(url: string, options: RedlockEngineOptions = {}): Promise<RedlockEngine> {
  checkOptions('openRedlock()', options, ENGINE_OPTIONS)
  const { url: plain, ...timeout } = withoutTimeout(url)
  const { hosts, prefix, replicas, ...target } = parseUrl(plain, SCHEMES)
  checkCount(hosts.length)
  if (new Set(hosts.map(({ host, port }) => `${host}:${port}`)).size < hosts.length)
    throw new RangeError('a redlock URL names different servers; one of them is there twice')
  if (replicas !== undefined) throw new TypeError("unknown option 'replicas' in a redlock URL: the servers have none")
  const setup = checked({ ...(prefix === undefined ? {} : { prefix }), ...timeout, ...withoutUndefined(options) })
  const targets = hosts.map((host) => ({ ...target, kind: 'server', hosts: [host] }) as const)
  const wires = await openWires(ENGINE, targets, setup.clock)
  return showEngine(new RedlockEngine({ ...setup, wires }), { url })
}

/** An even number tolerates no more failures than one fewer, and can be split in halves. */
function checkCount(count: number): void {
  if (count >= LEAST_SERVERS && count % 2 === 1) return
  throw new RangeError(`a Redlock has an odd number of servers, ${LEAST_SERVERS} or more; got ${count}`)
}

function checked(options: RedlockEngineOptions): Omit<RedlockEngineSetup, 'wires'> {
  const { prefix = DEFAULT_PREFIX, timeout = DEFAULT_TIMEOUT, clock = systemClock } = options
  checkPrefix(prefix)
  const timeoutMs = parseDuration(timeout, 'timeout')
  if (!Number.isInteger(timeoutMs) || timeoutMs < 1)
    throw new RangeError(`timeout must be a whole number of milliseconds, 1 or more; got ${timeout}`)
  return { prefix, timeoutMs, clock }
}

/** The URL without the one option that other redis URLs do not have, and that option. */
function withoutTimeout(url: string): { readonly url: string; readonly timeout?: Duration } {
  const found = /([?&])timeout=([^&#]*)(&?)/.exec(url)
  if (found === null) return { url }
  const [whole, before, text = '', after] = found
  const timeout = /^\d+$/.test(text) ? Number(text) : (text as Duration)
  return { url: url.replace(whole, after === '' ? '' : (before ?? '')), timeout }
}
