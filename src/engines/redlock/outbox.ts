/**
 * What is to be sent to each node, collected, so that whatever one answer sets off is one message to each.
 *
 * Also sees to it that nothing stays on a node that could not be told, or did not answer: what was to be given back
 * there is a debt (debts.ts), and is given back when the node can be asked again, or answers again.
 */
import type { Clock } from '../../core/clock.ts'
import { Debts } from './debts.ts'
import type { Departure, Hear, Mend, Node, Raise } from './node.ts'

/** How many debts are settled in one message. */
const SLICE = 100

type Raised = (number: number | undefined) => void
type Left = (wasThere: boolean | undefined) => void

interface Letters {
  readonly raises: Raise[]
  readonly raised: Raised[]
  readonly mends: Mend[]
  readonly doubtful: (() => void)[]
  readonly departures: Owed[]
  readonly left: (Left | undefined)[]
}

/** A departure, and how long what it gives back would live. */
export interface Owed extends Departure {
  readonly ttlMs: number
}

/** One for good, and on which nodes it may have something to give back; undefined: nobody knows. */
export interface Farewell extends Owed {
  readonly asked: readonly boolean[] | undefined
}

export class Outbox {
  readonly #nodes: readonly Node[]
  readonly #letters: (Letters | undefined)[]
  readonly #debts: readonly Debts[]
  /** By node: debts are being settled. */
  readonly #settling: boolean[]
  /** There is something to send. */
  #written = false
  #unanswered = 0
  readonly #waiting: (() => void)[] = []

  constructor(nodes: readonly Node[], clock: Clock) {
    this.#nodes = nodes
    this.#letters = nodes.map(() => undefined)
    this.#debts = nodes.map(() => new Debts(clock))
    this.#settling = nodes.map(() => false)
  }

  raise(node: number, raise: Raise, raised: Raised): void {
    const letters = this.#at(node)
    letters.raises.push(raise)
    letters.raised.push(raised)
  }

  /** `doubtful` is called if it may have been done at any moment, also after what was sent later. */
  mend(node: number, mend: Mend, doubtful: () => void): void {
    const letters = this.#at(node)
    letters.mends.push(mend)
    letters.doubtful.push(doubtful)
  }

  leave(node: number, departure: Departure, ttlMs: number, left?: Left): void {
    const letters = this.#at(node)
    letters.departures.push({ ...departure, ttlMs })
    letters.left.push(left)
  }

  /** Have these leave for good, at once: after everything that was asked for them. */
  depart(node: number, farewells: readonly Farewell[], hear: Hear<readonly boolean[]>): void {
    if (this.#nodes[node]?.ready === true) {
      this.#leave(node, farewells, hear)
      return
    }
    // Nothing of it is on a node that was not asked.
    this.#owe(
      node,
      farewells.filter(({ asked }) => asked === undefined || asked[node] === true),
    )
    hear(undefined)
  }

  /** Send everything. */
  flush(): void {
    if (!this.#written) return
    this.#written = false
    for (const [node, letters] of this.#letters.entries()) {
      if (letters === undefined) continue
      this.#letters[node] = undefined
      this.#send(node, letters)
    }
  }

  /**
   * The node can be asked again, or has answered: give back what is still to be given back, one slice after the other.
   */
  settle(node: number): void {
    const debts = this.#debts[node]
    if (debts === undefined || debts.size === 0 || this.#settling[node] === true || this.#nodes[node]?.ready !== true)
      return
    const due = debts.take(SLICE)
    if (due.length === 0) return
    this.#settling[node] = true
    this.#leave(node, due, () => {
      this.#settling[node] = false
    })
  }

  /** Calls back when all that was given back has been answered for, if only by its connection. */
  whenAnswered(call: () => void): void {
    if (this.#unanswered === 0) call()
    else this.#waiting.push(call)
  }

  #at(node: number): Letters {
    const letters = this.#letters[node] ?? { raises: [], raised: [], mends: [], doubtful: [], departures: [], left: [] }
    this.#letters[node] = letters
    this.#written = true
    return letters
  }

  #send(index: number, { raises, raised, mends, doubtful, departures, left }: Letters): void {
    const node = this.#nodes[index] as Node
    const { ready } = node
    if (raises.length > 0) {
      const hear: Hear<readonly number[]> = (numbers) => {
        for (const [at, tell] of raised.entries()) tell(numbers?.[at])
      }
      if (ready) node.raise(raises, hear)
      else hear(undefined)
    }
    if (mends.length > 0 && ready) {
      node.mend(mends, (reply) => {
        if (reply !== undefined && node.ordered) return
        for (const doubt of doubtful) doubt()
      })
    }
    if (departures.length > 0) {
      const hear: Hear<readonly boolean[]> = (were) => {
        for (const [at, tell] of left.entries()) tell?.(were?.[at])
      }
      if (ready) this.#leave(index, departures, hear)
      else {
        this.#owe(index, departures)
        hear(undefined)
      }
    }
  }

  /** Without an answer they are owed; after one, more can be settled. */
  #leave(node: number, departures: readonly Owed[], hear: Hear<readonly boolean[]>): void {
    this.#unanswered += 1
    this.#nodes[node]?.leave(departures, (were, error) => {
      this.#unanswered -= 1
      if (were === undefined) this.#owe(node, departures)
      hear(were, error)
      if (were !== undefined) this.settle(node)
      if (this.#unanswered === 0) for (const call of this.#waiting.splice(0)) call()
    })
  }

  #owe(node: number, departures: readonly Owed[]): void {
    for (const departure of departures) this.#debts[node]?.add(departure)
  }
}
