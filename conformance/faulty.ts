/**
 * An engine with a bad way to it: requests and replies that are lost, held up or repeated, and a connection that can be
 * cut and healed. It works around any engine, so that every engine is tried with the same faults, in one process, at
 * exactly the moment that matters.
 *
 *     const engine = faulty(await redis({ url }))
 *     const held = engine.next('enter', 'hold reply')   // the next enter is applied, and its answer stays on the way
 *     ...
 *     await held.reached                                // it has been applied
 *     held.release()                                    // and now the answer arrives
 */
import type { Engine, News } from '../src/core/engine.ts'
import { EngineError } from '../src/core/errors.ts'
import type { Store } from '../src/core/store.ts'
import { delegate } from './delegate.ts'

/** The calls that can be made to fail. From `get` on they are those of the store. */
export type FaultyVerb = 'enter' | 'renew' | 'leave' | 'get' | 'put' | 'hold' | 'putEntering' | 'putLeaving'

/**
 * What happens to one call. `lose`: the caller gets an `EngineError` of unknown outcome, as from a connection that
 * broke. `hold`: it stops on the way until released. `hold request, lose reply`: both. `repeat`: the request arrives
 * twice; the first answer counts.
 */
export type Fault =
  | 'lose request'
  | 'lose reply'
  | 'hold request'
  | 'hold reply'
  | 'hold request, lose reply'
  | 'repeat'

/** A fault that is planned for one call. */
export interface PlannedFault {
  /** The call has come to the place where it is lost or held. */
  readonly reached: Promise<void>
  /** The call is over, whichever way it went. */
  readonly over: Promise<void>
  /** Let a held call go on. */
  release(): void
}

/** An engine whose calls can be made to fail. */
export interface FaultyEngine extends Engine {
  /** Plan a fault for the next call of `verb` that has none yet. */
  next(verb: FaultyVerb, fault: Fault): PlannedFault
  /**
   * From now on nothing goes out and nothing comes in, and neither side is told: calls just hang. For good, this is a
   * crash.
   */
  cut(): void
  /**
   * The way is open again: calls that hung fail, as with a broken connection, and the core hears that it may have
   * missed news.
   */
  heal(): void
  /** While true, news are lost. */
  deaf: boolean
  /** Make up some news. */
  tell(news: News): void
}

interface FaultPlan {
  readonly fault: Fault
  readonly reach: () => void
  readonly end: () => void
  readonly released: Promise<void>
}

/** An engine around another one, to make its calls fail on purpose. */
export function faulty(engine: Engine): FaultyEngine {
  const plans: Record<FaultyVerb, FaultPlan[]> = {
    enter: [],
    renew: [],
    leave: [],
    get: [],
    put: [],
    hold: [],
    putEntering: [],
    putLeaving: [],
  }
  const hanging = new Set<() => void>()
  let isCut = false
  let listener: ((news: News) => void) | undefined

  const broken = (verb: string): EngineError =>
    new EngineError(engine.name, `the connection broke during ${verb}`, { outcome: 'unknown' })

  const hang = (verb: string): Promise<never> =>
    new Promise((_, reject) => {
      hanging.add(() => reject(broken(verb)))
    })

  /** The way to the engine and back, without a planned fault. */
  const pass = async <Answer>(verb: string, go: () => Promise<Answer>): Promise<Answer> => {
    if (isCut) return hang(verb)
    const answer = await go()
    return isCut ? hang(verb) : answer
  }

  const call = async <Answer>(verb: FaultyVerb, go: (late?: boolean) => Promise<Answer>): Promise<Answer> => {
    const plan = isCut ? undefined : plans[verb].shift()
    if (plan === undefined) return pass(verb, go)
    try {
      return await callWithFault(plan, verb, go)
    } finally {
      plan.end()
    }
  }

  const callWithFault = async <Answer>(
    plan: FaultPlan,
    verb: FaultyVerb,
    go: (late?: boolean) => Promise<Answer>,
  ): Promise<Answer> => {
    const { fault, reach, released } = plan
    if (fault === 'lose request') {
      reach()
      throw broken(verb)
    }
    if (fault === 'hold request' || fault === 'hold request, lose reply') {
      reach()
      await released
      const answer = await pass(verb, () => go(true))
      if (fault === 'hold request') return answer
      throw broken(verb)
    }
    const answer = await pass(verb, go)
    if (fault === 'repeat') await pass(verb, go)
    reach()
    if (fault === 'lose reply') throw broken(verb)
    if (fault === 'hold reply') await released
    return isCut ? hang(verb) : answer
  }

  const wrapper = delegate(engine, {
    // A request that was held up is out of its sender's hands: no signal takes it back.
    enter: (claims, signal) => call('enter', (late) => engine.enter(claims, late ? undefined : signal)),
    renew: (places, signal) => call('renew', (late) => engine.renew(places, late ? undefined : signal)),
    leave: (places) => call('leave', () => engine.leave(places)),
    evict: (key, token, how) => pass('evict', () => engine.evict(key, token, how)),
    inspect: (key) => pass('inspect', () => engine.inspect(key)),
  })
  const { store } = engine
  if (store !== undefined) {
    const { putIn, take, hold, putEntering, putLeaving } = store
    const faultyStore: Store = {
      traits: store.traits,
      get: (keys, signal) => call('get', (late) => store.get(keys, late ? undefined : signal)),
      put: (changes, signal) => call('put', (late) => store.put(changes, late ? undefined : signal)),
      list: (prefix, onProgress) => store.list(prefix, onProgress),
      ...(take === undefined ? {} : { take: (draws, signal) => pass('take', () => take.call(store, draws, signal)) }),
      ...(hold === undefined ? {} : { hold: (steps, signal) => call('hold', () => hold.call(store, steps, signal)) }),
      // It goes by the connection of the user.
      ...(putIn === undefined ? {} : { putIn: (transaction, change) => putIn.call(store, transaction, change) }),
      ...(putEntering === undefined
        ? {}
        : { putEntering: (entrances) => call('putEntering', () => putEntering.call(store, entrances)) }),
      ...(putLeaving === undefined
        ? {}
        : { putLeaving: (leavings) => call('putLeaving', () => putLeaving.call(store, leavings)) }),
    }
    Object.assign(wrapper, { store: faultyStore })
  }
  if (engine.subscribe !== undefined) {
    wrapper.subscribe = (heard) => {
      listener = heard
      return pass('subscribe', () =>
        (engine.subscribe as NonNullable<Engine['subscribe']>)((news) => {
          if (!isCut && !faults.deaf) heard(news)
        }),
      )
    }
  }

  const faults: FaultyEngine = Object.assign(wrapper, {
    deaf: false,
    next(verb: FaultyVerb, fault: Fault): PlannedFault {
      const { promise: reached, resolve: reach } = opening()
      const { promise: over, resolve: end } = opening()
      const { promise: released, resolve: release } = opening()
      plans[verb].push({ fault, reach, end, released })
      return { reached, over, release }
    },
    cut(): void {
      isCut = true
    },
    heal(): void {
      isCut = false
      for (const fail of hanging) fail()
      hanging.clear()
      listener?.({ gap: true })
    },
    tell(news: News): void {
      listener?.(news)
    },
  })
  return faults
}

/** `Promise.withResolvers`, which Node 20 has not. */
function opening(): { promise: Promise<void>; resolve: () => void } {
  let resolve!: () => void
  const promise = new Promise<void>((open) => {
    resolve = open
  })
  return { promise, resolve }
}
