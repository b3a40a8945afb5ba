/** The record of a list: where it is, and how it is changed inside of a transaction of the user, or without one. */
import { UnsupportedError } from '../../core/errors.ts'
import type { OptionNames } from '../../core/options.ts'
import type { Locks } from '../../locks.ts'
import { type Found, RecordStore } from '../../store/record-store.ts'
import { NO_UPLOADS, type ReplaceRecord } from './record.ts'

/** Where the record of a list is. */
export interface ListOptions {
  /**
   * Locks on the database of the rows, if those of the upload are elsewhere: on Redis, for example. The record of the
   * list has to be where the rows are, to be changed in their transactions.
   */
  readonly store?: Locks
}

export const LIST_OPTIONS: OptionNames<ListOptions> = { store: true }

/** What is stored, and by which version. */
export interface KnownList {
  readonly record: ReplaceRecord
  /** 0: nothing is stored. */
  readonly version: bigint
}

/** What a change has come to: it was made, or another one came before it. */
export type Changed = { readonly state: 'changed' | 'overtaken' } & KnownList

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

  async look(): Promise<KnownList> {
    return knownOf(await this.#records.get(this.key))
  }

  /**
   * Change it, if its version is that of `known`. `transaction` is the user's, or null: in a transaction, the record is
   * locked until it ends.
   */
  async change(known: KnownList, record: ReplaceRecord, transaction: unknown = null): Promise<Changed> {
    const condition = known.version === 0n ? { absent: true as const } : { version: known.version }
    const put = await (transaction === null
      ? this.#records.put(this.key, record, condition)
      : this.#records.putIn(transaction, this.key, record, condition).catch(explained))
    if (put.state === 'stored') return { state: 'changed', record, version: put.version }
    return { state: 'overtaken', ...knownOf(put.found) }
  }

  /**
   * What is stored, as a transaction of the user sees it. Not by a connection of ours: on SQLite that would wait for
   * the transaction. So a change is asked for that is refused, because something is stored.
   */
  async lookIn(transaction: unknown): Promise<KnownList> {
    const put = await this.#records.putIn(transaction, this.key, NO_UPLOADS, { absent: true }).catch(explained)
    return put.state === 'stored' ? { record: NO_UPLOADS, version: put.version } : knownOf(put.found)
  }
}

function knownOf({ exists, value, version }: Found<ReplaceRecord>): KnownList {
  return { record: value ?? NO_UPLOADS, version: exists ? version : 0n }
}

/** The error of a store without transactions, with what helps here. */
function explained(error: unknown): never {
  if (error instanceof UnsupportedError)
    throw new UnsupportedError(
      error.engine,
      `${error.message}: give replace() the option store, which takes locks on the database of the rows; ` +
        'or null instead of a transaction, where the rows are not in one',
    )
  throw error
}
