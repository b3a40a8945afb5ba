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
  readonly ofArray: boolean
}

export interface UpdateDescription {
  readonly updatedFields: Document
  readonly removedFields: readonly string[]
  readonly truncatedArrays: readonly { readonly field: string; readonly newSize: number }[]
}

/** Undefined where the whole document is told instead. */
export function describeUpdate(before: Document, after: Document): UpdateDescription | undefined {
  const difference = differenceOf(before, after)
  if (calculateObjectSize(after) < sizeOf(difference) + ENVELOPE_BYTES) return undefined
  return flatten(difference)
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
  return { removed: [...removed], set, inside, ofArray: false }
}

function differenceOfArrays(before: readonly unknown[], after: readonly unknown[]): Difference {
  const set: Record<string, unknown> = {}
  const inside: Record<string, Difference> = {}
  for (const [index, value] of after.entries()) {
    if (index < before.length) compareField(String(index), before[index], value, set, inside)
    else set[String(index)] = value
  }
  const difference = { removed: [], set, inside, ofArray: true }
  return before.length > after.length ? { ...difference, newSize: after.length } : difference
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
  if (deeper === undefined || calculateObjectSize(after as Document) <= sizeOf(deeper)) set[name] = after
  else inside[name] = deeper
}

function sizeOf(difference: Difference): number {
  return calculateObjectSize(logged(difference))
}

/** The form in the server's log. */
function logged({ removed, set, inside, newSize, ofArray }: Difference): Document {
  const deeper = Object.entries(inside).map(([name, each]) => [`s${name}`, logged(each)])
  if (ofArray) {
    const values = Object.entries(set).map(([name, value]) => [`u${name}`, value])
    return { a: true, ...(newSize === undefined ? {} : { l: newSize }), ...Object.fromEntries([...values, ...deeper]) }
  }
  return {
    ...(removed.length > 0 ? { d: Object.fromEntries(removed.map((name) => [name, false])) } : {}),
    ...(Object.keys(set).length > 0 ? { u: set } : {}),
    ...Object.fromEntries(deeper),
  }
}

function flatten(difference: Difference, prefix = ''): UpdateDescription {
  const { removed, set, inside, newSize } = difference
  const path = (name: string): string => (prefix === '' ? name : `${prefix}.${name}`)
  const deeper = Object.entries(inside).map(([name, each]) => flatten(each, path(name)))
  return {
    updatedFields: Object.assign(
      Object.fromEntries(Object.entries(set).map(([name, value]) => [path(name), value])),
      ...deeper.map(({ updatedFields }) => updatedFields),
    ),
    removedFields: [...removed.map(path), ...deeper.flatMap(({ removedFields }) => removedFields)],
    truncatedArrays: [
      ...(newSize === undefined ? [] : [{ field: prefix, newSize }]),
      ...deeper.flatMap(({ truncatedArrays }) => truncatedArrays),
    ],
  }
}
