/**
 * Batches as the scripts want them: the arguments after those of lua/keys.lua.
 *
 * What many items have in common is said once: claims of one ttl, weight, limit and holder are of one class, and the
 * usual batch has one class.
 */
import type { Claim, Place } from '../../core/engine.ts'

/** The numbers of classes are characters, from '!' (1) to '~' (94). */
const MOST_CLASSES = 94
const CLASS_ONE = 33

/** What claims of one class have in common. */
type Common = Pick<Claim, 'ttlMs' | 'wait' | 'weight' | 'limit' | 'holder'>

export class Claims {
  readonly #client: string
  /** The last class that was alone, and its arguments: the next one is usually the same. */
  #last: { readonly common: Common; readonly args: readonly string[] } | undefined

  constructor(client: string) {
    this.#client = client
  }

  /** Undefined: these are too different for one call; make it two. */
  arguments(claims: readonly Claim[]): readonly string[] | undefined {
    const known = this.#last
    if (known !== undefined && claims.every((claim) => sameClaim(claim, known.common))) return known.args
    const args = inClasses(claims, sameClaim, (some, { ttlMs, wait, weight, limit, holder }) => {
      some.push(String(ttlMs), `${wait ? 'w' : 't'} a ${weight} ${limit} ${ttlMs} ${this.#client} ${holder}`)
    })
    if (args?.[0] === '') {
      const { ttlMs, wait, weight, limit, holder } = claims[0] as Claim
      this.#last = { common: { ttlMs, wait, weight, limit, holder }, args }
    }
    return args
  }
}

/** Undefined: as above. */
export function renewArguments(places: readonly Place[]): readonly string[] | undefined {
  return inClasses(places, sameStay, (args, place) => args.push(stayOf(place)))
}

function sameClaim(a: Common, b: Common): boolean {
  return (
    a.ttlMs === b.ttlMs && a.wait === b.wait && a.weight === b.weight && a.limit === b.limit && a.holder === b.holder
  )
}

/** For how long a place is to be renewed, as the scripts read it: with a + if it is to outlive us. */
export function stayOf({ ttlMs, outlives }: Place): string {
  return outlives === true ? `+${ttlMs}` : String(ttlMs)
}

function sameStay(a: Place, b: Place): boolean {
  return a.ttlMs === b.ttlMs && a.outlives === b.outlives
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
