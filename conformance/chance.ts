/** Chance that repeats: the same seed gives the same run. */

export interface Dice {
  /** A whole number from 0 up to, not including, `sides`. */
  below(sides: number): number
  /** True once in `times`, on average. */
  oneIn(times: number): boolean
  pick<Item>(items: readonly Item[]): Item
  /** 128 bits in hexadecimal. */
  id(): string
}

/** The generator mulberry32: small, fast, and good enough to choose steps. */
export function dice(seed: number): Dice {
  let state = seed >>> 0
  const fraction = (): number => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
  const below = (sides: number): number => Math.floor(fraction() * sides)
  return {
    below,
    oneIn: (times) => below(times) === 0,
    pick: <Item>(items: readonly Item[]): Item => {
      if (items.length === 0) throw new RangeError('nothing to pick from')
      return items[below(items.length)] as Item
    },
    id: () =>
      Array.from({ length: 4 }, () =>
        Math.floor(fraction() * 2 ** 32)
          .toString(16)
          .padStart(8, '0'),
      ).join(''),
  }
}
