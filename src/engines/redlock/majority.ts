/**
 * How to do a thing on a majority of nodes: enter, renew, leave. It knows nodes only by what they answer (node.ts), so
 * a simulator can put its own in their place.
 *
 * Between two calls it remembers little: what we hold, and with which token, so that a node that has lost it can be
 * given it again; and what is to be given back to nodes that were away.
 */
import { CallLimits } from '../../clients/shared/call-limits.ts'
import type { Chance, Clock } from '../../core/clock.ts'
import type { Claim, Place, Standing } from '../../core/engine.ts'
import { Asking, type Result, type Surroundings } from './asking.ts'
import { unanswered } from './errors.ts'
import type { Node, Question } from './node.ts'
import { type Farewell, Outbox } from './outbox.ts'
import { type Stay, Stays } from './stay.ts'
import { majorityOf, type Summary } from './verdict.ts'

export interface MajorityOptions {
  readonly nodes: readonly Node[]
  readonly clock: Clock
  readonly chance: Chance
  /** How long a node that does not answer is waited for. */
  readonly timeoutMs: number
  /** Hears when those who wait should look again. */
  readonly waits: (place: Place, summary: Summary) => void
}

type Done = (standings: readonly Standing[]) => void

/** One asking, and what has come of it. */
interface Errand {
  readonly place: Place
  readonly mode: Question['mode']
  readonly stay: Stay
  result: Result | undefined
}

/**
 * A try that fails because others came at the same moment is made again, so that one of them gets it; this often at
 * most.
 */
const TRIES = 6
/** For how long it is put off: about a round trip, and never as long as the others'. */
const PAUSE_MS = 4
/** How long something may live of which nothing is known any more. */
const FORGOTTEN_MS = 60_000

export class Majority {
  readonly #around: Surroundings
  readonly #waits: MajorityOptions['waits']
  #attempts = 0

  constructor({ nodes, clock, chance, timeoutMs, waits }: MajorityOptions) {
    this.#around = {
      nodes,
      clock,
      chance,
      timeoutMs,
      limits: new CallLimits(clock),
      outbox: new Outbox(nodes, clock),
      stays: new Stays(clock),
    }
    this.#waits = waits
  }

  enter(claims: readonly Claim[], done: Done): void {
    const { stays } = this.#around
    this.#ask(
      claims.map((place) => ({
        place,
        mode: place.wait ? 'wait' : 'try',
        stay: stays.of(place.key, place.id, place.holder),
        result: undefined,
      })),
      done,
    )
  }

  renew(places: readonly Place[], done: Done): void {
    const { stays } = this.#around
    this.#ask(
      places.map((place) => ({ place, mode: 'renew', stay: stays.of(place.key, place.id, ''), result: undefined })),
      done,
    )
  }

  /** `undefined`: no majority has answered. */
  leave(
    places: readonly Pick<Place, 'key' | 'id'>[],
    done: (were: readonly boolean[] | undefined, error?: Error) => void,
  ): void {
    const { nodes, limits, timeoutMs, outbox, stays } = this.#around
    // From now on nothing that is still under way sets anything. What has been sent is overtaken by nobody on its
    // connection; what is answered late is given back again.
    const farewells = places.map(({ key, id }): Farewell => {
      const stay = stays.leave(id)
      return { key, id, ttlMs: stay?.ttlMs ?? FORGOTTEN_MS, asked: stay?.asked }
    })
    const most = majorityOf(nodes.length)
    const yes = places.map(() => 0)
    let [open, answered, over] = [nodes.length, 0, false]
    const finish = (): void => {
      if (over) return
      over = true
      timer.cancel()
      if (answered < most) done(undefined, unanswered(answered, nodes.length))
      else done(yes.map((count) => count >= most))
    }
    const timer = limits.start(timeoutMs, finish)
    for (let node = 0; node < nodes.length; node += 1) {
      outbox.depart(node, farewells, (were) => {
        open -= 1
        if (were !== undefined) {
          answered += 1
          for (let index = 0; index < were.length; index += 1) if (were[index]) yes[index] = (yes[index] as number) + 1
        }
        if (open === 0 || (answered >= most && yes.every((count) => count >= most || count + open < most))) finish()
      })
    }
  }

  /** A node can be asked again. */
  returned(node: number): void {
    this.#around.outbox.settle(node)
  }

  /** Calls back when every node has answered whether what was given back was there, or cannot any more. */
  whenAnswered(call: () => void): void {
    this.#around.outbox.whenAnswered(call)
  }

  /** How many entries are kept in mind. */
  get size(): number {
    return this.#around.stays.size
  }

  /** Ask for these, some of them perhaps several times. */
  #ask(errands: readonly Errand[], done: Done): void {
    this.#attempt(errands, 1, () => {
      for (const { place, stay, result } of errands) {
        const { standing, summary } = result as Result
        if (standing.state === 'waiting' && summary !== undefined && !stay.left) this.#waits(place, summary)
        stay.unanswered -= 1
        // What outlives us goes on without us.
        if (place.outlives === true && standing.state === 'held') this.#around.stays.forget(stay)
        else this.#around.stays.release(stay)
      }
      done(errands.map(({ result }) => (result as Result).standing))
    })
  }

  #attempt(errands: readonly Errand[], tries: number, done: () => void): void {
    const { clock, chance } = this.#around
    const questions = errands.map((errand) => this.#question(errand))
    const stays = errands.map(({ stay }) => stay)
    new Asking(this.#around, questions, stays, (results) => {
      for (let index = 0; index < errands.length; index += 1) (errands[index] as Errand).result = results[index]
      const again = tries < TRIES ? errands.filter(worthTrying) : []
      if (again.length === 0) done()
      else clock.timer(PAUSE_MS * tries * chance.fraction(), () => this.#retry(again, tries + 1, done))
    })
  }

  /** Whoever has left meanwhile wants nothing any more. */
  #retry(errands: readonly Errand[], tries: number, done: () => void): void {
    const staying = errands.filter(({ stay }) => !stay.left)
    if (staying.length === 0) done()
    else this.#attempt(staying, tries, done)
  }

  /** Whoever holds goes on with the attempt that got it. */
  #question({ place, mode, stay }: Errand): Question {
    if (stay.token === undefined) this.#attempts += 1
    const attempt = stay.token === undefined ? this.#attempts : stay.attempt
    const { key, id, ttlMs, outlives = false } = place
    return { key, id, ttlMs, outlives, mode, attempt, holder: stay.holder }
  }
}

function worthTrying({ mode, result }: Errand): boolean {
  return (
    mode === 'try' && result?.standing.state === 'busy' && result.summary?.split === true && !result.summary.stranger
  )
}
