/**
 * What we call things in etcd:
 *
 *     holdfast/line/<key>/<name> an entry; it lives as long as its lease
 *     holdfast/seal/<key>/<id>   the owner of that entry decides about it no more: it was evicted, or is to outlive its process
 *
 * The name of an entry is its id, unless it entered an empty line: then it is the name of its engine object. etcd goes
 * through all keys that a range ever had since the last compaction, also those that are deleted; so a lock that nobody
 * fights for has one key, however often it is taken, and not one for each time.
 *
 * In a key, `/` is written `%2F` and `%` is written `%25`, and nothing else is changed. So no line is a part of
 * another, lines whose keys begin alike stand together, and a person with etcdctl can read them.
 */
import type { KeyRange } from '../../clients/etcd/messages.ts'

/** The character after `/`: all that begins with `a/` comes before `a0`. */
const AFTER_SLASH = '0'

const encoded = (key: string): string => (/[%/]/.test(key) ? key.replaceAll('%', '%25').replaceAll('/', '%2F') : key)
const decoded = (text: string): string => text.replaceAll('%2F', '/').replaceAll('%25', '%')

export class Names {
  readonly #lines: string
  readonly #seals: string

  constructor(prefix: string) {
    this.#lines = `${prefix}line/`
    this.#seals = `${prefix}seal/`
  }

  entry(key: string, name: string): string {
    return `${this.#lines}${encoded(key)}/${name}`
  }

  seal(key: string, id: string): string {
    return `${this.#seals}${encoded(key)}/${id}`
  }

  /** Every entry of one line. */
  line(key: string): Required<KeyRange> {
    const line = this.#lines + encoded(key)
    return { key: `${line}/`, end: line + AFTER_SLASH }
  }

  /** Every entry of every line whose key begins so, and what comes after them. */
  lines(prefix: string): Required<KeyRange> {
    return { key: this.#lines + encoded(prefix), end: this.#lines.slice(0, -1) + AFTER_SLASH }
  }

  /** From what an entry is called in etcd to its line and its name there. */
  parse(entry: string): { readonly key: string; readonly name: string } {
    const slash = entry.lastIndexOf('/')
    return { key: decoded(entry.slice(this.#lines.length, slash)), name: entry.slice(slash + 1) }
  }
}
