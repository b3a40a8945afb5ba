/**
 * What an update is in the log of a server, and so in a change stream: the difference between two documents, or the
 * whole new document where that is shorter.
 *
 * Differences go into objects and arrays. Each object that differs is described by what was removed, what was set and
 * what differs further inside; a description that is longer than the object itself gives way to the object. The sizes
 * are those of the server's own form of it, since they decide what a listener is told.
 */
import { calculateObjectSize } from 'bson'
import { bytesOf } from './bytes.ts'
import { type Document, isPlain, typeOf } from './values.ts'

/** What the log adds to a difference of the whole document. */
const ENVELOPE_BYTES = 15

interface Difference {
  readonly removed: readonly string[]
  /** By field, or by place in an array. */
  readonly set: Readonly<Record<string, unknown>>
  readonly inside: Readonly<Record<string, Difference>>
  /** The array was cut to this length. */
  readonly newSize?: number
  /** How long it is in the server's log. */
  readonly bytes: number
}

export interface UpdateDescription {
  readonly updatedFields: Document
  readonly removedFields: readonly string[]
  readonly truncatedArrays: readonly { readonly field: string; readonly newSize: number }[]
}

/** Undefined where the whole document is told instead. */
export function describeUpdate(before: Document, after: Document): UpdateDescription | undefined {
  const difference = differenceOf(before, after)
  if (calculateObjectSize(after) < difference.bytes + ENVELOPE_BYTES) return undefined
  const description = { updatedFields: {}, removedFields: [], truncatedArrays: [] }
  flatten(difference, '', description)
  return description
}

/** What update operators have set and removed. They are told by their paths, however small the document. */
export function describePaths(before: Document, after: Document, paths: readonly string[]): UpdateDescription {
  const changed = paths.filter((path) => !identical(at(before, path), at(after, path)))
  const present = changed.filter((path) => at(after, path) !== undefined)
  return {
    updatedFields: Object.fromEntries(present.map((path) => [path, at(after, path)])),
    removedFields: changed.filter((path) => at(after, path) === undefined),
    truncatedArrays: [],
  }
}

const at = (document: unknown, path: string): unknown =>
  path.split('.').reduce<unknown>((value, name) => (value as Document | null | undefined)?.[name], document)

/** The same bytes. Nearly all of a long array is the same objects as before, which is seen without writing them. */
function identical(a: unknown, b: unknown): boolean {
  if (a === b) return true
  if (typeOf(a) !== typeOf(b) || typeof a === 'string') return false
  if (a instanceof Date) return a.getTime() === (b as Date).getTime()
  if (Array.isArray(a)) {
    const other = b as readonly unknown[]
    return a.length === other.length && a.every((value, index) => identical(value, other[index]))
  }
  if (!isPlain(a)) return bytesOf({ a }).equals(bytesOf({ a: b }))
  const [names, others] = [Object.keys(a), Object.keys(b as Document)]
  if (names.length !== others.length) return false
  return names.every((name, index) => name === others[index] && identical(a[name], (b as Document)[name]))
}

function differenceOf(before: Document, after: Document): Difference {
  const names = Object.keys(after)
  const removed = new Set<string>()
  const set: Record<string, unknown> = {}
  const inside: Record<string, Difference> = {}
  let index = 0
  for (const name of Object.keys(before)) {
    const expected = names[index]
    // A field that moved is removed and set again, since the order of fields is part of a document.
    if (expected !== name) removed.add(name)
    else {
      compareField(name, before[name], after[name], set, inside)
      index += 1
    }
  }
  for (const name of names.slice(index)) {
    removed.delete(name)
    set[name] = after[name]
  }
  const bytes = EMPTY_BYTES + removedBytes([...removed]) + setBytes(set) + insideBytes(inside)
  return { removed: [...removed], set, inside, bytes }
}

function differenceOfArrays(before: readonly unknown[], after: readonly unknown[]): Difference {
  const set: Record<string, unknown> = {}
  const inside: Record<string, Difference> = {}
  for (const [index, value] of after.entries()) {
    if (index < before.length) compareField(String(index), before[index], value, set, inside)
    else set[String(index)] = value
  }
  let bytes = EMPTY_BYTES + elementBytes('a', true) + insideBytes(inside)
  for (const [name, value] of Object.entries(set)) bytes += elementBytes(`u${name}`, value)
  if (before.length <= after.length) return { removed: [], set, inside, bytes }
  return { removed: [], set, inside, bytes: bytes + elementBytes('l', after.length), newSize: after.length }
}

function compareField(
  name: string,
  before: unknown,
  after: unknown,
  set: Record<string, unknown>,
  inside: Record<string, Difference>,
): void {
  if (identical(before, after)) return
  const deeper =
    isPlain(before) && isPlain(after)
      ? differenceOf(before, after)
      : Array.isArray(before) && Array.isArray(after)
        ? differenceOfArrays(before, after)
        : undefined
  if (deeper === undefined || calculateObjectSize(after as Document) <= deeper.bytes) set[name] = after
  else inside[name] = deeper
}

// ---- how long the form in the server's log is: { d: removed, u: set, sX: inside X }, or for an array
// { a: true, l: newSize, uX: set X, sX: inside X } ----

/** A document without elements. */
const EMPTY_BYTES = 5

function elementBytes(name: string, value: unknown): number {
  return calculateObjectSize({ [name]: value }) - EMPTY_BYTES
}

/** An element that is a document, or an array, of so many bytes. */
function nestedBytes(name: string, bytes: number): number {
  return Buffer.byteLength(name) + 2 + bytes
}

function removedBytes(names: readonly string[]): number {
  if (names.length === 0) return 0
  const bytes = names.reduce((sum, name) => sum + elementBytes(name, false), EMPTY_BYTES)
  return nestedBytes('d', bytes)
}

function setBytes(set: Document): number {
  return Object.keys(set).length === 0 ? 0 : nestedBytes('u', calculateObjectSize(set))
}

function insideBytes(inside: Readonly<Record<string, Difference>>): number {
  return Object.entries(inside).reduce((sum, [name, { bytes }]) => sum + nestedBytes(`s${name}`, bytes), 0)
}

interface Flattened extends UpdateDescription {
  readonly removedFields: string[]
  readonly truncatedArrays: { readonly field: string; readonly newSize: number }[]
}

/** By paths from the root. What is further inside comes after what was set. */
function flatten({ removed, set, inside, newSize }: Difference, prefix: string, into: Flattened): void {
  const before = prefix === '' ? '' : `${prefix}.`
  for (const name of Object.keys(set)) into.updatedFields[before + name] = set[name]
  for (const name of removed) into.removedFields.push(before + name)
  if (newSize !== undefined) into.truncatedArrays.push({ field: prefix, newSize })
  for (const name of Object.keys(inside)) flatten(inside[name] as Difference, before + name, into)
}
