/**
 * A client of our own: ioredis, loaded when it is asked for, and told not to do anything late.
 *
 * No type that users compile against may lead here: a user of node-redis has no ioredis.
 */

import { readFileSync } from 'node:fs'
import type { Cluster, Redis } from 'ioredis'
import type { Clock, Timer } from '../../core/clock.ts'
import { loadClient } from '../shared/packages.ts'
import { codeOf, ENGINE } from './errors.ts'
import { IoredisWire, prepareEvalsha } from './ioredis.ts'
import { letProcessEnd } from './let-process-end.ts'
import type { RedisTarget } from './url.ts'
import type { RedisWire } from './wire.ts'

const RETRY_FIRST_MS = 50
const RETRY_LONGEST_MS = 1000
/**
 * Each pause is so much longer than the one before: about a seventh of the outage until then. A lease that has outlived
 * an outage of half of its ttl has a sixth of the ttl left. A pause that is doubled each time could take all of it.
 */
const RETRY_GROWTH = 1.15
const CONNECT_LIMIT_MS = 5000
/** How long a connection that stands may take until commands can be sent on it. */
const HANDSHAKE_LIMIT_MS = 2000
/** How long an end that the server does not confirm is waited for. */
const DISCONNECT_LIMIT_MS = 500
/** In Cluster: how long a server that was asked may send nothing before its connection is made anew. */
const SERVER_SILENCE_MS = 2000
/** How long a sentinel may take to name the master before the next one is asked. */
const SENTINEL_LIMIT_MS = 1000
const KEEP_ALIVE_MS = 10_000

function retryMs(times: number): number {
  return Math.min(RETRY_FIRST_MS * RETRY_GROWTH ** (times - 1), RETRY_LONGEST_MS) * (0.75 + Math.random() / 2)
}

/** What is not sent at once is not sent, and what was not answered is not sent again. */
const CONNECTION = {
  connectionName: 'holdfast',
  enableOfflineQueue: false,
  autoResendUnfulfilledCommands: false,
  maxRetriesPerRequest: 0,
  connectTimeout: CONNECT_LIMIT_MS,
  disconnectTimeout: DISCONNECT_LIMIT_MS,
  keepAlive: KEEP_ALIVE_MS,
} as const

/** A connection to what a URL names. It connects by itself, and its client ends when the wire is closed. */
export async function openWire(target: RedisTarget, clock: Clock): Promise<RedisWire> {
  const [wire] = await openWires(ENGINE, [target], clock)
  return wire as RedisWire
}

/** Several, for `engine`: what goes to all of them in the same words is put into the form of the protocol once. */
export async function openWires(
  engine: string,
  targets: readonly RedisTarget[],
  clock: Clock,
): Promise<readonly RedisWire[]> {
  const ioredis = await loadIoredis(engine)
  const prepare = prepareEvalsha(ioredis.Command)
  return targets.map((target) => {
    const client = newClient(ioredis, target)
    if (client instanceof ioredis.Cluster) client.on('+node', (node: Redis) => limitHandshake(node, clock))
    else limitHandshake(client, clock)
    letProcessEnd(client)
    // In Cluster it is ioredis that looks for the keys, and sends each command where they are.
    return new IoredisWire(client, clock, client.isCluster ? { owned: true } : { owned: true, prepare })
  })
}

/**
 * ioredis waits for ever for the answers to its first commands (HELLO, AUTH, INFO). Where connections are accepted and
 * nothing comes back, as behind a balancer whose server is gone, the client would stay away though the server is back.
 */
function limitHandshake(client: Redis, clock: Clock): void {
  let limit: Timer | undefined
  client.on('connect', () => {
    limit?.cancel()
    limit = clock.timer(HANDSHAKE_LIMIT_MS, () => client.disconnect(true))
  })
  for (const event of ['ready', 'close', 'end']) client.on(event, () => limit?.cancel())
}

function newClient(ioredis: Pick<typeof import('ioredis'), 'Cluster' | 'Redis'>, target: RedisTarget): Redis | Cluster {
  const [first] = target.hosts
  const { username, password, db } = target
  const tls = target.tls ? { tls: target.ca === undefined ? {} : { ca: readFileSync(target.ca) } } : {}
  const account = { ...(username === undefined ? {} : { username }), ...(password === undefined ? {} : { password }) }
  if (target.kind === 'cluster') {
    return new ioredis.Cluster([...target.hosts], {
      enableOfflineQueue: false,
      clusterRetryStrategy: retryMs,
      // What a moved slot refuses is refused soon: for that we have an answer of our own.
      maxRedirections: 6,
      retryDelayOnTryAgain: 20,
      // After the end of a connection, a call that may have been executed would be sent again.
      retryDelayOnFailover: 0,
      redisOptions: { ...CONNECTION, ...account, ...tls, socketTimeout: SERVER_SILENCE_MS },
      // Certificates name hosts, and a Cluster announces addresses.
      ...(target.tls ? { dnsLookup: (address, found) => found(null, address) } : {}),
    })
  }
  // A server that was a master and is one no longer: look for the new one.
  const reconnectOnError = (error: Error): boolean => codeOf(error) === 'READONLY'
  const common = { ...CONNECTION, ...account, ...tls, db, retryStrategy: retryMs, reconnectOnError }
  if (target.kind === 'server') return new ioredis.Redis({ ...common, ...first })
  return new ioredis.Redis({
    ...common,
    sentinels: [...target.hosts],
    name: target.name ?? '',
    sentinelRetryStrategy: retryMs,
    sentinelCommandTimeout: SENTINEL_LIMIT_MS,
    failoverDetector: true,
    enableTLSForSentinelMode: target.tls,
    ...(target.tls ? { sentinelTLS: tls.tls } : {}),
    ...(target.sentinelPassword === undefined ? {} : { sentinelPassword: target.sentinelPassword }),
  })
}

async function loadIoredis(engine: string): Promise<Pick<typeof import('ioredis'), 'Cluster' | 'Command' | 'Redis'>> {
  return await loadClient(engine, 'ioredis', () => import('ioredis'))
}
