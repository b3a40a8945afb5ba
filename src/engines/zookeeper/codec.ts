/** What a line is, from the names of its children; and what is stored in an entry, for people and for other clients. */
import type { NodeStat } from '../../clients/zookeeper/messages.ts'
import { heldCount, type Weighted } from '../../core/line.ts'
import type { NamedEntry, NamedLine } from './names.ts'

export const LINE_BOUND = 1_000

/** A line as it was read: entries in order, of which the first `held` hold. */
export interface ZooKeeperLine {
  readonly entries: readonly NamedEntry[]
  readonly held: number
  readonly evicted: ReadonlySet<string>
  /** Entries that count for nothing, and are to be taken out: their id stands further in front, or was evicted. */
  readonly duplicates: readonly NamedEntry[]
}

/**
 * Who holds. The second entry of an id is passed over: its enter was done twice, since the reply to the first one was
 * lost.
 *
 * A try counts like every entry, also one that does not hold and is about to go. Its own client may read the line later
 * than another one does, when the holder before it has gone, and find that it holds. So no other client may pass it
 * over before it has gone.
 */
export function toZooKeeperLine({ entries: named, evicted }: NamedLine): ZooKeeperLine {
  const entries: NamedEntry[] = []
  const duplicates: NamedEntry[] = []
  const seen = new Set(evicted)
  for (const entry of named) {
    if (seen.has(entry.id)) duplicates.push(entry)
    else entries.push(entry)
    seen.add(entry.id)
  }
  return { entries, held: heldCount(entries), evicted, duplicates }
}

/** Whether this entry waits only for tries that do not hold: they go in a moment. */
export function waitsForTries({ entries, held }: ZooKeeperLine, id: string): boolean {
  const place = entries.findIndex((entry) => entry.id === id)
  // If the first that does not hold is no try, it waits for holders, and all behind it wait with it.
  if (place < held || entries[held]?.tries !== true) return false
  const rest = entries.slice(0, place + 1).filter(({ tries }, index) => index < held || index === place || !tries)
  return heldCount(rest) === rest.length
}

/**
 * What is shown of a line. A try that does not hold is on its way out, and on other engines it was never in the line:
 * so it is not shown as a waiter.
 */
export function shownEntries({ entries, held }: Pick<ZooKeeperLine, 'entries' | 'held'>): readonly NamedEntry[] {
  return entries.filter(({ tries }, place) => place < held || !tries)
}

/**
 * Which entries a waiter has to watch. As long as all of them are there, it waits, whichever others go. They are the
 * nearest ones before it: so two waiters watch the same entry only if its going can matter to both.
 */
export function blockersOf<Entry extends Weighted>(ahead: readonly Entry[], waiter: Weighted): readonly Entry[] {
  // A reader waits only for what has a limit; of those, one is enough.
  for (let index = ahead.length - 1; index >= 0; index -= 1) {
    const entry = ahead[index] as Entry
    if (entry.weight + waiter.weight > Math.min(entry.limit, waiter.limit)) return [entry]
  }
  const blockers: Entry[] = []
  let [weight, limit] = [waiter.weight, waiter.limit]
  for (let index = ahead.length - 1; index >= 0 && weight <= limit; index -= 1) {
    const entry = ahead[index] as Entry
    blockers.push(entry)
    weight += entry.weight
    limit = Math.min(limit, entry.limit)
  }
  return blockers
}

/** The entry of this id, and how many are ahead of it; not counted are tries that do not hold, and go in a moment. */
export function findEntry(
  { entries, held }: ZooKeeperLine,
  id: string,
): { readonly entry: NamedEntry; readonly ahead: number } | undefined {
  const place = entries.findIndex((entry) => entry.id === id)
  const entry = entries[place]
  if (entry === undefined) return undefined
  return { entry, ahead: shownEntries({ entries: entries.slice(0, place), held }).length }
}

/** What is stored in an entry. */
export interface EntryData {
  readonly holder: string
  /** How long the session lives that the entry belongs to. */
  readonly ttlMs: number
  /** The token, where it is not the transaction that created the node: the entry was moved to another session. */
  readonly token?: bigint
  /** It is to stand for a while without its process. */
  readonly outlives: boolean
  readonly evicted: boolean
}

export function writeData({ holder, ttlMs, token, outlives, evicted }: EntryData): Buffer {
  return Buffer.from(
    JSON.stringify({
      holder,
      ttlMs,
      ...(token === undefined ? {} : { token: String(token) }),
      ...(outlives ? { outlives } : {}),
      ...(evicted ? { evicted } : {}),
    }),
  )
}

/** Whatever is there is read: the name of the node says all that decides. An entry of Kazoo has its own words there. */
export function readEntryData(data: Buffer): EntryData {
  const { holder, ttlMs, token, outlives, evicted } = parsed(data.toString())
  return {
    holder: typeof holder === 'string' ? holder : data.toString(),
    ttlMs: typeof ttlMs === 'number' ? ttlMs : 0,
    outlives: outlives === true,
    evicted: evicted === true,
    ...(typeof token === 'string' && /^\d{1,19}$/.test(token) ? { token: BigInt(token) } : {}),
  }
}

function parsed(text: string): Record<string, unknown> {
  try {
    const read: unknown = JSON.parse(text)
    if (typeof read === 'object' && read !== null) return read as Record<string, unknown>
  } catch {
    // What is no JSON has no properties, like JSON that is no object.
  }
  return {}
}

/** The token of an entry, from its data and what the server knows of its node. */
export function tokenOf({ token }: EntryData, { czxid }: NodeStat): bigint {
  return token ?? czxid
}
