/**
 * `holdfast/etcd`: locks on etcd, 3.4 or newer. No client is needed: the way to the server is our own (transport/).
 *
 * Read in this order: names.ts and stored.ts (what is stored), entering.ts, renewing.ts and seals.ts (what is decided),
 * class-lease.ts (what keeps it alive, and when that is believed), lookout.ts (how a waiter hears), engine.ts.
 */

export type { EtcdUser } from '../../clients/etcd/client.ts'
export type { EtcdEndpoint, EtcdTls } from '../../clients/etcd/connection.ts'
export type { EtcdFinding } from './diagnose.ts'
export type { EtcdEngine, Fence, HeldLease } from './engine.ts'
export { openEtcd } from './open.ts'
export { type EtcdOptions, etcd } from './setup.ts'
