/**
 * What most tests of the core begin with: a clock that moves only when told and counts what was left standing, chance
 * that is none, and promises one can look at.
 */

import { delegate } from '../../conformance/delegate.ts'
import type { Chance, Timer } from '../../src/core/clock.ts'
import type { Engine, Traits } from '../../src/core/engine.ts'
import type { Lease } from '../../src/core/lease.ts'
import type { LocksOptions } from '../../src/core/locks-options.ts'
import { memory } from '../../src/engines/memory/index.ts'
import { createLocks, type Locks } from '../../src/locks.ts'
import { type FakeClock, fakeClock } from '../../src/testing.ts'
import { held, ScriptedEngine, settled, unreachable } from './scripted-engine.ts'

/** A fake clock that counts its timers, and who keeps the process alive. */
export interface CountingClock extends FakeClock {
  readonly timers: number
  readonly alive: number
}

export function countingClock(): CountingClock {
  const clock = fakeClock()
  const timers = new Set<object>()
  const alive = new Set<object>()
  const counted = (set: Set<object>, timer: Timer): Timer => {
    set.add(timer)
    return {
      cancel: () => {
        set.delete(timer)
        timer.cancel()
      },
    }
  }
  return {
    ...clock,
    get timers() {
      return timers.size
    },
    get alive() {
      return alive.size
    },
    timer(delayMs, fire) {
      const timer = counted(
        timers,
        clock.timer(delayMs, () => {
          timer.cancel()
          fire()
        }),
      )
      return timer
    },
    stayAlive: () => counted(alive, clock.stayAlive()),
  }
}

/** Ids in order, and jitter of exactly one. */
export function evenChance(): Chance {
  let count = 0
  return {
    fraction: () => 0.5,
    id: () => {
      count += 1
      return `id-${count}`
    },
  }
}

/** The ttl of all locks in these tests, unless a test says otherwise. */
export const TTL = 30_000
/** A third of it: the time between two renewals. */
export const BEAT: number = TTL / 3
/** What a holder keeps clear of its expiry. */
export const MARGIN: number = TTL / 100 + 2

export interface ScriptedWorld {
  readonly clock: CountingClock
  readonly engine: ScriptedEngine
  readonly locks: Locks
}

/** Locks on an engine that the test plays. */
export function scripted(options: LocksOptions = {}, traits: Partial<Traits> = {}): ScriptedWorld {
  const clock = countingClock()
  const engine = new ScriptedEngine(traits)
  return {
    clock,
    engine,
    locks: createLocks(engine, { clock, chance: evenChance(), ttl: TTL, holder: 'me', ...options }),
  }
}

/** Locks on an engine that the test plays, and a lease of `a` that it has granted. */
export async function holding(options: LocksOptions = {}): Promise<ScriptedWorld & { lease: Lease; id: string }> {
  const world = scripted(options)
  const asked = watched(world.locks.mutex('a').acquire())
  const enter = await world.engine.next('enter')
  await enter.answer(held(1n))
  return { ...world, lease: asked.value, id: enter.ids[0] as string }
}

export interface MemoryWorld {
  readonly clock: CountingClock
  readonly engine: Engine
  readonly locks: Locks
  /** `enter a b`, `leave a`, ... in the order of the calls. */
  readonly log: readonly string[]
}

/** Locks on the memory engine, on a clock that the test moves. */
export function inMemory(options: LocksOptions = {}): MemoryWorld {
  const clock = countingClock()
  const log: string[] = []
  const engine = recorded(memory({ clock }), log)
  return { clock, engine, log, locks: createLocks(engine, { clock, ttl: TTL, holder: 'me', ...options }) }
}

/** The same engine, with its calls written down. */
export function recorded(engine: Engine, log: string[]): Engine {
  const note = <Items extends readonly { readonly key: string }[]>(verb: string, items: Items): Items => {
    log.push(`${verb} ${items.map(({ key }) => key).join(' ')}`)
    return items
  }
  return delegate(engine, {
    enter: (claims, signal) => engine.enter(note('enter', claims), signal),
    renew: (places, signal) => engine.renew(note('renew', places), signal),
    leave: (places) => engine.leave(note('leave', places)),
  })
}

/** A promise whose state can be looked at. A rejection counts as seen. */
export interface Watched<Value> {
  readonly state: 'pending' | 'resolved' | 'rejected'
  /** The value; throws unless it is resolved. */
  readonly value: Value
  /** The error; throws unless it is rejected. */
  readonly error: unknown
}

export function watched<Value>(promise: Promise<Value>): Watched<Value> {
  let outcome: { state: 'resolved'; value: Value } | { state: 'rejected'; error: unknown } | undefined
  promise.then(
    (value) => {
      outcome = { state: 'resolved', value }
    },
    (error: unknown) => {
      outcome = { state: 'rejected', error }
    },
  )
  return {
    get state() {
      return outcome?.state ?? 'pending'
    },
    get value() {
      if (outcome?.state === 'resolved') return outcome.value
      throw new Error('not resolved', { cause: outcome })
    },
    get error() {
      if (outcome?.state === 'rejected') return outcome.error
      throw new Error('not rejected', { cause: outcome })
    },
  }
}

/** A promise to be resolved by the test. */
export interface Gate {
  readonly opened: Promise<void>
  open(): void
}

export function gate(): Gate {
  let open = (): void => {}
  const opened = new Promise<void>((resolve) => {
    open = resolve
  })
  return { opened, open: () => open() }
}

export { settled }

/** Let time pass while every call but leaves fails at once. */
export async function outage({ engine, clock }: ScriptedWorld, ms: number): Promise<void> {
  for (const until = clock.now() + ms; clock.now() < until; ) {
    await clock.advance(Math.min(500, until - clock.now()))
    for (const call of await engine.unseen()) {
      const verb = call.split(' ')[0] as 'enter' | 'renew'
      await (await engine.next(verb)).fail(unreachable())
    }
  }
}
