/**
 * What takes an entry from its process: an eviction, or a release for later.
 *
 * ZooKeeper lets a node run out only with its session. So what is to run out by itself is created by a session of its
 * own, which is then abandoned: its connection is closed, and the server ends it after its time.
 *
 * *Evicted by expiry*: the data of the entry says so. Its process watches it, answers renewals with `gone`, and takes
 * it out when its work has ended, or after a ttl. *Evicted at once*, or while it waited: the entry is deleted, and in
 * the same step a node beside it is created that says so, for as long as the entry would have lived.
 *
 * *Released for later*: the entry is moved there (move-entry.ts).
 */
import { hasCode } from '../../clients/zookeeper/errors.ts'
import type { ZooKeeperSession } from '../../clients/zookeeper/session.ts'
import type { Place, Standing } from '../../core/engine.ts'
import type { ZooKeeperContext } from './class-session.ts'
import type { ClassSessions } from './class-sessions.ts'
import { findEntry, readEntryData, tokenOf, writeData } from './codec.ts'
import { notTold, ttlTooLong, unsettled } from './errors.ts'
import { moveSteps } from './move-entry.ts'

/** How often a change is tried that other clients get in the way of. */
const TRIES = 10
const GONE: Standing = { state: 'gone', why: 'unknown' }
const EVICTED: Standing = { state: 'gone', why: 'evicted' }

export class EntryRemovals {
  readonly #context: ZooKeeperContext
  readonly #sessions: ClassSessions

  constructor(context: ZooKeeperContext, sessions: ClassSessions) {
    this.#context = context
    this.#sessions = sessions
  }

  /** Remove the entry of any client; false if it is not there. */
  async evict(key: string, token: bigint, how: 'expire' | 'now'): Promise<boolean> {
    const session = await this.#sessions.any('evict')
    const { names } = this.#context
    for (let attempt = 1; attempt <= TRIES; attempt += 1) {
      const view = await session.lines.readNow(key)
      const nodes = await Promise.all(
        (view?.entries ?? []).map(({ name }) => session.zk.getData(names.entry(key, name)).catch(ignoreNoNode)),
      )
      const place = nodes.findIndex(
        (node) => node !== undefined && tokenOf(readEntryData(node.data), node.stat) === token,
      )
      const [node, entry] = [nodes[place], view?.entries[place]]
      if (node === undefined || entry === undefined || view === undefined) return false
      const path = names.entry(key, entry.name)
      const stored = readEntryData(node.data)
      const { version } = node.stat
      try {
        if (how === 'expire' && place < view.held) {
          if (entry.foreign === true) throw notTold(path)
          if (!stored.evicted) await session.zk.setData(path, writeData({ ...stored, evicted: true }), version)
        } else {
          await this.#remove(key, entry.id, path, stored.ttlMs || session.zk.timeoutMs)
        }
        return true
      } catch (error) {
        if (hasCode(error, 'noNode')) return false
        if (!hasCode(error, 'badVersion')) throw error
      }
    }
    throw unsettled('evict')
  }

  /** Delete the entry, and put a marker for a while that says it was evicted. */
  async #remove(key: string, id: string, path: string, forMs: number): Promise<void> {
    const { names, acl } = this.#context
    await this.#shortly(forMs, async (session) => {
      const marker = { path: names.evicted(key, id), data: Buffer.alloc(0), mode: 'ephemeral' as const, acl }
      try {
        await session.multi([{ delete: { path, version: -1 } }, { create: marker }])
      } catch (error) {
        // The marker of an earlier eviction is still there, and nothing was deleted: delete the entry alone.
        if (!hasCode(error, 'nodeExists')) throw error
        await session.delete(path)
      }
    })
  }

  /** Let the entry stand for its ttl from now on, without this process. */
  async outlive(place: Place): Promise<Standing> {
    const { key, id, ttlMs } = place
    const { names, acl } = this.#context
    const session = this.#sessions.find(id) ?? (await this.#sessions.any('renew'))
    for (let attempt = 1; attempt <= TRIES; attempt += 1) {
      const view = await session.lines.readNow(key)
      if (view?.evicted.has(id) === true) return EVICTED
      const found = view === undefined ? undefined : findEntry(view, id)
      if (view === undefined || found === undefined) return GONE
      const path = names.entry(key, found.entry.name)
      const node = await session.zk.getData(path).catch(ignoreNoNode)
      if (node === undefined) continue
      const stored = readEntryData(node.data)
      if (stored.evicted) return EVICTED
      const token = tokenOf(stored, node.stat)
      const done = await this.#shortly(ttlMs, async (short) => {
        if (short.timeoutMs < ttlMs) throw ttlTooLong(ttlMs, short.timeoutMs)
        const data = writeData({ ...stored, ttlMs: short.timeoutMs, token, outlives: true })
        try {
          await short.multi(moveSteps({ path, version: node.stat.version, data, acl }))
          return true
        } catch (error) {
          if (hasCode(error, 'noNode') || hasCode(error, 'badVersion')) return false
          throw error
        }
      })
      if (!done) continue
      // Not before: what could not be moved is deleted by its session, when it is not asked for any more.
      session.forget(id)
      // Waiters of this process watch it from now on, as they do those of others.
      session.waiters.changed(key)
      if (found.ahead < view.held) return { state: 'held', token, heldForMs: ttlMs }
      return { state: 'waiting', ahead: found.ahead, livesForMs: ttlMs }
    }
    throw unsettled('renew')
  }

  /** Do something in a session that runs out after `forMs`; or that ends at once, should it fail. */
  async #shortly<Value>(forMs: number, work: (session: ZooKeeperSession) => Promise<Value>): Promise<Value> {
    const session = await this.#sessions.openShort(forMs)
    try {
      const value = await work(session)
      session.abandon()
      return value
    } catch (error) {
      await session.close()
      throw error
    }
  }
}

function ignoreNoNode(error: unknown): undefined {
  if (!hasCode(error, 'noNode')) throw error
  return undefined
}
