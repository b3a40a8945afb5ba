/** The class of a key: what a metric says instead of the key, so that a million orders are one time series. */

/** More classes than this are taken for keys: a metric must not grow with the number of customers. */
const MOST_CLASSES = 500

/** What stands for the classes that are too many, and for keys that are probably one of many. */
const ANY = '*'

/**
 * `order:42` is `order:*`, `tenant/7/import` is `tenant/*`. A key without a separator is its own class, unless it has a
 * digit: then it is probably one of many, and its class is `*`.
 */
export function defaultClassOf(key: string): string {
  const cut = key.search(/[:/]/)
  if (cut > 0) return `${key.slice(0, cut + 1)}*`
  return /\d/.test(key) || key.length > 64 ? ANY : key
}

/** `classOf`, whose first 500 classes count; every later one is `*`. */
export function fewClasses(classOf: (key: string) => string): (key: string) => string {
  const known = new Set<string>()
  return (key) => {
    const found = classOf(key)
    if (known.has(found)) return found
    if (known.size >= MOST_CLASSES) return ANY
    known.add(found)
    return found
  }
}
