/**
 * Batches as the scripts want them: the arguments after the keys.
 *
 * Each argument costs the server about as much as a small command, so what many items have in common is said once: claims of one ttl, weight, limit and holder
 * are of one class, and the usual batch has one class.
 */
import type { Claim, Place } from '../../core/engine.ts'

/** The numbers of classes are characters, from '!' (1) to '~' (94). */
const MOST_CLASSES = 94
const CLASS_ZERO = 32

/** Undefined: these are too different for one call; make it two. */
export function enterArguments(claims: readonly Claim[], client: string): string[] | undefined {
  const args = inClasses(claims, sameClaim, (claim, add) => {
    add(String(claim.ttlMs))
    add(`${claim.wait ? 'w' : 't'} a ${claim.weight} ${claim.limit} ${claim.ttlMs} ${client} ${claim.holder}`)
  })
  if (args !== undefined) for (const { id } of claims) args.push(id)
  return args
}

export function renewArguments(places: readonly Place[]): string[] | undefined {
  const args = inClasses(places, sameTtl, (place, add) => add(String(place.ttlMs)))
  if (args !== undefined) for (const { id } of places) args.push(id)
  return args
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
  describe: (item: Item, add: (arg: string) => void) => void,
): string[] | undefined {
  const [first] = items as readonly [Item]
  const classes = [first]
  const classOf: number[] = []
  let last = 0
  for (const item of items) {
    // Neighbours are usually of one class.
    if (!same(item, classes[last] as Item)) {
      last = classes.findIndex((known) => same(item, known))
      if (last < 0) last = classes.push(item) - 1
      if (last >= MOST_CLASSES) return undefined
    }
    classOf.push(last)
  }
  const character = (index: number): string => String.fromCharCode(CLASS_ZERO + index + 1)
  const args = classes.length === 1 ? [] : [`:${character(classes.length - 1)}${classOf.map(character).join('')}`]
  for (const item of classes) describe(item, (arg) => args.push(arg))
  return args
}
