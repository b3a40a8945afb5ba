/** Looking at lines: what lua/inspect.lua answers about one, and which lines there are. */
import { globEscape } from '../../clients/redis/names.ts'
import { type RedisWire, scanPages } from '../../clients/redis/wire.ts'
import type { LineEntry } from '../../core/engine.ts'
import { unusable } from './codec.ts'
import { entriesPatterns, lineOfEntries } from './names.ts'

/** The answer to `inspect`. */
export interface InspectedLine {
  readonly held: number
  readonly waiting: number
  /** Holders first, each in the order of their tokens. */
  readonly entries: readonly LineEntry[]
}

export function inspectedLine(reply: unknown, serverKey: string): InspectedLine {
  const [now, fault, detail, held, waiting, ...rows] = (reply as readonly unknown[]).map(String)
  if (fault === 'type' || fault === 'version') throw unusable(serverKey, fault, detail ?? '')
  const entries: LineEntry[] = []
  for (let at = 0; at + 3 < rows.length; at += 4) {
    const [id = '', record = '', remaining, since = ''] = rows.slice(at, at + 4)
    if (id === '') entries.push(strangerEntry(fault === 'forever' ? Number.POSITIVE_INFINITY : Number(remaining)))
    else entries.push(lineEntryOf(id, record, Number(remaining), since === '' ? null : Number(since), Number(now)))
  }
  return { held: Number(held), waiting: Number(waiting), entries: entries.sort(inLineOrder) }
}

/** The flag of a record whose entry was evicted by expiry. */
const EVICTED = 'e'

/** `record` is as lua/line.lua stores it. */
function lineEntryOf(id: string, record: string, remainingMs: number, heldMs: number | null, nowMs: number): LineEntry {
  const [, token = '', flag, weight, limit, ttlMs, holder = ''] =
    /^(\d+) (\w) (\d+) (\d+) (\d+) \S* (.*)$/s.exec(record) ?? []
  return {
    id,
    holder,
    state: heldMs === null ? 'waiting' : 'held',
    token: BigInt(token),
    weight: Number(weight),
    limit: Number(limit),
    ttlMs: Number(ttlMs),
    remainingMs,
    // A token is the time it was made, in microseconds, unless the clock was set back meanwhile.
    ageMs: Math.max(0, nowMs - Number(token) / 1000),
    heldMs,
    ...(flag === EVICTED ? { evicted: true } : {}),
  }
}

/** A program that takes the key without Holdfast. What it has stored there may be a secret, and is not shown. */
function strangerEntry(remainingMs: number): LineEntry {
  const unknown = { token: null, ageMs: null, heldMs: null }
  return {
    id: '',
    holder: 'a program without Holdfast',
    state: 'held',
    weight: 1,
    limit: 1,
    ttlMs: remainingMs,
    remainingMs,
    ...unknown,
  }
}

function inLineOrder(a: LineEntry, b: LineEntry): number {
  if (a.state !== b.state) return a.state === 'held' ? -1 : 1
  return (a.token ?? 0n) < (b.token ?? 0n) ? -1 : 1
}

// ---- finding lines, by SCAN: on every server, page by page, so that no server is stopped for long ----

/** How the value of a lock of ours begins; see lua/line.lua. */
const OURS = new Set(['hf1:', 'hf1+'])

/** The server key of every line whose server key begins with `prefix`, each once, in pages, of which many are empty. */
export async function* linesIn(wire: RedisWire, prefix: string): AsyncIterable<readonly string[]> {
  const seen = new Set<string>()
  const fresh = (serverKey: string | undefined): serverKey is string => {
    if (serverKey === undefined || !serverKey.startsWith(prefix) || seen.has(serverKey)) return false
    seen.add(serverKey)
    return true
  }
  for (const server of await wire.servers()) {
    for (const pattern of entriesPatterns(prefix, wire)) {
      for await (const names of scanPages(server, pattern, 'hash'))
        yield names.map((name) => lineOfEntries(name, wire)).filter(fresh)
    }
    for await (const names of scanPages(server, `${globEscape(prefix)}*`, 'string')) {
      const values = await Promise.all(names.map((serverKey) => beginning(wire, serverKey)))
      yield names.filter((_, index) => OURS.has(values[index] ?? '')).filter(fresh)
    }
  }
}

/** How the value at that key begins; enough to tell a lock of ours. */
async function beginning(wire: RedisWire, serverKey: string): Promise<string> {
  const key = serverKey.slice(wire.keyPrefix.length)
  return String(await wire.send('GETRANGE', [key, '0', '3'], key))
}
