/**
 * The nodes that we use in ZooKeeper:
 *
 *     /holdfast/<key>/hf1-<id>-<weight>-<limit>__lock__<number>      an entry
 *     /holdfast/<key>/hf1-<id>-<weight>-<limit>__rlock__<number>     an entry of a reader: weight 1, no limit
 *     /holdfast/<key>/hf1-<id>-<weight>-<limit>-try__lock__<number>  an entry that does not wait
 *     /holdfast/<key>/hf1-<id>-evicted                               says that an entry was evicted
 *
 * All that decides who holds is in the name of an entry, so that the names of the children are enough. The number is
 * the server's, and is the place in line. It begins anew when the node of the line is deleted; but then no entry was
 * there. It has 32 bits: after 2^31 entries of one line, the server gives the last number again and again, or goes on
 * below zero. So a line that has come near there is put in order by its tokens (`isBeyondNumbers`).
 *
 * The names end as those of Kazoo's `Lock`, `ReadLock` and `WriteLock` do. So Kazoo and Holdfast exclude each other on
 * one node, in order, and entries of Kazoo are understood here. In the layout `curator` they end in `-lock-<number>`,
 * as those of Curator's `InterProcessMutex` do, and entries of Curator are understood instead. No name can end as both
 * want it: so one of the two would not see what the other one has.
 *
 * Records are beside that, under `/holdfast-records` (record-nodes.ts).
 *
 * A key is one name in a path. What may not be there is written as in a URL: `/` is `%2F` and `%` is `%25`; so are
 * control characters, everything beyond the first 65,536 characters of Unicode, and a key that is `.` or `..`.
 */
import { UNLIMITED } from '../../core/engine.ts'
import { unreadable } from './errors.ts'

/** Whose locks are excluded on the same node, beside our own. */
export type ZooKeeperLayout = 'kazoo' | 'curator'

export const LAYOUTS: readonly ZooKeeperLayout[] = ['kazoo', 'curator']

const VERSION = 1
const LONGEST_NAME_BYTES = 100

/** An entry, as its name tells it. */
export interface NamedEntry {
  readonly name: string
  readonly id: string
  readonly weight: number
  readonly limit: number
  /** It takes itself out at once if it does not hold. */
  readonly tries: boolean
  /** The number that the server gave it. */
  readonly number: number
  /** It is of Kazoo or Curator. */
  readonly foreign?: true
}

/** The names of the children of a line. */
export interface NamedLine {
  /** In order. */
  readonly entries: readonly NamedEntry[]
  /** The ids of entries that were evicted. */
  readonly evicted: ReadonlySet<string>
}

const OURS =
  /^hf(?<version>\d+)-(?<id>[0-9a-z]+)-(?:(?<weight>\d+)-(?<limit>\d+)(?<tries>-try)?(?:__r?lock__|-lock-)(?<number>-?\d+)|evicted)$/
const NEWER = /^hf(?<version>\d+)-/
const KAZOO = /^[0-9a-f]{32}__(?<reads>r?)lock__(?<number>-?\d+)$/
const CURATOR = /^(?:_c_[0-9a-f-]{36}-)?lock-(?<number>-?\d+)$/

export class ZooKeeperNames {
  /** The node under which lines are. */
  readonly base: string
  readonly #layout: ZooKeeperLayout

  constructor(base: string, layout: ZooKeeperLayout = 'kazoo') {
    this.base = base
    this.#layout = layout
  }

  line(key: string): string {
    return `${this.base}/${encoded(key)}`
  }

  entry(key: string, name: string): string {
    return `${this.line(key)}/${name}`
  }

  /** The path of an entry that is to be created; the server adds its number. */
  newEntry(claim: {
    readonly key: string
    readonly id: string
    readonly weight: number
    readonly limit: number
    readonly wait: boolean
  }): string {
    const { key, id, weight, limit, wait } = claim
    const ofKazoo = weight === 1 && limit === UNLIMITED ? '__rlock__' : '__lock__'
    const end = this.#layout === 'kazoo' ? ofKazoo : '-lock-'
    return this.entry(key, `hf${VERSION}-${id}-${weight}-${limit}${wait ? '' : '-try'}${end}`)
  }

  /** How many bytes the path of an entry in this line has, about. */
  entryBytes(key: string): number {
    return Buffer.byteLength(this.line(key)) + LONGEST_NAME_BYTES
  }

  // ---- records: see record-nodes.ts ----

  /** The node under which everything of records is. */
  get recordRoot(): string {
    return `${this.base}-records`
  }

  get records(): string {
    return `${this.recordRoot}/keys`
  }

  record(key: string): string {
    return `${this.records}/${encoded(key)}`
  }

  /** Written by every sweep that deletes records. */
  get recordSweeps(): string {
    return `${this.recordRoot}/sweeps`
  }

  get expiringRoot(): string {
    return `${this.recordRoot}/expiring`
  }

  slot(slot: number): string {
    return `${this.expiringRoot}/${slot}`
  }

  /** Says in which slot the record of this key is to be swept. */
  expiring(slot: number, key: string): string {
    return `${this.slot(slot)}/${encoded(key)}`
  }

  // ---- lines ----

  /** The path of what says that an entry was evicted. */
  evicted(key: string, id: string): string {
    return this.entry(key, `hf${VERSION}-${id}-evicted`)
  }

  /** From the name of a line to its key. */
  keyOf(name: string): string {
    return decoded(name)
  }

  /** From the path of an entry to the key of its line and its name there. */
  parse(path: string): { readonly key: string; readonly name: string } {
    const slash = path.lastIndexOf('/')
    return { key: decoded(path.slice(this.base.length + 1, slash)), name: path.slice(slash + 1) }
  }

  /** Throws if one of the children is neither an entry of ours nor one that the layout knows. */
  readLine(key: string, children: readonly string[]): NamedLine {
    const entries: NamedEntry[] = []
    const evicted = new Set<string>()
    for (const name of children) {
      const ours = OURS.exec(name)?.groups
      if (ours !== undefined && Number(ours.version) === VERSION) {
        if (ours.number === undefined) evicted.add(ours.id as string)
        else entries.push(entryNamed(name, ours))
      } else {
        const other = (this.#layout === 'kazoo' ? KAZOO : CURATOR).exec(name)?.groups
        if (other === undefined) throw this.#stranger(key, name)
        entries.push(foreignEntry(name, other))
      }
    }
    return { entries: entries.sort(byNumber), evicted }
  }

  #stranger(key: string, name: string): Error {
    const version = NEWER.exec(name)?.groups?.version
    const path = this.entry(key, name)
    if (version !== undefined && Number(version) > VERSION)
      return unreadable(path, `was written by a newer Holdfast (format ${version})`)
    if (CURATOR.test(name))
      return unreadable(path, "is an entry of Curator's: the two exclude each other with layout: 'curator'")
    if (KAZOO.test(name))
      return unreadable(path, "is an entry of Kazoo's, which Curator does not see (layout: 'curator')")
    return unreadable(path, 'is no entry of a line')
  }
}

function entryNamed(name: string, groups: Record<string, string | undefined>): NamedEntry {
  const { id, weight, limit, tries, number } = groups
  return {
    name,
    id: String(id),
    weight: Number(weight),
    limit: Number(limit),
    tries: tries !== undefined,
    number: Number(number),
  }
}

/**
 * An entry of Kazoo or Curator. Curator's mutex has no readers. A lock object of Kazoo has one name for all its
 * entries, and Curator's may have none: so the number belongs to the id. Else the marker of an eviction would also fit
 * the next entry of that object.
 */
function foreignEntry(name: string, { reads, number }: Record<string, string | undefined>): NamedEntry {
  const limit = reads === 'r' ? UNLIMITED : 1
  // In an id of ours, which the word of an eviction has in its name, there are letters and digits only.
  const id = name.replaceAll(/[^0-9a-z]/g, '')
  return { name, id, weight: 1, limit, tries: false, number: Number(number), foreign: true }
}

/** The nodes above a node, and itself: `/a`, `/a/b`, `/a/b/c`. */
export function pathsTo(path: string): readonly string[] {
  const steps = path.split('/').slice(1)
  return steps.map((_, index) => `/${steps.slice(0, index + 1).join('/')}`)
}

/** The number that the server has put at the end of a name. */
export function numberIn(name: string): number {
  return Number(/lock(?:__|-)(?<number>-?\d+)$/.exec(name)?.groups?.number)
}

export function byNumber(one: Pick<NamedEntry, 'number'>, other: Pick<NamedEntry, 'number'>): number {
  return one.number - other.number
}

/** Far more entries come before the last number than a line takes: all of them agree in time on how it is ordered. */
const LAST_NUMBER = 2 ** 31 - 2 ** 16

/** Whether numbers do not tell the order of a line any more that has this entry. */
export function isBeyondNumbers({ number }: Pick<NamedEntry, 'number'>): boolean {
  return number < 0 || number > LAST_NUMBER
}

/** What ZooKeeper refuses in a path, and our own escape character. Java counts what is beyond as two characters. */
const ESCAPED = /[%/\p{Cc}\ue000-\uf8ff\ufff0-\uffff]|[\u{10000}-\u{10ffff}]/gu

function encoded(key: string): string {
  if (key === '.' || key === '..') return key.replaceAll('.', '%2E')
  return key.replaceAll(ESCAPED, (text) =>
    [...Buffer.from(text)].map((byte) => `%${byte.toString(16).toUpperCase().padStart(2, '0')}`).join(''),
  )
}

function decoded(name: string): string {
  try {
    return decodeURIComponent(name)
  } catch {
    // No key of ours is written so: another program has made this node.
    return name
  }
}
