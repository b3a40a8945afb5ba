/**
 * When to try again. Nothing here is truth: whoever is woken has to win a majority like everybody else.
 *
 * A release tells the first in line, on every server. Word from the first server comes before the others have freed the
 * key: so it is waited for from a majority of them, or for a moment. Whoever hears nothing looks when the holder's time
 * is over. Those who came at the same moment, and have got some servers each, try again after a moment that is
 * different for each; a stranger tells nobody, and is looked after now and then.
 */
import type { Chance, Clock } from '../../core/clock.ts'
import type { Place } from '../../core/engine.ts'
import { RecheckTimer } from '../shared/recheck-timer.ts'
import { majorityOf, type Summary } from './verdict.ts'

/** How long word from the other servers may take. */
const MOMENT_MS = 10
/** Those who got in each other's way try again within this time, at first. */
const SCATTER_MS = 15

export class Hints {
  /** Nobody tells us anything. */
  deaf = true
  readonly #rechecks: RecheckTimer
  readonly #chance: Chance
  readonly #most: number
  readonly #tell: (key: string, id: string) => void
  /** By id: which servers have given a hint. */
  readonly #heard = new Map<string, Set<number>>()

  constructor(nodes: number, clock: Clock, chance: Chance, tell: (key: string, id: string) => void) {
    this.#most = majorityOf(nodes)
    this.#chance = chance
    this.#tell = tell
    this.#rechecks = new RecheckTimer(
      clock,
      () => this.deaf,
      (key, id) => this.#look(key, id),
    )
  }

  /** It waits; `summary` is what the servers have said. */
  waits({ key, id, ttlMs }: Place, { split, stranger, next, recheckMs }: Summary): void {
    // A hint that came while it asked is newer than what it was told: it is about to look.
    if (this.#heard.has(id)) return
    const place = split || stranger ? 'stranger' : next ? 'first' : 'behind'
    this.#rechecks.schedule({
      key,
      id,
      ttlMs,
      recheckMs: split ? SCATTER_MS * this.#chance.fraction() : recheckMs,
      place,
    })
  }

  forget(id: string): void {
    this.#heard.delete(id)
    this.#rechecks.forget(id)
  }

  /** A hint: `<id> <K>`. Anybody may publish: what makes no sense is nothing. */
  heard(node: number, message: string, keyOf: (K: string) => string): void {
    const space = message.indexOf(' ')
    if (space < 1) return
    const [id, key] = [message.slice(0, space), keyOf(message.slice(space + 1))]
    const nodes = this.#heard.get(id) ?? new Set()
    this.#heard.set(id, nodes.add(node))
    if (nodes.size >= this.#most) {
      this.#rechecks.forget(id)
      this.#look(key, id)
    } else
      this.#rechecks.schedule({
        key,
        id,
        ttlMs: 0,
        recheckMs: MOMENT_MS * (1 + this.#chance.fraction()),
        place: 'first',
      })
  }

  stop(): void {
    this.#heard.clear()
    this.#rechecks.stop()
  }

  /** What the rechecks knows of it stays: how long it has been looking in vain, and so how soon it looks again. */
  #look(key: string, id: string): void {
    this.#heard.delete(id)
    this.#tell(key, id)
  }
}
