/** The record of a list: where it is, and how it is changed inside of a transaction of the user, or without one. */
import { UnsupportedError } from '../../core/errors.ts'
import type { Locks } from '../../locks.ts'
import { RecordStore } from '../../store/record-store.ts'
import type { ListOptions } from './options.ts'
import { NO_UPLOADS, type ReplaceRecord } from './record.ts'

/** What is stored, and by which version. */
export interface Known {
  readonly record: ReplaceRecord
  /** 0: nothing is stored. */
  readonly version: bigint
}

/** What a change has come to: it was made, or another one came before it. */
export type Changed = { readonly state: 'changed' | 'overtaken' } & Known

/** Locks and records of two recipes never meet. */
const KEY_PREFIX = 'replace:'

export class ListRecord {
  /** Of the line, and of the record. */
  readonly key: string
  readonly #records: RecordStore<ReplaceRecord>

  constructor(locks: Locks, key: string, { store }: ListOptions) {
    if (typeof key !== 'string' || key === '')
      throw new TypeError(`the key of a list must be a string that is not empty; got ${key === '' ? "''" : typeof key}`)
    this.key = `${KEY_PREFIX}${key}`
    this.#records = new RecordStore('replace', locks, { store })
  }

  async look(): Promise<Known> {
    const { exists, value, version } = await this.#records.get(this.key)
    return { record: value ?? NO_UPLOADS, version: exists ? version : 0n }
  }

  /** Change it, if its version is that of `known`. */
  async change(known: Known, record: ReplaceRecord): Promise<Changed> {
    const put = await this.#records.put(this.key, record, conditionOf(known))
    if (put.state === 'stored') return { state: 'changed', record, version: put.version }
    const { exists, value, version } = put.found
    return { state: 'overtaken', record: value ?? NO_UPLOADS, version: exists ? version : 0n }
  }

  /** `change`, inside of a transaction of the user. The record is locked until the transaction ends. */
  async changeIn(transaction: unknown, known: Known, record: ReplaceRecord): Promise<Changed> {
    const put = await this.#records.putIn(transaction, this.key, record, conditionOf(known)).catch(explained)
    if (put.state === 'stored') return { state: 'changed', record, version: put.version }
    const { exists, value, version } = put.found
    return { state: 'overtaken', record: value ?? NO_UPLOADS, version: exists ? version : 0n }
  }

  /**
   * What is stored, as a transaction of the user sees it. Not by a connection of ours: on SQLite that would wait for
   * the transaction. So a change is asked for that is refused, because something is stored.
   */
  async lookIn(transaction: unknown): Promise<Known> {
    const put = await this.#records.putIn(transaction, this.key, NO_UPLOADS, { absent: true }).catch(explained)
    if (put.state === 'stored') return { record: NO_UPLOADS, version: put.version }
    const { value, version } = put.found
    return { record: value ?? NO_UPLOADS, version }
  }
}

function conditionOf({ version }: Known): { version: bigint } | { absent: true } {
  return version === 0n ? { absent: true } : { version }
}

/** The error of a store without transactions, with what helps here. */
function explained(error: unknown): never {
  if (error instanceof UnsupportedError)
    throw new UnsupportedError(
      error.engine,
      `${error.message}: give replace() the option store, which takes locks on the database of the rows; or null instead of a transaction, where the rows are not in one`,
    )
  throw error
}
