/** The order of documents: that of the server, where texts go by their bytes. */
import { valuesAt } from './paths.ts'
import { compare, type Document } from './values.ts'

export function sorted(documents: readonly Document[], spec: Document | undefined): Document[] {
  const keys = Object.entries(spec ?? {}).map(([path, direction]) => ({
    names: path.split('.'),
    sign: Number(direction),
  }))
  const least = (document: Document, names: readonly string[], sign: number): unknown =>
    valuesAt(document, names).reduce((best, each) => (sign * compare(each, best) < 0 ? each : best))
  return documents.toSorted((a, b) => {
    for (const { names, sign } of keys) {
      const by = sign * compare(least(a, names, sign), least(b, names, sign))
      if (by !== 0) return by
    }
    return 0
  })
}
