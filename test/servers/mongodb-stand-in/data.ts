/**
 * The documents of the stand-in, and the log of what was written: the log is what change streams read, and, as a file,
 * what a stand-in that was killed finds again.
 *
 * A write is an atomic step of one or several changes with one time stamp. Nothing here waits, so that a step is never
 * seen half done.
 */
import { randomBytes } from 'node:crypto'
import { closeSync, existsSync, openSync, readFileSync, writeSync } from 'node:fs'
import { Binary, Timestamp } from 'bson'
import { bytesOf, read } from './bytes.ts'
import { CommandError } from './errors.ts'
import { filter } from './evaluate.ts'
import { valueAt } from './paths.ts'
import { type Document, keyOf } from './values.ts'

/** A version of a document. A later version is another object: conflicts are found by that. */
export interface Stored {
  readonly document: Document
  readonly bytes: Buffer
}

export interface Index {
  readonly v: number
  readonly key: Document
  readonly name: string
  readonly unique?: boolean
  readonly sparse?: boolean
  readonly expireAfterSeconds?: number
  readonly partialFilterExpression?: Document
}

export interface Collection {
  readonly db: string
  readonly name: string
  readonly uuid: Buffer
  readonly records: Map<string, Stored>
  indexes: Index[]
}

export type Kind = 'insert' | 'update' | 'replace' | 'delete' | 'drop' | 'rename'

/** One change, as the log has it. */
export interface Change {
  readonly kind: Kind
  readonly db: string
  readonly collection: string
  readonly id?: unknown
  readonly before?: Stored
  readonly after?: Stored
  /** What a collection that is renamed is called then. */
  readonly to?: string
  /** The paths of update operators. A pipeline has none: its update is told by the difference. */
  readonly paths?: readonly string[]
}

export interface Entry extends Change {
  readonly at: Timestamp
  readonly uuid: Buffer
  /** Its place among the changes of its step. */
  readonly index: number
  /** The transaction that wrote it. */
  readonly transaction?: Document
}

/** So much is kept for change streams that begin in the past. */
const LONGEST_LOG = 50_000

const ID_INDEX: Index = { v: 2, key: { _id: 1 }, name: '_id_' }

export class Data {
  readonly collections: Map<string, Collection> = new Map()
  readonly log: Entry[] = []
  /** The time of the last write. */
  last: Timestamp = Timestamp.fromBits(0, 0)
  /** What was dropped from the front of the log. */
  forgotten: Timestamp = Timestamp.fromBits(0, 0)
  readonly #waiting = new Set<() => void>()
  #journal: number | undefined

  /** Read what an earlier process wrote to the file, and go on writing to it. */
  open(file: string): void {
    if (existsSync(file)) this.#replay(readFileSync(file))
    this.#journal = openSync(file, 'a')
  }

  close(): void {
    if (this.#journal !== undefined) closeSync(this.#journal)
    this.#journal = undefined
  }

  find(db: string, name: string): Collection | undefined {
    return this.collections.get(`${db}.${name}`)
  }

  /** The collection, made if it is not there. */
  collection(db: string, name: string): Collection {
    const found = this.find(db, name)
    if (found !== undefined) return found
    const uuid = randomBytes(16)
    this.#write({ make: `${db}.${name}`, db, name, uuid: uuid.toString('hex') })
    return this.#make(db, name, uuid)
  }

  setIndexes(collection: Collection, indexes: readonly Index[]): void {
    collection.indexes = [...indexes]
    this.#write({ indexes: collection.indexes, db: collection.db, name: collection.name })
  }

  /** The time of the next write. */
  tick(): Timestamp {
    const seconds = Math.floor(Date.now() / 1_000)
    const { t, i } = this.last
    this.last = new Timestamp(seconds > t ? { t: seconds, i: 1 } : { t, i: i + 1 })
    return this.last
  }

  /** Do all changes as one step, or none of them. */
  commit(changes: readonly Change[], transaction?: Document): Timestamp {
    for (const change of changes) this.#refuseDuplicate(change, changes)
    const at = this.tick()
    for (const [index, change] of changes.entries()) this.#apply(change, at, index, transaction)
    const steps = changes.map((change) => ({ ...change, before: undefined, after: change.after?.bytes }))
    this.#write({ at, steps, transaction })
    this.wake()
    return at
  }

  drop(collection: Collection): void {
    this.commit([{ kind: 'drop', db: collection.db, collection: collection.name }])
  }

  /** One that is called so already is gone. */
  rename({ db, name }: Collection, to: string): void {
    this.commit([{ kind: 'rename', db, collection: name, to }])
  }

  /** Resolves with the next write, or when `limitMs` have passed. */
  async nextWrite(limitMs: number): Promise<void> {
    const { promise, resolve } = withResolvers()
    this.#waiting.add(resolve)
    const timer = setTimeout(resolve, limitMs)
    await promise
    clearTimeout(timer)
    this.#waiting.delete(resolve)
  }

  wake(): void {
    for (const resolve of this.#waiting) resolve()
  }

  /** The unique index that the change would break, as an error. */
  #refuseDuplicate({ kind, db, collection, id, after }: Change, step: readonly Change[]): void {
    const target = this.find(db, collection)
    if (after === undefined || target === undefined) return
    if (kind === 'insert' && target.records.has(keyOf(id))) throw duplicateKey(target, ID_INDEX, after.document)
    for (const index of target.indexes.filter(({ unique }) => unique === true)) {
      const key = indexKey(index, after.document)
      if (key === undefined) continue
      for (const [other, stored] of target.records) {
        const leaves = step.some((each) => each.collection === collection && each.db === db && keyOf(each.id) === other)
        if (!leaves && indexKey(index, stored.document) === key) throw duplicateKey(target, index, after.document)
      }
    }
  }

  #apply(change: Change, at: Timestamp, index: number, transaction: Document | undefined): void {
    const collection = this.collection(change.db, change.collection)
    const { uuid, records } = collection
    if (change.kind === 'drop' || change.kind === 'rename') this.collections.delete(`${change.db}.${change.collection}`)
    else if (change.after === undefined) records.delete(keyOf(change.id))
    else records.set(keyOf(change.id), change.after)
    const { to } = change
    if (to !== undefined) this.collections.set(`${change.db}.${to}`, { ...collection, name: to })
    this.log.push({ ...change, at, uuid, index, ...(transaction === undefined ? {} : { transaction }) })
    if (this.log.length > LONGEST_LOG) this.forgotten = this.log.splice(0, LONGEST_LOG / 2).at(-1)?.at ?? this.forgotten
  }

  #make(db: string, name: string, uuid: Buffer): Collection {
    const collection: Collection = { db, name, uuid, records: new Map(), indexes: [ID_INDEX] }
    this.collections.set(`${db}.${name}`, collection)
    return collection
  }

  #write(line: Document): void {
    if (this.#journal !== undefined) writeSync(this.#journal, bytesOf(line))
  }

  /** A line that was cut off by the death of the process is left out. */
  #replay(bytes: Buffer): void {
    let offset = 0
    while (offset + 4 <= bytes.length) {
      const size = bytes.readInt32LE(offset)
      if (offset + size > bytes.length) break
      this.#redo(read(bytes.subarray(offset, offset + size)))
      offset += size
    }
  }

  #redo(line: Document): void {
    const { make, indexes, db, name, at, steps, transaction } = line
    if (make !== undefined) this.#make(db, name, Buffer.from(line.uuid, 'hex'))
    else if (indexes !== undefined) this.collection(db, name).indexes = indexes
    else {
      this.last = at
      for (const [index, step] of (steps as (Change & { after?: Binary })[]).entries()) {
        const before = this.find(step.db, step.collection)?.records.get(keyOf(step.id))
        const after = step.after instanceof Binary ? storedAs(Buffer.from(step.after.buffer)) : undefined
        const { after: _, ...rest } = step
        const change: Change = { ...rest, ...(before && { before }), ...(after && { after }) }
        this.#apply(change, at, index, transaction ?? undefined)
      }
    }
  }
}

export function stored(document: Document): Stored {
  return storedAs(bytesOf(document))
}

function storedAs(bytes: Buffer): Stored {
  return { document: read(bytes), bytes }
}

/** Undefined for a document that the index leaves out. */
function indexKey(index: Index, document: Document): string | undefined {
  const values = Object.keys(index.key).map((path) => valueAt(document, path.split('.')))
  if (index.sparse === true && values.every((value) => value === undefined)) return undefined
  if (index.partialFilterExpression !== undefined && !filter(index.partialFilterExpression)(document)) return undefined
  return values.map(keyOf).join('|')
}

export function duplicateKey({ db, name }: Collection, index: Index, document: Document): CommandError {
  const keyValue = Object.fromEntries(
    Object.keys(index.key).map((path) => [path, valueAt(document, path.split('.')) ?? null]),
  )
  const shown = Object.entries(keyValue).map(([path, value]) => `${path}: ${JSON.stringify(value)}`)
  const message = `E11000 duplicate key error collection: ${db}.${name} index: ${index.name} dup key: { ${shown.join(', ')} }`
  return new CommandError(11000, message, { keyPattern: index.key, keyValue })
}

function withResolvers(): { promise: Promise<void>; resolve: () => void } {
  let resolve: () => void = () => undefined
  const promise = new Promise<void>((done) => {
    resolve = done
  })
  return { promise, resolve }
}
