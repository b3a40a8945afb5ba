/**
 * Sweeping records that have expired, some at once: those of the slots that have ended (record-slots.ts). What has
 * expired counts as nothing from then on, so none of it is urgent.
 */
import { hasCode, wasRefused } from '../../clients/zookeeper/errors.ts'
import type { MultiStep } from '../../clients/zookeeper/messages.ts'
import type { ZooKeeperSession } from '../../clients/zookeeper/session.ts'
import type { ZooKeeperContext } from './class-session.ts'
import type { RecordLook, RecordNodes, Unreadable } from './record-nodes.ts'
import { endedSlots } from './record-slots.ts'

const NOTHING = Buffer.alloc(0)
/** How many records one sweep looks at. */
export const SWEPT_AT_ONCE = 64

/** A node in a slot that has ended, and the record of its key. */
interface Ended extends RecordLook {
  readonly key: string
  readonly slot: number
}

/** Answers how many nodes of slots were done with. */
export async function sweepRecords(
  context: ZooKeeperContext,
  nodes: RecordNodes,
  zk: ZooKeeperSession,
): Promise<number> {
  const { names } = context
  const nowMs = await nodes.now(zk)
  if (nowMs === null) return 0
  const ended: Ended[] = []
  for (const slot of endedSlots(await childrenOf(zk, names.expiringRoot), nowMs)) {
    const left = SWEPT_AT_ONCE - ended.length
    const keys = (await childrenOf(zk, names.slot(slot))).slice(0, left).map((name) => names.keyOf(name))
    const { looks } = await nodes.readAll(zk, keys)
    ended.push(...endedAmong(keys, slot, looks))
    if (ended.length === SWEPT_AT_ONCE) break
  }
  // Without a record, or put again with another slot: only the node in the slot goes.
  const others = ended.filter(({ record, slot }) => record.version === 0n || record.slot !== slot)
  const unlinked = await Promise.all(others.map((one) => isApplied(zk, unlinking(context, one))))
  const done = unlinked.filter((one) => one).length
  const over = ended.filter(isOver)
  if (over.length === 0) return done
  if (await isApplied(zk, deleting(context, over))) return done + over.length
  // One of them has changed, or may not be deleted.
  let alone = 0
  for (const { key, slot } of over) {
    const { looks } = await nodes.readAll(zk, [key])
    const [one] = endedAmong([key], slot, looks)
    if (one !== undefined && isOver(one) && (await isApplied(zk, deleting(context, [one])))) alone += 1
  }
  return done + alone
}

/** Without those that cannot be read: a newer version sweeps its own. */
function endedAmong(
  keys: readonly string[],
  slot: number,
  looks: readonly (RecordLook | Unreadable)[],
): readonly Ended[] {
  return keys.flatMap((key, index) => {
    const look = looks[index] as RecordLook | Unreadable
    return 'unreadable' in look ? [] : [{ key, slot, ...look }]
  })
}

function isOver({ record, slot }: Ended): boolean {
  return record.version > 0n && record.slot === slot && record.kind === 'nothing'
}

/** Delete records, with their nodes in slots, if none was changed or swept since. */
function deleting({ names }: ZooKeeperContext, over: readonly Ended[]): readonly MultiStep[] {
  const sweeps = over[0]?.sweeps ?? 0
  return [
    { setData: { path: names.recordSweeps, data: NOTHING, version: sweeps } },
    ...over.flatMap(({ key, slot, record }) => [
      { delete: { path: names.record(key), version: record.nodeVersion } },
      { delete: { path: names.expiring(slot, key), version: -1 } },
    ]),
  ]
}

/** Delete the node in a slot, if the record is still the one that does not need it. */
function unlinking({ names, acl }: ZooKeeperContext, { key, slot, record, sweeps }: Ended): readonly MultiStep[] {
  const path = names.record(key)
  const isSame: readonly MultiStep[] =
    record.version > 0n
      ? [
          { check: { path: names.recordSweeps, version: sweeps ?? 0 } },
          { check: { path, version: record.nodeVersion } },
        ]
      : // There is none: it can be created, and is deleted in the same step.
        [{ create: { path, data: NOTHING, mode: 'persistent', acl } }, { delete: { path, version: -1 } }]
  return [...isSame, { delete: { path: names.expiring(slot, key), version: -1 } }]
}

/** False: something has changed meanwhile. The next sweep looks at it. */
async function isApplied(zk: ZooKeeperSession, steps: readonly MultiStep[]): Promise<boolean> {
  try {
    await zk.multi(steps)
    return true
  } catch (error) {
    if (wasRefused(error)) return false
    throw error
  }
}

async function childrenOf(zk: ZooKeeperSession, path: string): Promise<readonly string[]> {
  try {
    return await zk.getChildren(path)
  } catch (error) {
    if (hasCode(error, 'noNode')) return []
    throw error
  }
}
