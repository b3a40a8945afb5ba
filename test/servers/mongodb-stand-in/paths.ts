/** Dotted paths, as filters and update operators use them. */
import { type Document, isPlain } from './values.ts'

/**
 * Every value that a filter on the path looks at. An array on the way stands for its elements; an array at the end for
 * itself and its elements. Undefined is in the list where a document lacks the path.
 */
export function valuesAt(value: unknown, path: readonly string[]): readonly unknown[] {
  const [name, ...rest] = path
  if (name === undefined) return Array.isArray(value) ? [value, ...value] : [value]
  if (Array.isArray(value)) {
    const inside = value.filter(isPlain).flatMap((each) => valuesAt(each, path))
    return /^\d+$/.test(name) && Number(name) < value.length
      ? [...valuesAt(value[Number(name)], rest), ...inside.filter((each) => each !== undefined)]
      : inside
  }
  return isPlain(value) ? valuesAt(value[name], rest) : [undefined]
}

/** The one value at the path, without a look into arrays but by number. */
export function valueAt(value: unknown, path: readonly string[]): unknown {
  return path.reduce<unknown>((at, name) => (at as Document | undefined | null)?.[name], value)
}

/** A copy of the document in which the path has the value; undefined takes the field away. */
export function withValue(target: unknown, path: readonly string[], value: unknown): unknown {
  const [name, ...rest] = path as [string, ...string[]]
  if (Array.isArray(target) && /^\d+$/.test(name)) {
    const copy = [...target]
    const index = Number(name)
    while (copy.length < index) copy.push(null)
    copy[index] = rest.length === 0 ? (value ?? null) : withValue(copy[index], rest, value)
    return copy
  }
  const copy: Document = isPlain(target) ? { ...target } : {}
  if (rest.length > 0) {
    if (value === undefined && copy[name] === undefined) return copy
    copy[name] = withValue(copy[name], rest, value)
  } else if (value === undefined) delete copy[name]
  else copy[name] = value
  return copy
}
