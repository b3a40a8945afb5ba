/** An engine that breaks one promise, and the cases that must notice. */
import { delegate } from '../../../conformance/delegate.ts'
import type { World } from '../../../conformance/index.ts'
import type { Clock } from '../../../src/core/clock.ts'
import type { Claim, Engine, Standing } from '../../../src/core/engine.ts'
import { MemoryServer, memory } from '../../../src/engines/memory/index.ts'

export interface Defect {
  /** What it does wrong. */
  readonly name: string
  /** Which cases fail, by name. */
  readonly fails: readonly string[]
  /** What each of these failures says. Anything, unless given. */
  readonly because?: RegExp
  /** How long each of them may take: 2 s unless given, which all of them keep to with an engine that is not broken. */
  readonly limitMs?: number
  world(): World
}

export interface DefectOptions extends Pick<Defect, 'because' | 'limitMs'> {
  /** Of the server. */
  readonly clock?: Clock
  /** Of the server. */
  readonly mint?: (previous: bigint) => bigint
}

/**
 * A memory engine, of which something is overridden. `change` is called for every client; what clients share is made by
 * `defect`'s caller.
 */
export function defect(
  name: string,
  fails: readonly string[],
  change: (engine: Engine, server: MemoryServer) => Partial<Engine>,
  { because, limitMs, ...serverOptions }: DefectOptions = {},
): Defect {
  return {
    name,
    fails,
    ...(because === undefined ? {} : { because }),
    ...(limitMs === undefined ? {} : { limitMs }),
    world() {
      const server = new MemoryServer(serverOptions)
      return {
        engine() {
          const engine = memory({ server })
          return delegate(engine, change(engine, server))
        },
      }
    },
  }
}

/** Enter with other claims than were asked for. */
export function claiming(engine: Engine, change: (claim: Claim) => Claim): Partial<Engine> {
  return { enter: (claims, signal) => engine.enter(claims.map(change), signal) }
}

/** Answer something else than the truth. */
export function answering(engine: Engine, change: (standing: Standing) => Standing): Partial<Engine> {
  return {
    enter: async (claims, signal) => (await engine.enter(claims, signal)).map(change),
    renew: async (places, signal) => (await engine.renew(places, signal)).map(change),
  }
}

/** Keep lines under other keys than they were given. */
export function renaming(engine: Engine, rename: (key: string) => string): Partial<Engine> {
  const renamed = <Place extends { readonly key: string }>(place: Place): Place => ({
    ...place,
    key: rename(place.key),
  })
  return {
    enter: (claims, signal) => engine.enter(claims.map(renamed), signal),
    renew: (places, signal) => engine.renew(places.map(renamed), signal),
    leave: (places) => engine.leave(places.map(renamed)),
    evict: (key, token, how) => engine.evict(rename(key), token, how),
    inspect: async (key) => ({ ...(await engine.inspect(rename(key))), key }),
    list: (prefix) => engine.list(rename(prefix)),
  }
}
