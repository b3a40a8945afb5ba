/**
 * What kind of world a seed has. Some are friendly, so that what must hold in a friendly world is asked there; some are
 * not.
 */
import type { Random } from '../random.ts'

export interface RedlockConditions {
  readonly servers: 3 | 5
  readonly clients: number
  readonly keys: number
  /** All keys have one count; else each has its own. */
  readonly shared: boolean
  /** Servers' clocks jump, and keys vanish at any moment: nothing is promised then but the order of tokens. */
  readonly wild: boolean
  /** What was sent on a connection that broke may arrive much later. */
  readonly late: boolean
  /**
   * How often a connection breaks, a link is silent for a while, a server crashes, its clock jumps, a key vanishes: for
   * each second.
   */
  readonly breaks: number
  readonly holes: number
  readonly crashes: number
  /** A crash loses the keys; never the counts. */
  readonly forgets: boolean
  /**
   * A crash loses the counts too, and they get lost without one; but the clocks of the servers are right, and tokens
   * begin there anew.
   */
  readonly amnesia: boolean
  readonly delayMs: number
  /** How many answers come when the client waits for them no longer. */
  readonly slow: number
  /** How many messages are refused at first, and sent a second time: those after them are before them then. */
  readonly resent: number
  /** How many keys vanish in a second, in a wild world; where counts get lost, how many of those. */
  readonly vanishing: number
  readonly seconds: number
}

export function drawRedlockConditions(chance: Random, given: Partial<RedlockConditions>): RedlockConditions {
  const wild = given.wild ?? chance.happens(0.6)
  const amnesia = given.amnesia ?? (!wild && chance.happens(0.3))
  return {
    servers: chance.happens(0.5) ? 3 : 5,
    clients: chance.whole(2, 4),
    keys: chance.whole(1, 2),
    shared: chance.happens(0.5),
    wild,
    late: chance.happens(0.4),
    breaks: chance.pick([0, 1, 6]),
    holes: chance.pick([0, 1, 4]),
    crashes: amnesia ? 2 : chance.pick([0, 0, 1]),
    forgets: wild && chance.happens(0.5),
    amnesia,
    delayMs: chance.pick([0.5, 3, 15]),
    slow: chance.pick([0, 0.02, 0.15]),
    resent: chance.pick([0, 0, 0.03]),
    vanishing: chance.pick(amnesia ? [1, 30, 300] : [30, 300]),
    seconds: 4,
    ...given,
  }
}
