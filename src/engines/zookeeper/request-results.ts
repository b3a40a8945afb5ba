/** Requests that are sent together: what became of each, and about how many nodes one is. */

/** What became of one of several: one that fails must not hide the others. */
export type Settled<Value> = { readonly value: Value } | { readonly error: unknown }

export async function settled<Value>(promise: Promise<Value>): Promise<Settled<Value>> {
  try {
    return { value: await promise }
  } catch (error) {
    return { error }
  }
}

/** How many nodes are created, deleted or listed in one request: with the longest paths it stays below 1 MiB. */
const TOGETHER = 64

export function inGroups<Item>(items: readonly Item[]): readonly (readonly Item[])[] {
  if (items.length <= TOGETHER) return items.length === 0 ? [] : [items]
  const groups: Item[][] = []
  for (let from = 0; from < items.length; from += TOGETHER) groups.push(items.slice(from, from + TOGETHER))
  return groups
}
