/**
 * A batch in parts: what can be done by a plain statement, and the rest. The parts are of different lines, and so are
 * sent at the same time.
 */
import { asDoubtful } from './errors.ts'

/**
 * How a part is sent. `take` and `make`: by a plain statement, for lines that have a row or have none. `alone`: by a
 * plain statement, for entries that are alone in their lines. `call`: by a procedure, which can do everything.
 */
export type CallWay = 'take' | 'make' | 'alone' | 'call'

export interface BatchPart<Item> {
  readonly way: CallWay
  readonly items: readonly Item[]
  /** Where in the batch each of them is. */
  readonly at: readonly number[]
}

/** Fewer items than these are not worth a statement of their own, if there is a procedure call they can go with. */
const FEW = 3

/** Items of one line are in one part, in their order: that of the procedure, if there are several. */
export function splitBatch<Item extends { readonly key: string }>(
  items: readonly Item[],
  wayOf: (item: Item) => CallWay,
): readonly BatchPart<Item>[] {
  const [first] = items
  if (items.length === 1 && first !== undefined) return [{ way: wayOf(first), items, at: [0] }]
  const ways = new Map<CallWay, number[]>()
  const twice = keysTwice(items)
  for (const [index, item] of items.entries()) {
    const way = twice.has(item.key) ? 'call' : wayOf(item)
    const at = ways.get(way)
    if (at === undefined) ways.set(way, [index])
    else at.push(index)
  }
  joinSmallParts(ways)
  return [...ways].map(([way, at]) => ({ way, items: at.map((index) => items[index] as Item), at }))
}

/**
 * What the parts are answered, in the order of the batch. Settles when all have. If one fails, what became of the batch
 * is not known: other parts were applied.
 */
export async function callParts<Item, Answer>(
  parts: readonly BatchPart<Item>[],
  call: (part: BatchPart<Item>) => Promise<readonly Answer[]>,
): Promise<readonly Answer[]> {
  const [only] = parts
  if (parts.length === 1 && only !== undefined) return await call(only)
  const settled = await Promise.allSettled(parts.map(call))
  const answers: Answer[] = []
  for (const [index, { at }] of parts.entries()) {
    const part = settled[index] as PromiseSettledResult<readonly Answer[]>
    if (part.status === 'rejected') throw asDoubtful(part.reason)
    for (const [order, place] of at.entries()) answers[place] = part.value[order] as Answer
  }
  return answers
}

function keysTwice(items: readonly { readonly key: string }[]): ReadonlySet<string> {
  const [once, twice] = [new Set<string>(), new Set<string>()]
  for (const { key } of items) (once.has(key) ? twice : once).add(key)
  return twice
}

/** Let the items of small parts go with the procedure. */
function joinSmallParts(ways: Map<CallWay, number[]>): void {
  if (ways.size === 1) return
  const call = ways.get('call') ?? []
  for (const [way, at] of ways) {
    if (way === 'call' || at.length >= FEW) continue
    ways.delete(way)
    call.push(...at)
  }
  // In the order of the batch: if all go this way, the answers need no sorting.
  call.sort((a, b) => a - b)
  if (call.length > 0) ways.set('call', call)
}
