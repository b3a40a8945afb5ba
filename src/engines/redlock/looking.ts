/**
 * Who is in a line, as a majority sees it. Everything counts only if a majority of servers says so: a key on a few of
 * them is an attempt that has failed, or is under way.
 */
import type { CallLimits } from '../../clients/shared/call-limits.ts'
import type { Timer } from '../../core/clock.ts'
import type { LineEntry } from '../../core/engine.ts'
import { unanswered, unusable } from './errors.ts'
import type { ServerNode } from './server.ts'
import { majorityOf, summaryOf } from './verdict.ts'

/** What one server has. */
interface Seen {
  readonly kind: string
  readonly value: string
  readonly leftMs: number
  readonly waiters: readonly { readonly id: string; readonly record: string; readonly leftMs: number }[]
}

/** What all of them answer within some time; undefined for those that do not. */
export async function fromAll<Reply>(
  nodes: readonly ServerNode[],
  limits: CallLimits,
  timeoutMs: number,
  ask: (node: ServerNode) => Promise<Reply>,
): Promise<readonly (Reply | undefined)[]> {
  let timer: Timer | undefined
  let lastError: Error | undefined
  const late = new Promise<undefined>((resolve) => {
    timer = limits.start(timeoutMs, () => resolve(undefined))
  })
  const one = async (node: ServerNode): Promise<Reply | undefined> => {
    if (!node.ready) return undefined
    const asked = ask(node).catch((error: Error) => {
      lastError = error
      return undefined
    })
    return await Promise.race([asked, late])
  }
  const replies = await Promise.all(nodes.map(one))
  timer?.cancel()
  const answered = replies.filter((reply) => reply !== undefined).length
  if (answered < majorityOf(nodes.length)) throw unanswered(answered, nodes.length, lastError)
  return replies
}

export function seenIn(reply: unknown): Seen {
  const [kind = '', value = '', leftMs, ...rows] = (reply as readonly unknown[]).map(String)
  const waiters = []
  for (let at = 0; at + 2 < rows.length; at += 3) {
    const [id = '', record = '', left] = rows.slice(at, at + 3)
    waiters.push({ id, record, leftMs: Number(left) })
  }
  return { kind, value, leftMs: Number(leftMs), waiters }
}

/** The line, held ones first. `count` is how many servers there are. */
export function entriesOf(key: string, seen: readonly Seen[], count: number): readonly LineEntry[] {
  const most = majorityOf(count)
  const holder = holderOf(key, seen, most)
  const waiting = new Map<string, { times: number; entry: LineEntry }>()
  for (const { waiters } of seen) {
    for (const { id, record, leftMs } of waiters) {
      const known = waiting.get(id)
      if (known === undefined) waiting.set(id, { times: 1, entry: waiterOf(id, record, leftMs) })
      else known.times += 1
    }
  }
  const behind = [...waiting.values()]
    .filter(({ times, entry }) => times >= most && entry.id !== holder?.id)
    .map(({ entry }) => entry)
  return holder === undefined ? behind : [holder, ...behind]
}

function holderOf(key: string, seen: readonly Seen[], most: number): LineEntry | undefined {
  const odd = seen.filter(({ kind }) => kind !== 'string' && kind !== 'none')
  if (odd.length >= most) {
    throw unusable(key, { ...summaryOf([]), unusable: { why: 'unusable', kind: 'type', detail: odd[0]?.kind ?? '' } })
  }
  const groups = new Map<string, Seen[]>()
  for (const one of seen) {
    if (one.value === '') continue
    // One of us, whatever its number is on each server; or the very same value of a stranger.
    const name = /^hfr1:([^:]*):/.exec(one.value)?.[1] ?? one.value
    groups.set(name, [...(groups.get(name) ?? []), one])
  }
  for (const group of groups.values()) if (group.length >= most) return entryOf(group, most)
  return undefined
}

const UNSTORED = { weight: 1, limit: 1, ageMs: null, heldMs: null } as const

function entryOf(group: readonly Seen[], most: number): LineEntry {
  // It lasts as long as a majority has it.
  const lefts = group.map(({ leftMs }) => leftMs).toSorted((a, b) => b - a)
  const last = lefts[most - 1] as number
  const remainingMs = last < 0 ? Number.POSITIVE_INFINITY : last
  const shapes = group.map(({ value }) => /^hfr1:([^:]*):(\d+) \d+ \w (\d+) \S* (.*)$/s.exec(value))
  const [first] = shapes
  if (first === null || first === undefined) {
    const nobody = { id: '', holder: 'somebody without Holdfast', token: null, ttlMs: remainingMs }
    return { ...UNSTORED, ...nobody, state: 'held', remainingMs }
  }
  const [, id = '', , ttl, holder = ''] = first
  const numbers = shapes.map((shape) => shape?.[2] ?? '')
  const token = numbers.find((number) => numbers.filter((other) => other === number).length >= most)
  return {
    ...UNSTORED,
    id,
    holder,
    state: 'held',
    token: token === undefined ? null : BigInt(token),
    ttlMs: Number(ttl),
    remainingMs,
  }
}

function waiterOf(id: string, record: string, remainingMs: number): LineEntry {
  const [, ttl, holder = ''] = /^\d+ (\d+) \S* (.*)$/s.exec(record) ?? []
  return { ...UNSTORED, id, holder, state: 'waiting', token: null, ttlMs: Number(ttl), remainingMs }
}
