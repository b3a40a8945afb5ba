/**
 * `holdfast/etcd`: locks on etcd, 3.4 or newer. No client has to be installed: ours is in ../../clients/etcd/.
 *
 * Read in this order:
 *
 *     names.ts, codec.ts                           what is stored, and how it is read
 *     engine.ts                                    the verbs; leaving is here
 *     context.ts                                   what they work with
 *     enter.ts, renew.ts, entry-markers.ts         what is decided
 *     leases.ts                                    what keeps entries alive, and when that is believed
 *     own-entries.ts                               what this engine object knows of its own entries
 *     listen.ts, observers.ts                      how a waiter hears that it holds, and an observer of a change
 *     store.ts, record-codec.ts, record-leases.ts  records beside the lines
 *     errors.ts                                    what an error means for the core
 *     inspect.ts, diagnose.ts                      looking at lines, and `holdfast doctor`
 */
import { readFileSync } from 'node:fs'
import { EtcdClient, type EtcdUser } from '../../clients/etcd/client.ts'
import { parseEtcdUrl } from '../../clients/etcd/url.ts'
import type { Endpoint, TlsCertificates } from '../../clients/shared/endpoint.ts'
import { type Clock, systemClock } from '../../core/clock.ts'
import { checkOptions, type OptionNames, withoutUndefined } from '../../core/options.ts'
import { showEngine } from '../../core/show.ts'
import { EtcdEngine } from './engine.ts'

export type { EtcdUser } from '../../clients/etcd/client.ts'
export type { Endpoint, TlsCertificates } from '../../clients/shared/endpoint.ts'
export type { EtcdEngine, EtcdGuardCondition } from './engine.ts'

/** What does not depend on where the servers are. */
export interface EtcdEngineOptions {
  /** The user to log in as, where the cluster has users. */
  readonly user?: EtcdUser
  /** With TLS: `{}` for what the system trusts, or the certificates to use. */
  readonly tls?: TlsCertificates
  /** What comes before every key of ours; `holdfast/` unless given. */
  readonly prefix?: string
  /** For tests: where time comes from. */
  readonly clock?: Clock
}

/** Options of `etcd()`. */
export interface EtcdOptions extends EtcdEngineOptions {
  /** The members of the cluster, or some of them. The first that answers is used. */
  readonly endpoints: readonly Endpoint[]
}

const ENGINE_OPTIONS: OptionNames<EtcdEngineOptions> = { user: true, tls: true, prefix: true, clock: true }
const OPTIONS: OptionNames<EtcdOptions> = { endpoints: true, ...ENGINE_OPTIONS }

/**
 * An engine on etcd. It connects when it is first used, and closes its connection when it is closed. By URL:
 * `openEtcd(url)`, or `connect(url)`.
 */
export function etcd(options: EtcdOptions): EtcdEngine {
  checkOptions('etcd()', options, OPTIONS)
  const { endpoints, user, tls, prefix = 'holdfast/', clock = systemClock } = options
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
  return showEngine(new EtcdEngine(client, prefix, clock))
}

/** The engine behind a URL; clients/etcd/url.ts says what one looks like. Options win over what the URL says. */
export async function openEtcd(url: string, options: EtcdEngineOptions = {}): Promise<EtcdEngine> {
  checkOptions('openEtcd()', options, ENGINE_OPTIONS)
  const { hosts, user, tls, ca, cert, key, prefix } = parseEtcdUrl(url)
  const read = (name: string, file: string | undefined): object =>
    file === undefined ? {} : { [name]: readFileSync(file) }
  const engine = etcd({
    endpoints: hosts,
    ...(user === undefined ? {} : { user }),
    ...(tls ? { tls: { ...read('ca', ca), ...read('cert', cert), ...read('key', key) } } : {}),
    ...(prefix === undefined ? {} : { prefix }),
    ...withoutUndefined(options),
  })
  return showEngine(engine, { url })
}
