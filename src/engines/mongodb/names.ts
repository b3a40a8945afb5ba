/** What the collection of locks and its index are called. */

/** Processes that shall exclude each other use the same collection. */
export const DEFAULT_COLLECTION = 'holdfast'
/** Of the index by which the server takes away documents that are not used any more. */
export const TTL_INDEX = 'holdfast_remove_at'

/** Throws a `TypeError` for a name that MongoDB would refuse, or that means something else to it. */
export function checkCollectionName(name: unknown): string {
  const isName = typeof name === 'string' && name !== '' && !name.includes('$') && !name.includes('\0')
  if (isName && !name.startsWith('system.') && !name.startsWith('.') && !name.endsWith('.')) return name
  throw new TypeError(`collection must be the name of a collection, such as 'locks'; got '${String(name)}'`)
}
