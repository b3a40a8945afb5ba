/**
 * Who is in a line, and which lines there are. An entry counts only if a majority of servers has it: what only a few
 * servers have is an attempt that has failed, or is under way.
 */
import { globEscape } from '../../clients/redis/names.ts'
import { scanPages } from '../../clients/redis/wire.ts'
import type { LineEntry } from '../../core/engine.ts'

import { readValue, readWaiter, type ServerInspection, unusableKey } from './codec.ts'
import { majorityOf } from './quorum-decision.ts'
import type { RedlockServer } from './server.ts'

/** The servers do not store these. */
const NOT_STORED = { weight: 1, limit: 1, ageMs: null, heldMs: null } as const

/** The line, the holder first. `count` is how many servers there are. */
export function entriesIn(key: string, inspections: readonly ServerInspection[], count: number): readonly LineEntry[] {
  const most = majorityOf(count)
  const holder = holderIn(key, inspections, most)
  const waiting = new Map<string, { servers: number; entry: LineEntry }>()
  for (const { waiters } of inspections) {
    for (const { id, record, remainingMs } of waiters) {
      const known = waiting.get(id)
      if (known === undefined) waiting.set(id, { servers: 1, entry: waiterOf(id, record, remainingMs) })
      else known.servers += 1
    }
  }
  const behind = [...waiting.values()]
    .filter(({ servers, entry }) => servers >= most && entry.id !== holder?.id)
    .map(({ entry }) => entry)
  return holder === undefined ? behind : [holder, ...behind]
}

function holderIn(key: string, inspections: readonly ServerInspection[], most: number): LineEntry | undefined {
  const noLocks = inspections.filter(({ type }) => type !== 'string' && type !== 'none')
  if (noLocks.length >= most) throw unusableKey(key, { why: 'unusable', kind: 'type', detail: noLocks[0]?.type ?? '' })
  const byHolder = new Map<string, ServerInspection[]>()
  for (const inspection of inspections) {
    const { value } = inspection
    if (value === '') continue
    // An entry of ours has one id and perhaps different numbers; a stranger has the same value on each server.
    const holder = /^hfr1:([^:]*):/.exec(value)?.[1] ?? value
    byHolder.set(holder, [...(byHolder.get(holder) ?? []), inspection])
  }
  for (const group of byHolder.values()) if (group.length >= most) return holderOf(group, most)
  return undefined
}

/** `group` are the servers that have the same holder. */
function holderOf(group: readonly ServerInspection[], most: number): LineEntry {
  // It holds as long as a majority has it.
  const remaining = group.map(({ remainingMs }) => remainingMs).toSorted((a, b) => b - a)
  const last = remaining[most - 1] as number
  const remainingMs = last < 0 ? Number.POSITIVE_INFINITY : last
  const values = group.map(({ value }) => readValue(value))
  const [first] = values
  if (first === undefined) {
    const stranger = { id: '', holder: 'a program without Holdfast', token: null, ttlMs: remainingMs }
    return { ...NOT_STORED, ...stranger, state: 'held', remainingMs }
  }
  const { id, holder, ttlMs } = first
  const numbers = values.map((value) => value?.number ?? '')
  const token = numbers.find((number) => numbers.filter((other) => other === number).length >= most)
  const held = { id, holder, state: 'held', token: token === undefined ? null : BigInt(token) } as const
  return { ...NOT_STORED, ...held, ttlMs, remainingMs }
}

function waiterOf(id: string, record: string, remainingMs: number): LineEntry {
  return { ...NOT_STORED, id, ...readWaiter(record), state: 'waiting', token: null, remainingMs }
}

const QUEUE = 'hf1:redlock:queue:{'
/** What our values begin with. */
const OURS = 'hfr1:'

/**
 * The keys that begin with `prefix`, each once, in pages. All servers that can be asked are looked through, since one
 * that was away may lack some.
 */
export async function* keysOn(servers: readonly RedlockServer[], prefix: string): AsyncIterable<readonly string[]> {
  const seen = new Set<string>()
  const isNew = (key: string): boolean => key.startsWith(prefix) && !seen.has(key) && seen.add(key) !== undefined
  for (const { wire, names } of servers.filter(({ ready }) => ready)) {
    const begin = names.serverKey(prefix)
    for (const server of await wire.servers()) {
      for await (const queues of scanPages(server, `${globEscape(QUEUE + begin)}*`, 'zset')) {
        yield queues.map((queue) => names.userKey(queue.slice(QUEUE.length, -1))).filter(isNew)
      }
      for await (const serverKeys of scanPages(server, `${globEscape(begin)}*`, 'string')) {
        const values = await Promise.all(
          serverKeys.map((name) => wire.send('GETRANGE', [name.slice(wire.keyPrefix.length), '0', '4'])),
        )
        yield serverKeys
          .filter((_, index) => values[index] === OURS)
          .map((name) => names.userKey(name))
          .filter(isNew)
      }
    }
  }
}
