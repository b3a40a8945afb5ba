/**
 * Reading and changing the nodes of records:
 *
 *     /holdfast-records/keys/<key>                a record
 *     /holdfast-records/expiring/<slot>/<key>     says when it is to be swept (record-slots.ts)
 *     /holdfast-records/sweeps                    is written by every sweep that deletes records
 *
 * **What a change compares.** A server compares how often a node was changed, and that begins anew when a node is
 * deleted and created. So a change that was made from an old look could find the same number, and overwrite another
 * record. Only sweeps delete records. So a change also compares that no sweep has come since its look.
 *
 * **What time it is.** The servers tell it of a node that was written. So one is created, written and deleted in one
 * step, and what is read right behind it is no older: one round trip.
 */
import { hasCode } from '../../clients/zookeeper/errors.ts'
import type { MultiStep } from '../../clients/zookeeper/messages.ts'
import type { ZooKeeperSession } from '../../clients/zookeeper/session.ts'
import { EngineError } from '../../core/errors.ts'
import type { ZooKeeperContext } from './class-session.ts'
import { noChroot } from './errors.ts'
import { pathsTo } from './names.ts'
import { asOf, NO_RECORD, type RecordContent, readRecord, writeRecord, type ZooKeeperRecord } from './record-codec.ts'
import { settled } from './request-results.ts'

const NOTHING = Buffer.alloc(0)

/** A record as it was when it was looked at; and what a change has to compare, beside the record itself. */
export interface RecordLook {
  readonly record: ZooKeeperRecord
  /** How many sweeps there were before it was read. Undefined: there are no records at all. */
  readonly sweeps: number | undefined
}

/** A newer version, or another program, has put what is there. */
export interface Unreadable {
  readonly unreadable: EngineError
}

/** What else is looked at in the same round trip. */
export interface BesideRecord {
  /** The path of an entry. */
  readonly entry?: string | undefined
  /** The line of the key. */
  readonly line?: boolean
}

/**
 * Whether the node in the slot of a record is there. `kept`: by a record in the same slot, whose version is compared.
 * `seen`: left by an earlier record. A sweep may take it away.
 */
export type InSlot = 'missing' | 'seen' | 'kept'

/** `none`: the line has no node. */
export type LineState = 'has entries' | 'is empty' | 'none'

export interface RecordRead extends RecordLook {
  /** By the clock of the servers. Null: they do not tell it, and there are no records at all. */
  readonly nowMs: number | null
  readonly hasEntry: boolean
  readonly line: LineState
}

export class RecordNodes {
  readonly #context: ZooKeeperContext

  constructor(context: ZooKeeperContext) {
    this.#context = context
  }

  /** What time it is. What is read behind it, on the same session, is no older. Null: the server does not tell us. */
  async now(zk: ZooKeeperSession): Promise<number | null> {
    const told = await this.#timeIn(zk, this.#context.names.recordRoot)
    if (told !== null) return told
    // There are no records at all. It may be that this user can create nothing elsewhere.
    return await this.#timeIn(zk, '').catch((error: unknown) => {
      if (hasCode(error, 'noAuth')) return null
      throw error
    })
  }

  /** The server's time, read by writing a node below `parent`. Null: `parent` is not there. */
  async #timeIn(zk: ZooKeeperSession, parent: string): Promise<number | null> {
    const path = `${parent}/holdfast-now`
    const steps: readonly MultiStep[] = [
      { create: { path, data: NOTHING, mode: 'ephemeral', acl: this.#context.acl } },
      { setData: { path, data: NOTHING, version: -1 } },
      { delete: { path, version: -1 } },
    ]
    try {
      return (await zk.multiStat(steps, 1)).mtimeMs
    } catch (error) {
      if (hasCode(error, 'noNode')) return null
      throw error
    }
  }

  /** Several records, in one round trip. One that cannot be read does not hide the others. */
  async readAll(
    zk: ZooKeeperSession,
    keys: readonly string[],
  ): Promise<{ readonly nowMs: number | null; readonly looks: readonly (RecordLook | Unreadable)[] }> {
    const telling = this.now(zk)
    const counting = this.#sweeps(zk)
    const reading = Promise.all(keys.map((key) => this.#record(zk, key)))
    const [nowMs, sweeps, records] = await Promise.all([telling, counting, reading])
    const look = (record: ZooKeeperRecord | Unreadable): RecordLook | Unreadable =>
      'unreadable' in record ? record : { record: asOf(record, nowMs ?? 0), sweeps }
    return { nowMs, looks: records.map(look) }
  }

  /** A record and what is beside it, in one round trip. */
  async read(zk: ZooKeeperSession, key: string, { entry, line }: BesideRecord): Promise<RecordRead> {
    const reading = this.readAll(zk, [key])
    const entering = entry === undefined ? undefined : zk.exists(entry)
    const lining = line === true ? this.#line(zk, key) : undefined
    const [{ nowMs, looks }, stat, state] = await Promise.all([reading, entering, lining])
    const look = looks[0] as RecordLook | Unreadable
    if ('unreadable' in look) throw look.unreadable
    return {
      ...look,
      nowMs,
      hasEntry: entry === undefined || stat !== undefined,
      line: state ?? 'has entries',
    }
  }

  /** The steps that make a change, if nothing has changed since the look; and which of them tells its number. */
  change(
    key: string,
    { record, sweeps }: RecordLook,
    content: RecordContent,
    { entry, line, inSlot }: { entry: string | undefined; line: LineState; inSlot: InSlot },
  ): { readonly steps: readonly MultiStep[]; readonly told: number; readonly index: number } {
    const { names, acl } = this.#context
    const path = names.record(key)
    const steps: MultiStep[] = []
    const create = (made: string): MultiStep => ({ create: { path: made, data: NOTHING, mode: 'persistent', acl } })
    if (entry !== undefined) steps.push({ check: { path: entry, version: -1 } })
    // The line is still empty: what has no children can be deleted.
    if (line === 'none') steps.push(create(names.line(key)))
    if (line !== 'has entries') steps.push({ delete: { path: names.line(key), version: -1 } })
    const isNew = record.version === 0n
    if (isNew) steps.push(create(path))
    else steps.push({ check: { path: names.recordSweeps, version: sweeps ?? 0 } })
    const told = steps.length
    steps.push({ setData: { path, data: writeRecord(content), version: isNew ? 0 : record.nodeVersion } })
    const index = steps.length
    const expiring = names.expiring(content.slot, key)
    if (content.slot !== 0 && inSlot === 'missing') steps.push(create(expiring))
    if (content.slot !== 0 && inSlot === 'seen') steps.push({ check: { path: expiring, version: -1 } })
    return { steps, told, index }
  }

  /** Create what has to be there before a record is put. */
  async createParents(zk: ZooKeeperSession, slot: number): Promise<void> {
    const { names, acl, servers } = this.#context
    const containers = new Set([
      ...pathsTo(names.base),
      ...pathsTo(names.records),
      ...(slot === 0 ? [] : pathsTo(names.slot(slot))),
    ])
    for (const path of containers) void settled(zk.create({ path, data: NOTHING, mode: 'container', acl }))
    // It stays: should it go, numbers would begin anew. Without what is above it, it cannot be created.
    const made = await settled(zk.create({ path: names.recordSweeps, data: NOTHING, mode: 'persistent', acl }))
    if (!('error' in made) || hasCode(made.error, 'nodeExists')) return
    throw hasCode(made.error, 'noNode') && servers.chroot !== '' ? noChroot(servers.chroot) : made.error
  }

  async #sweeps(zk: ZooKeeperSession): Promise<number | undefined> {
    return (await zk.exists(this.#context.names.recordSweeps))?.version
  }

  async #record(zk: ZooKeeperSession, key: string): Promise<ZooKeeperRecord | Unreadable> {
    const path = this.#context.names.record(key)
    try {
      return readRecord(path, await zk.getData(path))
    } catch (error) {
      if (hasCode(error, 'noNode')) return NO_RECORD
      if (error instanceof EngineError) return { unreadable: error }
      throw error
    }
  }

  async #line(zk: ZooKeeperSession, key: string): Promise<LineState> {
    try {
      return (await zk.getChildren(this.#context.names.line(key))).length > 0 ? 'has entries' : 'is empty'
    } catch (error) {
      if (hasCode(error, 'noNode')) return 'none'
      throw error
    }
  }
}
