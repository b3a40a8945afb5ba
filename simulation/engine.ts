/**
 * The engine that a simulated process has: the contract on one side, messages through a network that cannot be trusted
 * on the other. The lines are in the server; nothing is decided here.
 */
import type { Engine, Standing, Traits } from '../src/core/engine.ts'
import type { Link } from './link.ts'
import type { World } from './world.ts'

export function simulatedEngine(world: World, link: Link): Engine {
  const { server, witness, conditions } = world
  const traits: Traits = {
    order: 'fifo',
    fencing: true,
    sharing: 'full',
    ttl: 'entry',
    minTtlMs: 10,
    lossBeforeNext: true,
    lineBound: 10_000,
    batchLimit: conditions.batchLimit,
    ...(conditions.splitFrom === undefined ? {} : { splitFrom: conditions.splitFrom }),
    takesSignal: conditions.signals ? ['enter', 'renew'] : [],
    tokensSurvive: 'everything that is simulated',
    survives: 'everything that is simulated, but the loss of its memory and the setting of its clock',
  }
  const engine: Engine = {
    name: 'simulated',
    traits,
    enter: (claims, signal) =>
      link.call('enter', claims, signal, () => {
        const standings = server.lines.enter(claims, link.news.client)
        witness.looks(claims)
        return overstated(world, standings)
      }),
    renew: (places, signal) =>
      link.call('renew', places, signal, () => {
        const standings = server.lines.renew(places)
        witness.looks(places)
        return overstated(world, standings)
      }),
    leave: (places) =>
      link.call('leave', places, undefined, () => {
        const left = server.lines.leave(places)
        witness.looks(
          places.map(({ key }) => ({ key })),
          places,
        )
        return left
      }),
    evict: (key, token, how) => link.ask(() => server.lines.evict(key, token, how)),
    inspect: (key) => link.ask(() => server.lines.inspect(key)),
    async *list(prefix) {
      yield* await link.ask(() => [...server.lines.list(prefix)])
    },
    async [Symbol.asyncDispose]() {
      link.close()
    },
  }
  if (conditions.watch) engine.watch = (key, listener) => link.news.watch(key, listener)
  if (conditions.news !== 'none') engine.subscribe = (listener) => link.news.subscribe(listener)
  return engine
}

/** Some standings, with a longer life than they have. */
function overstated({ conditions, random }: World, standings: Standing[]): Standing[] {
  if (conditions.overstate === 0) return standings
  return standings.map((standing) => {
    if (!random.happens(conditions.overstate)) return standing
    const longMs = conditions.longTtlMs * random.between(1, 3)
    if (standing.state === 'held') return { ...standing, heldForMs: longMs }
    return standing.state === 'waiting' ? { ...standing, livesForMs: longMs } : standing
  })
}
