/** The options, checked, and the engine they make. */

import { EtcdClient, type EtcdUser } from '../../clients/etcd/client.ts'
import type { EtcdEndpoint, EtcdTls } from '../../clients/etcd/connection.ts'
import { type Clock, systemClock } from '../../core/clock.ts'
import { type EtcdEngine, EtcdLines } from './engine.ts'

export interface EtcdOptions {
  /** The members, or some of them: whichever answers is used. */
  readonly endpoints: readonly EtcdEndpoint[]
  /** Where users are known by name and password. */
  readonly user?: EtcdUser
  /** With TLS: `{}` for what the system trusts, or the certificates to use. */
  readonly tls?: EtcdTls
  /** What comes before every key of ours; `holdfast/` unless given. */
  readonly prefix?: string
  /** For tests: where time comes from. */
  readonly clock?: Clock
}

/**
 * An engine on etcd. It connects when it is first used, and closes its connection when it is closed. By URL:
 * `openEtcd(url)`, or `connect(url)`.
 */
export function etcd({ endpoints, user, tls, prefix = 'holdfast/', clock = systemClock }: EtcdOptions): EtcdEngine {
  if (endpoints.length === 0) throw new TypeError('etcd needs at least one endpoint')
  if (typeof prefix !== 'string' || prefix === '' || prefix.includes('\0') || !prefix.isWellFormed()) {
    throw new TypeError(
      `prefix must be a string of well-formed Unicode without NUL, and not empty; got ${JSON.stringify(prefix)}`,
    )
  }
  const client = new EtcdClient({
    endpoints,
    clock,
    ...(user === undefined ? {} : { user }),
    ...(tls === undefined ? {} : { tls }),
  })
  return new EtcdLines(client, prefix, clock)
}
