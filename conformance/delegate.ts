/** An engine that passes everything on to another, except what is overridden: the stuff that wrappers are made of. */
import type { Engine } from '../src/core/engine.ts'

export function delegate(to: Engine, overrides: Partial<Engine> = {}): Engine {
  const passing: Engine = {
    name: to.name,
    traits: to.traits,
    enter: (claims, signal) => to.enter(claims, signal),
    renew: (places, signal) => to.renew(places, signal),
    leave: (places) => to.leave(places),
    evict: (key, token, how) => to.evict(key, token, how),
    inspect: (key) => to.inspect(key),
    list: (prefix, onProgress) => to.list(prefix, onProgress),
    [Symbol.asyncDispose]: () => to[Symbol.asyncDispose](),
  }
  const { subscribe, watch, store, diagnose } = to
  if (store !== undefined) Object.assign(passing, { store })
  if (subscribe !== undefined) passing.subscribe = (listener) => subscribe.call(to, listener)
  if (watch !== undefined) passing.watch = (key, listener) => watch.call(to, key, listener)
  if (diagnose !== undefined) passing.diagnose = () => diagnose.call(to)
  return Object.assign(passing, overrides)
}
