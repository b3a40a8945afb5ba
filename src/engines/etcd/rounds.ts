/**
 * How many claims make transactions: as few as can be, none too large, and none with two claims of one line, which
 * would get the same token.
 */
import type { Claim } from '../../core/engine.ts'

/** A server takes 128 operations in one transaction, and what is inside counts too. */
const CLAIMS_AT_ONCE = 96
/**
 * And a megabyte and a half in one request. A key is in a claim about ten times, in three times its length if it is
 * nothing but slashes.
 */
const CHARACTERS_AT_ONCE = 32_768

/** Rounds of transactions, each with indexes of claims: no line, and so no id, twice in one round. */
export function rounds(claims: readonly Claim[]): readonly (readonly (readonly number[])[])[] {
  const turns = new Map<string, number>()
  const found: { parts: number[][]; characters: number }[] = []
  for (const [index, { key, holder }] of claims.entries()) {
    const turn = turns.get(key) ?? 0
    turns.set(key, turn + 1)
    found[turn] ??= { parts: [[]], characters: 0 }
    const round = found[turn]
    round.characters += key.length + holder.length
    if (round.parts.at(-1)?.length === CLAIMS_AT_ONCE || round.characters > CHARACTERS_AT_ONCE) {
      round.parts.push([])
      round.characters = key.length + holder.length
    }
    round.parts.at(-1)?.push(index)
  }
  return found.map(({ parts }) => parts)
}
