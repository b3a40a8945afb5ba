/** What the calls of the engine have in common: what they work with, and what a renewal is told besides its places. */
import type { EtcdCallOptions, EtcdClient } from '../../clients/etcd/client.ts'
import type { Clock } from '../../core/clock.ts'
import type { EngineCall } from '../../core/failed-call.ts'
import type { EtcdLeases } from './leases.ts'
import type { EvictionWatcher, LineWatcher } from './listen.ts'
import type { EtcdNames } from './names.ts'
import type { EtcdOwnEntries } from './own-entries.ts'

export interface EtcdContext {
  readonly client: EtcdClient
  readonly clock: Clock
  readonly names: EtcdNames
  readonly leases: EtcdLeases
  readonly entries: EtcdOwnEntries
  readonly watcher: LineWatcher
  readonly evictions: EvictionWatcher
}

/** How a renewal is made. */
export interface RenewOptions extends EtcdCallOptions {
  /** What the core has called: an enter renews entries that are in their lines already. */
  readonly call: EngineCall
}
