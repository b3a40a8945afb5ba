/**
 * The keys that we use in etcd:
 *
 *     holdfast/line/<key>/<name> an entry; it lives as long as its lease
 *     holdfast/seal/<key>/<id>   the marker of an entry that its own process no longer decides about: it was
 *                                evicted, or it is to outlive its process (entry-markers.ts)
 *     holdfast/record/<key>      a record (store.ts)
 *
 * The name of an entry is its id. An entry that entered an empty line has the id of its engine object as its name. To
 * read a range, etcd goes through all keys that the range has had since the last compaction, deleted ones included. So
 * a lock without waiters has one key for each process, however often it is taken, and not one for each time.
 *
 * In a key, `/` is written `%2F` and `%` is written `%25`, and nothing else is changed. So no line is a part of
 * another, lines whose keys begin alike stand together, and a person with etcdctl can read them.
 */
import type { KeyRange } from '../../clients/etcd/messages.ts'

/** The character after `/`: all that begins with `a/` comes before `a0`. */
const AFTER_SLASH = '0'

const encoded = (key: string): string => (/[%/]/.test(key) ? key.replaceAll('%', '%25').replaceAll('/', '%2F') : key)
const decoded = (text: string): string => text.replaceAll('%2F', '/').replaceAll('%25', '%')

export class EtcdNames {
  readonly #lines: string
  readonly #markers: string
  readonly #records: string

  constructor(prefix: string) {
    this.#lines = `${prefix}line/`
    this.#markers = `${prefix}seal/`
    this.#records = `${prefix}record/`
  }

  entry(key: string, name: string): string {
    return `${this.#lines}${encoded(key)}/${name}`
  }

  marker(key: string, id: string): string {
    return `${this.#markers}${encoded(key)}/${id}`
  }

  record(key: string): string {
    return this.#records + encoded(key)
  }

  /** Every record whose key begins so, and what comes after them. */
  records(prefix: string): Required<KeyRange> {
    return { key: this.record(prefix), end: this.#records.slice(0, -1) + AFTER_SLASH }
  }

  /** From the key of a record in etcd to that of its line. */
  parseRecord(record: string): string {
    return decoded(record.slice(this.#records.length))
  }

  /** Every entry of one line. */
  line(key: string): Required<KeyRange> {
    const line = this.#lines + encoded(key)
    return { key: `${line}/`, end: line + AFTER_SLASH }
  }

  /** Every marker of a line. */
  markersOf(key: string): Required<KeyRange> {
    const start = this.marker(key, '')
    return { key: start, end: start.slice(0, -1) + AFTER_SLASH }
  }

  /** Every marker of every line. */
  markers(): Required<KeyRange> {
    return { key: this.#markers, end: this.#markers.slice(0, -1) + AFTER_SLASH }
  }

  /** From the key of a marker in etcd to the key of its line and the id of its entry. */
  parseMarker(marker: string): { readonly key: string; readonly id: string } {
    const slash = marker.lastIndexOf('/')
    return { key: decoded(marker.slice(this.#markers.length, slash)), id: marker.slice(slash + 1) }
  }

  /** Every entry of every line whose key begins so, and what comes after them. */
  lines(prefix: string): Required<KeyRange> {
    return { key: this.#lines + encoded(prefix), end: this.#lines.slice(0, -1) + AFTER_SLASH }
  }

  /** The key of the line that a key in etcd stands in; undefined if another program has put it beside all lines. */
  lineOf(entry: string): string | undefined {
    const { key, name } = this.parse(entry)
    return key !== '' && this.entry(key, name) === entry ? key : undefined
  }

  /** From the key of an entry in etcd to the key of its line and its name there. */
  parse(entry: string): { readonly key: string; readonly name: string } {
    const slash = entry.lastIndexOf('/')
    return { key: decoded(entry.slice(this.#lines.length, slash)), name: entry.slice(slash + 1) }
  }
}
