/**
 * `holdfast/zookeeper`: locks on ZooKeeper, 3.5 or newer. No client has to be installed: ours is in
 * ../../clients/zookeeper/.
 *
 * Read in this order:
 *
 *     names.ts, codec.ts                          what is stored
 *     line-reader.ts                              who holds
 *     class-session.ts, class-sessions.ts         what keeps entries alive
 *     own-entries.ts                              what this process knows of its entries
 *     engine.ts                                   the verbs
 *     enter.ts, known-lines.ts                    entering, in one round trip where the line is known
 *     renew.ts, leave.ts                          renewing and leaving
 *     removals.ts, move-entry.ts, deletions.ts    taking an entry from its process, and deleting for certain
 *     request-results.ts                          what became of one request of several
 *     listen.ts, observers.ts                     how a waiter hears that it holds, and an observer of a change
 *     store.ts, record-nodes.ts, record-codec.ts  records beside the lines
 *     record-slots.ts, expired-records.ts         how records that have expired are swept
 *     errors.ts                                   what an error means for the core
 *     inspect.ts, diagnose.ts                     looking at lines, and `holdfast doctor`
 */
import { readFileSync } from 'node:fs'
import type { Endpoint, TlsCertificates } from '../../clients/shared/endpoint.ts'
import type { ZooKeeperAuth } from '../../clients/zookeeper/session-connection.ts'
import { chrootOf, parseZooKeeperUrl } from '../../clients/zookeeper/url.ts'
import { type Clock, systemClock } from '../../core/clock.ts'
import { checkOptions, type OptionNames, withoutUndefined } from '../../core/options.ts'
import { showEngine } from '../../core/show.ts'
import { ZooKeeperEngine } from './engine.ts'
import { LAYOUTS, type ZooKeeperLayout } from './names.ts'

export type { Endpoint, TlsCertificates } from '../../clients/shared/endpoint.ts'
export type { ZooKeeperAuth } from '../../clients/zookeeper/session-connection.ts'
export type { ZooKeeperEngine, ZooKeeperGuardCondition } from './engine.ts'
export type { ZooKeeperLayout } from './names.ts'

/** What does not depend on where the servers are. */
export interface ZooKeeperEngineOptions {
  /** The node that counts as `/` for this client. It has to exist. */
  readonly chroot?: string
  /** The node under which lines are; `/holdfast` unless given. It is created when it is first needed. */
  readonly path?: string
  /**
   * Whose locks on the same node are excluded, beside our own: those of `kazoo`, unless given, or of `curator`
   * (`InterProcessMutex`). The same for all processes that use this path.
   */
  readonly layout?: ZooKeeperLayout
  /** Who we are. Then only the same user may touch the nodes that we create. Unless given, every client may. */
  readonly auth?: ZooKeeperAuth
  /** With TLS: `{}` for what the system trusts, or the certificates to use. */
  readonly tls?: TlsCertificates
  /** For tests: where time comes from. */
  readonly clock?: Clock
}

/** Options of `zookeeper()`. */
export interface ZooKeeperOptions extends ZooKeeperEngineOptions {
  /** The servers of the ensemble, or some of them. They are tried in an order of chance. */
  readonly endpoints: readonly Endpoint[]
}

const ENGINE_OPTIONS: OptionNames<ZooKeeperEngineOptions> = {
  chroot: true,
  path: true,
  layout: true,
  auth: true,
  tls: true,
  clock: true,
}
const OPTIONS: OptionNames<ZooKeeperOptions> = { endpoints: true, ...ENGINE_OPTIONS }

/**
 * An engine on ZooKeeper. It connects when it is first used, and ends its sessions when it is closed. By URL:
 * `openZooKeeper(url)`, or `connect(url)`.
 */
export function zookeeper(options: ZooKeeperOptions): ZooKeeperEngine {
  checkOptions('zookeeper()', options, OPTIONS)
  const { endpoints, chroot = '', path = '/holdfast', layout = 'kazoo', auth, tls, clock = systemClock } = options
  if (endpoints.length === 0) throw new TypeError('ZooKeeper needs at least one endpoint')
  const base = chrootOf(path)
  if (base === '' || base === '/zookeeper')
    throw new TypeError(`path must name a node for the locks, such as /holdfast; got '${path}'`)
  if (!LAYOUTS.includes(layout)) throw new TypeError(`layout is ${LAYOUTS.join(' or ')}; got '${layout}'`)
  const servers = { endpoints, chroot: chrootOf(chroot), auth, tls }
  const acl = auth === undefined ? 'open' : 'creator'
  return showEngine(new ZooKeeperEngine(servers, { path: base, layout, acl, clock }))
}

/** The engine behind a URL; clients/zookeeper/url.ts says what one looks like. Options win over what the URL says. */
export async function openZooKeeper(url: string, options: ZooKeeperEngineOptions = {}): Promise<ZooKeeperEngine> {
  checkOptions('openZooKeeper()', options, ENGINE_OPTIONS)
  const { hosts, chroot, auth, tls, ca, cert, key, path, layout } = parseZooKeeperUrl(url)
  const read = (name: string, file: string | undefined): object =>
    file === undefined ? {} : { [name]: readFileSync(file) }
  const engine = zookeeper({
    endpoints: hosts,
    chroot,
    ...(auth === undefined ? {} : { auth }),
    ...(tls ? { tls: { ...read('ca', ca), ...read('cert', cert), ...read('key', key) } } : {}),
    ...(path === undefined ? {} : { path }),
    ...(layout === undefined ? {} : { layout: layout as ZooKeeperLayout }),
    ...withoutUndefined(options),
  })
  return showEngine(engine, { url })
}
