/**
 * A client of our own: ioredis, loaded when it is asked for, and told not to do anything late.
 *
 * Nothing that users compile against may lead here: not everybody has ioredis.
 */

import { readFileSync } from 'node:fs'
import type { Cluster, Redis } from 'ioredis'
import { loadPackage } from '../shared/drivers.ts'
import { codeOf, ENGINE } from './errors.ts'
import type { Target } from './url.ts'

const RETRY_FIRST_MS = 50
const RETRY_LONGEST_MS = 1000
const CONNECT_LIMIT_MS = 5000
const KEEP_ALIVE_MS = 10_000

function retryMs(times: number): number {
  return Math.min(RETRY_FIRST_MS * 2 ** (times - 1), RETRY_LONGEST_MS) * (0.75 + Math.random() / 2)
}

/** What is not sent at once is not sent, and what was not answered is not sent again. */
const CONNECTION = {
  connectionName: 'holdfast',
  enableOfflineQueue: false,
  autoResendUnfulfilledCommands: false,
  maxRetriesPerRequest: 0,
  connectTimeout: CONNECT_LIMIT_MS,
  keepAlive: KEEP_ALIVE_MS,
} as const

export async function makeClient(target: Target): Promise<Redis | Cluster> {
  const ioredis = await loadIoredis()
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
      redisOptions: { ...CONNECTION, ...account, ...tls },
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
    failoverDetector: true,
    enableTLSForSentinelMode: target.tls,
    ...(target.tls ? { sentinelTLS: tls.tls } : {}),
    ...(target.sentinelPassword === undefined ? {} : { sentinelPassword: target.sentinelPassword }),
  })
}

export async function loadIoredis(): Promise<Pick<typeof import('ioredis'), 'Cluster' | 'Command' | 'Redis'>> {
  return await loadPackage(ENGINE, 'ioredis', () => import('ioredis'))
}
