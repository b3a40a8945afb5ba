/**
 * Looking at lines: the entries of one, and which lines there are. Keys of other programs in a line are shown, too, and
 * those beside all lines are passed over: they are no reason not to see the rest.
 */

import type { EtcdClient, LeaseTime } from '../../clients/etcd/client.ts'
import type { Line, LineEntry, LineSummary } from '../../core/engine.ts'
import { heldCount } from '../../core/line.ts'
import { EVICTED_MARKER, readShownEntry, type StoredEntry } from './codec.ts'
import type { EtcdNames } from './names.ts'

const PAGE = 1_000
/** In the place of a lease, for a key that never expires. Entries of ours always have a lease. */
const NO_LEASE = 0n
const ENDLESS = Number.POSITIVE_INFINITY

export async function inspectLine(client: EtcdClient, names: EtcdNames, key: string): Promise<Line> {
  const [{ kvs }, { kvs: markers }] = await Promise.all([
    client.range({ ...names.line(key), oldestFirst: true }),
    client.range(names.markersOf(key)),
  ])
  const stored = kvs.map(readShownEntry)
  const held = heldCount(stored)
  const marked = markers.filter(({ value }) => value.toString() === EVICTED_MARKER)
  const evicted = new Set(marked.map((marker) => names.parseMarker(marker.key).id))
  const times = new Map<bigint, LeaseTime>([[NO_LEASE, { leftSeconds: ENDLESS, grantedSeconds: ENDLESS }]])
  await Promise.all(
    [...new Set(stored.map(({ lease }) => lease))].map(async (lease) => {
      if (lease !== NO_LEASE) times.set(lease, await client.timeOf(lease))
    }),
  )
  const entries = stored.map(({ id, holder, token: revision, weight, limit, lease }, index): LineEntry => {
    const { leftSeconds = 0, grantedSeconds = 0 } = times.get(lease) ?? {}
    const state = index < held ? 'held' : 'waiting'
    const [ttlMs, remainingMs] = [grantedSeconds * 1000, Math.max(leftSeconds, 0) * 1000]
    const token = id === '' ? null : revision
    // etcd keeps no time of day.
    const shown = { id, holder, state, token, weight, limit, ttlMs, remainingMs, ageMs: null, heldMs: null } as const
    return evicted.has(id) ? { ...shown, evicted: true } : shown
  })
  return { key, entries }
}

/** Page by page, in the order of the keys; a line may go on from one page to the next. */
export async function* listLines(client: EtcdClient, names: EtcdNames, prefix: string): AsyncIterable<LineSummary> {
  const { key: first, end } = names.lines(prefix)
  let from = first
  let [line, entries]: [string | undefined, StoredEntry[]] = [undefined, []]
  for (let more = true; more; ) {
    const { kvs, count } = await client.range({ key: from, end, limit: PAGE })
    more = count > kvs.length
    for (const kv of kvs) {
      from = `${kv.key}\0`
      if (!kv.key.startsWith(first)) {
        more = false
        break
      }
      const key = names.lineOf(kv.key)
      if (key === undefined) continue
      if (line !== undefined && key !== line) {
        yield summaryOf(line, entries)
        entries = []
      }
      line = key
      entries.push(readShownEntry(kv))
    }
  }
  if (line !== undefined) yield summaryOf(line, entries)
}

function summaryOf(key: string, entries: StoredEntry[]): LineSummary {
  const held = heldCount(entries.sort((a, b) => Number(a.token - b.token)))
  return { key, held, waiting: entries.length - held }
}
