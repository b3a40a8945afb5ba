/**
 * Which lines have a node, as far as this engine object knows. The servers take a node away that has been empty for a
 * while. Claims of lines that surely have one, or almost surely, are worth a try in one transaction.
 */
import type { Clock } from '../../core/clock.ts'
import type { Claim } from '../../core/engine.ts'

/** Servers look for empty nodes once in a minute. */
const KNOWN_FOR_MS = 10_000
/** More of them are not kept in mind. */
const MOST = 10_000

export class KnownLines {
  readonly #clock: Clock
  /** By their keys: when an entry was last put into them. The oldest comes first. */
  readonly #enteredAt = new Map<string, number>()

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** An entry was put into this line, or could not be. */
  saw(key: string, entered: boolean): void {
    this.#enteredAt.delete(key)
    if (entered) this.#enteredAt.set(key, this.#clock.now())
    if (this.#enteredAt.size <= MOST) return
    for (const oldest of this.#enteredAt.keys()) {
      this.#enteredAt.delete(oldest)
      return
    }
  }

  /** The claims that can be created in one transaction: of known lines, and each of another line. */
  together(claims: readonly Claim[]): ReadonlySet<Claim> {
    if (claims.length === 1) return new Set()
    const counts = countsByKey(claims)
    return new Set(claims.filter(({ key }) => counts.get(key) === 1 && this.#isKnown(key)))
  }

  /** Of these claims, those of lines that may have no node, and that another one of these claims is of, too. */
  sharedUnknown(claims: readonly Claim[]): readonly Claim[] {
    if (claims.length === 1) return []
    const counts = countsByKey(claims)
    return claims.filter(({ key }) => counts.get(key) !== 1 && !this.#isKnown(key))
  }

  #isKnown(key: string): boolean {
    return (this.#enteredAt.get(key) ?? Number.NEGATIVE_INFINITY) > this.#clock.now() - KNOWN_FOR_MS
  }
}

function countsByKey(claims: readonly Claim[]): ReadonlyMap<string, number> {
  const counts = new Map<string, number>()
  for (const { key } of claims) counts.set(key, (counts.get(key) ?? 0) + 1)
  return counts
}
