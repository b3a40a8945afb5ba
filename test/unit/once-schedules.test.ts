/**
 * `once` under random schedules: three processes, one request, and a way to the server on which requests and replies
 * are lost, or are late by more than any of them waits. A seed gives the same schedule each time.
 */
import { isDeepStrictEqual } from 'node:util'
import { expect, test } from 'vitest'
import { delegate } from '../../conformance/delegate.ts'
import { Random } from '../../simulation/random.ts'
import type { Engine } from '../../src/core/engine.ts'
import { EngineError } from '../../src/core/errors.ts'
import type { Store } from '../../src/core/store.ts'
import { MemoryServer, memory } from '../../src/engines/memory/index.ts'
import { createLocks } from '../../src/locks.ts'
import { type Attempt, once } from '../../src/recipes/once/index.ts'
import { isSettled, type OnceRecord } from '../../src/recipes/once/record.ts'
import { type FakeClock, fakeClock } from '../../src/testing.ts'

const SCHEDULES = Number(process.env.HOLDFAST_ROUNDS ?? 1) * 200
const STEPS = ['charge', 'mail', 'book']
const PROCESSES = ['one', 'two', 'three']

/** What has to be true of the record after each change of it, and of what the work was told. */
class Witness {
  readonly #server: Store
  #version = 0n
  #last: OnceRecord | undefined
  #id: string | undefined
  /** What the steps have answered to the work. */
  readonly #answers = new Map<string, unknown>()
  /** By step: the executions that are in the middle of it. */
  readonly #running = new Map<string, Set<Attempt>>()
  #result: unknown
  /** The work and its callers catch errors: what was seen is told here. */
  readonly faults: string[] = []

  constructor(server: MemoryServer, clock: FakeClock) {
    this.#server = memory({ server, clock }).store
  }

  async look(): Promise<void> {
    const [got] = await this.#server.get(['once::a'])
    if (got?.state !== 'read' || got.stored.version < this.#version) return
    this.#version = got.stored.version
    const { value } = got.stored
    const record = value === null ? undefined : (JSON.parse(Buffer.from(value).toString()) as OnceRecord)
    const last = this.#last
    this.#last = record
    if (last === undefined) return
    this.#check(!isSettled(last) || isDeepStrictEqual(record, last), 'a result was replaced')
    if (record !== undefined && isSettled(record)) return
    for (const [name, step] of Object.entries(last.steps ?? {}))
      this.#check(isDeepStrictEqual(record?.steps?.[name], step), `${name} was forgotten`)
  }

  begins({ id }: Attempt): void {
    this.#check(id === (this.#id ?? id), 'two executions have two ids')
    this.#id = id
  }

  /** The answer ends it. */
  does(step: string, attempt: Attempt): () => void {
    const running = this.#running.get(step) ?? new Set()
    this.#running.set(step, running)
    // One that has lost its lease is told so. It goes on for a while, as work does.
    const others = [...running].filter(({ signal }) => !signal.aborted)
    this.#check(others.length === 0, `${step} is done twice at a time`)
    running.add(attempt)
    this.#check(!this.#answers.has(step), `${step} is done again after its answer was told`)
    this.#check(this.#result === undefined, `${step} is done after the result was told`)
    return () => running.delete(attempt)
  }

  told(step: string, answer: unknown): void {
    this.#check(answer === (this.#answers.get(step) ?? answer), `${step} has two answers`)
    this.#answers.set(step, answer)
  }

  settled(result: unknown): void {
    this.#check(result === (this.#result ?? result), 'there are two results')
    this.#result = result
  }

  #check(holds: boolean, fault: string): void {
    if (!holds) this.faults.push(fault)
  }
}

/** An engine whose calls are lost and late. */
function unsteady(engine: Engine, random: Random, clock: FakeClock, witness: Witness): Engine {
  const pass = async <Answer>(verb: string, go: () => Promise<Answer>): Promise<Answer> => {
    await late(clock, random)
    const lost = (): EngineError => new EngineError('memory', `${verb} was lost`, { outcome: 'unknown' })
    if (random.happens(0.05)) throw lost()
    const answer = await go()
    await witness.look()
    await late(clock, random)
    if (random.happens(0.05)) throw lost()
    return answer
  }
  const { store } = engine as Engine & { readonly store: Store }
  const own: Store = {
    traits: store.traits,
    get: (keys) => pass('get', () => store.get(keys)),
    put: (changes) => pass('put', () => store.put(changes)),
    list: (prefix) => store.list(prefix),
    ...(random.happens(0.5)
      ? {
          putEntering: (entrances) => pass('putEntering', async () => (await store.putEntering?.(entrances)) ?? []),
          putLeaving: (leavings) => pass('putLeaving', async () => (await store.putLeaving?.(leavings)) ?? []),
        }
      : {}),
  }
  return delegate(engine, {
    enter: (claims) => pass('enter', () => engine.enter(claims)),
    renew: (places) => pass('renew', () => engine.renew(places)),
    leave: (places) => pass('leave', () => engine.leave(places)),
    store: own,
  })
}

/** Most calls are quick. Some take longer than a caller waits for them, or than a lease lives. */
async function late(clock: FakeClock, random: Random): Promise<void> {
  if (random.happens(0.2)) await sleep(clock, random.pick([1, 10, 500, 2_500, 6_000]))
}

function sleep(clock: FakeClock, ms: number): Promise<void> {
  return new Promise((resolve) => clock.timer(ms, resolve))
}

function aborted(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    signal.addEventListener('abort', () => reject(signal.reason))
  })
}

/** Steps with all that users do around them: at once or in turn, in doubt or not, and with a throw at the end. */
async function work(attempt: Attempt, random: Random, clock: FakeClock, witness: Witness): Promise<string> {
  witness.begins(attempt)
  const step = async (name: string): Promise<void> => {
    const answer = await attempt.step(name, async () => {
      const end = witness.does(name, attempt)
      if (random.happens(0.3)) await sleep(clock, random.whole(1, 2_000))
      end()
      if (random.happens(0.1)) throw new Error('the step failed')
      return `${name} of ${attempt.number}.${random.whole(0, 1_000)}`
    })
    witness.told(name, answer)
  }
  const perhaps = async (name: string): Promise<void> => {
    const asked = step(name)
    await (random.happens(0.5) ? asked.catch(() => {}) : asked)
  }
  const inTurn = async (): Promise<void> => {
    for (const name of STEPS) await perhaps(name)
  }
  const failsSoon = async (): Promise<void> => {
    await sleep(clock, random.whole(1, 1_000))
    throw new Error('another branch failed')
  }
  const ways: readonly (() => Promise<unknown>)[] = [
    inTurn,
    () => Promise.all(STEPS.map(perhaps)),
    () => Promise.all([inTurn(), failsSoon()]),
    () => Promise.race([inTurn(), aborted(attempt.signal)]),
  ]
  // What is final is so whatever becomes of the lease.
  const declined = attempt.final(new Error('declined'))
  await random
    .pick(ways)()
    .catch((error: unknown) => {
      throw random.happens(0.2) ? declined : error
    })
  if (random.happens(0.1)) throw declined
  if (random.happens(0.5)) throw new Error('the work failed')
  return `result of ${attempt.number}`
}

async function play(seed: number): Promise<void> {
  const random = new Random(seed)
  const clock = fakeClock()
  const server = new MemoryServer({ clock })
  const witness = new Witness(server, clock)
  let over = 0
  const caller = async (own: Random): Promise<void> => {
    const engine = unsteady(memory({ server, clock }), own, clock, witness)
    const options = { clock, chance: own, ttl: '3s', callTimeout: '2s' } as const
    const locks = createLocks(engine, options)
    const pay = once(locks, { wait: '5s' })
    if (own.happens(0.3)) void sleep(clock, own.whole(0, 9_000)).then(() => locks.drain({ grace: '500ms' }))
    for (let call = 0; call < 3; call += 1) {
      await sleep(clock, own.whole(0, 3_000))
      const asked = pay.run('a', (attempt) => work(attempt, own, clock, witness))
      await asked.then(
        ({ value }) => witness.settled(value),
        () => {},
      )
    }
    over += 1
  }
  for (const name of PROCESSES) void caller(random.fork(name))
  while (over < PROCESSES.length) await clock.advance('1s')
  expect(witness.faults, `with seed ${seed}`).toEqual([])
}

test('no step that was told or stored is forgotten, and no result is replaced, whatever is lost or late', async () => {
  for (let seed = 1; seed <= SCHEDULES; seed += 1) await play(seed)
}, 120_000)
