/**
 * Sessions: which statements of a retryable write were done already, and open transactions.
 *
 * A transaction reads what was there when it began, and writes to a list of its own. A document that another
 * transaction has written, or that has changed since, is a conflict: error 112, with the label that lets the client
 * begin again. A plain write that meets a document of an open transaction waits for its end.
 */
import type { Timestamp } from 'bson'
import { type Change, type Collection, type Data, duplicateKey, type Stored } from './data.ts'
import { CommandError } from './errors.ts'
import { type Document, keyOf } from './values.ts'

const LIFETIME_MS = 60_000
const TRANSIENT = ['TransientTransactionError']

/** What a statement reads and writes: the data themselves, or a transaction. */
export interface View {
  records(db: string, collection: string): ReadonlyMap<string, Stored>
  /** Throws `Blocked`, or a conflict, and has then done nothing. */
  claim(db: string, collection: string, id: unknown): void
  write(change: Change): void
}

/** A plain write has met a document of this transaction. */
export class Blocked extends Error {
  readonly by: Transaction

  constructor(by: Transaction) {
    super('a transaction has written this document')
    this.by = by
  }
}

const NONE: ReadonlyMap<string, Stored> = new Map()

/** Plain statements, each committed by itself. */
export class PlainView implements View {
  readonly #data: Data
  readonly #transactions: Transactions

  constructor(data: Data, transactions: Transactions) {
    this.#data = data
    this.#transactions = transactions
  }

  records(db: string, collection: string): ReadonlyMap<string, Stored> {
    return this.#data.find(db, collection)?.records ?? NONE
  }

  claim(db: string, collection: string, id: unknown): void {
    const by = this.#transactions.writerOf(db, collection, id)
    if (by !== undefined) throw new Blocked(by)
  }

  write(change: Change): void {
    this.#data.commit([change])
  }
}

export class Transaction implements View {
  readonly number: bigint
  readonly ended: Promise<void>
  state: 'open' | 'committed' | 'aborted' = 'open'
  readonly #data: Data
  readonly #transactions: Transactions
  readonly #session: Document
  readonly #snapshot: Map<string, Map<string, Stored>>
  readonly #changes: Change[] = []
  readonly #timer: NodeJS.Timeout
  #end: () => void = () => undefined

  constructor(data: Data, transactions: Transactions, session: Document, number: bigint) {
    this.#data = data
    this.#transactions = transactions
    this.#session = session
    this.number = number
    this.#snapshot = new Map([...data.collections].map(([name, { records }]) => [name, new Map(records)]))
    this.ended = new Promise((resolve) => {
      this.#end = resolve
    })
    this.#timer = setTimeout(() => this.abort(), LIFETIME_MS)
  }

  records(db: string, collection: string): ReadonlyMap<string, Stored> {
    return this.#snapshot.get(`${db}.${collection}`) ?? NONE
  }

  claim(db: string, collection: string, id: unknown): void {
    const writer = this.#transactions.writerOf(db, collection, id)
    if (writer === this) return
    const now = this.#data.find(db, collection)?.records.get(keyOf(id))
    if (writer !== undefined || now !== this.records(db, collection).get(keyOf(id))) throw writeConflict()
    this.#transactions.setWriter(db, collection, id, this)
  }

  write(change: Change): void {
    const { db, collection, id, after } = change
    const key = keyOf(id)
    const name = `${db}.${collection}`
    const records = this.#snapshot.get(name) ?? new Map<string, Stored>()
    if (change.kind === 'insert' && records.has(key))
      throw duplicateKey({ db, name: collection } as Collection, { v: 2, key: { _id: 1 }, name: '_id_' }, { _id: id })
    this.#snapshot.set(name, records)
    if (after === undefined) records.delete(key)
    else records.set(key, after)
    this.#changes.push(change)
  }

  commit(): Timestamp {
    const at =
      this.#changes.length === 0
        ? this.#data.last
        : this.#data.commit(this.#changes, { lsid: this.#session, txnNumber: this.number })
    this.#finish('committed')
    return at
  }

  abort(): void {
    if (this.state === 'open') this.#finish('aborted')
  }

  #finish(state: 'committed' | 'aborted'): void {
    this.state = state
    clearTimeout(this.#timer)
    this.#transactions.forget(this)
    this.#end()
  }
}

/** Which open transaction has written which document. */
export class Transactions {
  readonly #writers = new Map<string, Transaction>()

  writerOf(db: string, collection: string, id: unknown): Transaction | undefined {
    return this.#writers.get(`${db}.${collection}|${keyOf(id)}`)
  }

  setWriter(db: string, collection: string, id: unknown, writer: Transaction): void {
    this.#writers.set(`${db}.${collection}|${keyOf(id)}`, writer)
  }

  forget(transaction: Transaction): void {
    for (const [document, writer] of this.#writers) if (writer === transaction) this.#writers.delete(document)
  }
}

export class Session {
  readonly id: Document
  transaction: Transaction | undefined
  #number = -1n
  readonly #done = new Map<number, unknown>()

  constructor(id: Document) {
    this.id = id
  }

  /** As a key of a map. */
  get key(): string {
    return sessionKey(this.id)
  }

  /** A higher number ends whatever the session did before. */
  advance(number: bigint): void {
    if (number < this.#number)
      throw new CommandError(
        225,
        `Retryable write with txnNumber ${number} is prohibited on session because a newer retryable write with txnNumber ${this.#number} has already started on this session.`,
      )
    if (number === this.#number) return
    this.#number = number
    this.#done.clear()
    this.transaction?.abort()
    this.transaction = undefined
  }

  /** The answer of a statement that was done before, under the same number. */
  done<Answer>(statement: number): Answer | undefined {
    return this.#done.get(statement) as Answer | undefined
  }

  remember(statement: number, answer: unknown): void {
    this.#done.set(statement, answer)
  }

  begin(data: Data, transactions: Transactions, number: bigint): Transaction {
    this.advance(number)
    this.transaction = new Transaction(data, transactions, this.id, number)
    return this.transaction
  }

  current(number: bigint): Transaction {
    const { transaction } = this
    if (transaction?.number === number && transaction.state !== 'aborted') return transaction
    const message =
      transaction?.number === number ? 'has been aborted.' : 'does not match any in-progress transactions.'
    throw new CommandError(251, `Given transaction number ${number} ${message}`, {}, TRANSIENT)
  }
}

export function sessionKey(id: Document): string {
  return keyOf(id.id)
}

function writeConflict(): CommandError {
  const message =
    'WriteConflict error: this operation conflicted with another operation. Please retry your operation or multi-document transaction.'
  return new CommandError(112, message, {}, TRANSIENT)
}
