/**
 * Moving an entry to another session. It is deleted and created again in one step, by the same name, so that it keeps
 * its place.
 *
 * It is also written, before it is deleted. A watch tells once, and tells the first of these: that the entry has
 * changed. A waiter that heard of a deletion would take it that the entry has gone (listen.ts).
 */
import type { MultiStep, NodeAcl } from '../../clients/zookeeper/messages.ts'

export interface MovedEntry {
  readonly path: string
  /** As it was read. */
  readonly version: number
  readonly data: Buffer
  readonly acl: NodeAcl
}

/** To be done in the session that the entry is to live by. */
export function moveSteps({ path, version, data, acl }: MovedEntry): readonly MultiStep[] {
  return [
    { setData: { path, data, version } },
    { delete: { path, version: -1 } },
    { create: { path, data, mode: 'ephemeral', acl } },
  ]
}
