/**
 * Batches as the scripts want them: the arguments after those of lua/keys.lua.
 *
 * What many items have in common is said once: claims of one ttl, weight, limit and holder are of one class, and the usual batch has one class.
 */
import type { Claim, Place } from '../../core/engine.ts'

/** The numbers of classes are characters, from '!' (1) to '~' (94). */
const MOST_CLASSES = 94
const CLASS_ONE = 33

/** Undefined: these are too different for one call; make it two. */
export function enterArguments(claims: readonly Claim[], client: string): string[] | undefined {
  return inClasses(claims, sameClaim, (args, { ttlMs, wait, weight, limit, holder }) => {
    args.push(String(ttlMs), `${wait ? 'w' : 't'} a ${weight} ${limit} ${ttlMs} ${client} ${holder}`)
  })
}

export function renewArguments(places: readonly Place[]): string[] | undefined {
  return inClasses(places, sameTtl, (args, { ttlMs }) => args.push(String(ttlMs)))
}

function sameClaim(a: Claim, b: Claim): boolean {
  return a.ttlMs === b.ttlMs && a.wait === b.wait && a.weight === b.weight && a.limit === b.limit && a.holder === b.holder
}

function sameTtl(a: Place, b: Place): boolean {
  return a.ttlMs === b.ttlMs
}

/** Which item is of which class, and then each class. */
function inClasses<Item>(
  items: readonly Item[],
  same: (a: Item, b: Item) => boolean,
  describe: (args: string[], item: Item) => void,
): string[] | undefined {
  const [first] = items as readonly [Item]
  if (items.every((item) => same(item, first))) {
    const args = ['']
    describe(args, first)
    return args
  }
  const classes = [first]
  let classOf = ''
  for (const item of items) {
    let found = classes.findIndex((known) => same(item, known))
    if (found < 0) found = classes.push(item) - 1
    if (found >= MOST_CLASSES) return undefined
    classOf += String.fromCharCode(CLASS_ONE + found)
  }
  const args = [classOf]
  for (const item of classes) describe(args, item)
  return args
}
