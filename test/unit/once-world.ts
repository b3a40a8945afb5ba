/** Two or more "processes" that share a memory server: their calls are counted, and one of them can be cut off. */
import { delegate } from '../../conformance/delegate.ts'
import type { Engine } from '../../src/core/engine.ts'
import type { LocksOptions } from '../../src/core/locks-options.ts'
import type { Change, Store } from '../../src/core/store.ts'
import { MemoryServer, memory } from '../../src/engines/memory/index.ts'
import { createLocks, type Locks } from '../../src/locks.ts'
import { type FakeClock, fakeClock } from '../../src/testing.ts'

const opened: Locks[] = []

/** For `afterEach`. */
export async function closeAll(): Promise<void> {
  await Promise.all(opened.splice(0).map((locks) => locks.close()))
}

export function locksOn(engine: Engine, options: LocksOptions = {}): Locks {
  const locks = createLocks(engine, options)
  opened.push(locks)
  return locks
}

/** A process on a memory server, as far as a store can tell one from another. */
export class FakeProcess {
  readonly server: MemoryServer
  readonly locks: Locks
  /** The calls to the engine, one entry for each turn: calls of one turn are joined by a plus. */
  readonly turns: string[] = []
  #turnOpen = false
  /** Renewals are not answered from now on: for the server, this process has stopped. */
  stopped = false
  /** How many turns more its nth put takes to arrive. */
  putDelay: (nth: number) => number = () => 0
  /** How many turns more the answer to its nth put takes. */
  answerDelay: (nth: number) => number = () => 0
  #puts = 0

  constructor(
    server: MemoryServer = new MemoryServer(),
    options: LocksOptions = {},
    change?: (change: Change) => Change,
    /** Whether lines can be entered and left in the step of a change. */
    inOneStep: boolean = change === undefined,
  ) {
    this.server = server
    const engine = memory({ server })
    const { store } = engine
    const counted: Store = {
      traits: store.traits,
      get: (keys) => this.#called('get', () => store.get(keys)),
      put: (changes) =>
        this.#called('put', async () => {
          this.#puts += 1
          const nth = this.#puts
          await turns(this.putDelay(nth))
          const answer = await store.put(change === undefined ? changes : changes.map(change))
          await turns(this.answerDelay(nth))
          return answer
        }),
      list: (prefix) => store.list(prefix),
      ...(inOneStep
        ? {
            putEntering: (entrances) => this.#called('putEntering', async () => store.putEntering?.(entrances) ?? []),
            putLeaving: (leavings) => this.#called('putLeaving', async () => store.putLeaving?.(leavings) ?? []),
          }
        : {}),
    }
    const counting = delegate(engine, {
      enter: (claims) => this.#called('enter', () => engine.enter(claims)),
      leave: (places) => this.#called('leave', () => engine.leave(places)),
      renew: (places) => (this.stopped ? new Promise(() => {}) : engine.renew(places)),
      store: counted,
    })
    this.locks = locksOn(counting, options)
  }

  async #called<Answer>(verb: string, call: () => Promise<Answer>): Promise<Answer> {
    if (this.#turnOpen) this.turns.push(`${this.turns.pop()} + ${verb}`)
    else this.turns.push(verb)
    this.#turnOpen = true
    setImmediate(() => {
      this.#turnOpen = false
    })
    // An answer takes until the next turn, as it does on a wire.
    await new Promise((resolve) => setImmediate(resolve))
    return call()
  }
}

/** A promise and what settles it. */
export function gate<Value = void>(): { readonly opened: Promise<Value>; open(value: Value): void } {
  let open!: (value: Value) => void
  const waiting = new Promise<Value>((resolve) => {
    open = resolve
  })
  return { opened: waiting, open }
}

const TTL = '3s'

/** Let all that can happen without time happen. */
export async function turns(count = 20): Promise<void> {
  for (let turn = 0; turn < count; turn += 1) await new Promise((resolve) => setImmediate(resolve))
}

export interface Fleet {
  readonly clock: FakeClock
  readonly of: (nth: number) => FakeProcess
}

/** Several processes on one server, on time that the test moves. */
export function fleet(count: number, change?: (change: Change) => Change, inOneStep?: boolean): Fleet {
  const clock = fakeClock()
  const server = new MemoryServer({ clock })
  const processes = Array.from({ length: count }, () => new FakeProcess(server, { clock, ttl: TTL }, change, inOneStep))
  return { clock, of: (nth: number) => processes[nth] as FakeProcess }
}
