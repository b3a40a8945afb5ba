/**
 * Why a case may not apply. Each need answers `true`, or the reason, in words for the report. A case that does not
 * apply has not passed.
 */
import type { Ability, Deployment } from './world.ts'

export type Need = (deployment: Deployment) => true | string

const has = (ability: Ability, { world }: Deployment): true | string => world.lacks?.[ability] ?? true

const unless = (fine: boolean, reason: string): true | string => fine || reason

export const fifo: Need = ({ traits }) => unless(traits.order === 'fifo', 'it promises no order')

export const fencing: Need = ({ traits }) => unless(traits.fencing, 'it has no fencing tokens')

/** Limits above 1. */
export const semaphores: Need = ({ traits }) => unless(traits.sharing === 'full', 'it has no limits above 1')

export const readers: Need = ({ traits }) => unless(traits.sharing !== 'none', 'it has no shared locks')

/** A ttl for each entry, so that one can run out while its neighbour lives. */
export const ownTtl: Need = ({ traits }) =>
  unless(traits.ttl === 'entry', `its ttl belongs to the ${traits.ttl}, not to the entry`)

export const lossBeforeNext: Need = ({ traits }) =>
  unless(traits.lossBeforeNext, 'its server can free a lock at any moment, before the holder knows')

export const wakes: Need = (deployment) => unless(deployment.wakes, 'it sends no news')

export const watches: Need = (deployment) => (deployment.watches ? has('watching', deployment) : 'it cannot be watched')

export const actors: Need = ({ world }) =>
  unless(world.actor !== undefined, world.lacks?.actor ?? 'this world has no clients in processes of their own')

export const restart: Need = ({ world }) =>
  unless(world.restart !== undefined, world.lacks?.restart ?? 'this world cannot restart its server')

/** What is released for later stays busy, and the next one is woken when that time is over. */
export const outliving: Need = (deployment) =>
  deployment.traits.ttl === 'session' ? 'its locks end with the session of their process' : has('outliving', deployment)

/** A holder that is evicted by expiry is told at once. */
export const politeEviction: Need = (deployment) => has('politeEviction', deployment)

/** An inspected line says which of its holders was evicted. */
export const shownEviction: Need = (deployment) => has('shownEviction', deployment)

/** A loop of free locks on it lets the event loop turn. */
export const yielding: Need = (deployment) => has('yielding', deployment)

/** A process that uses it ends by itself. */
export const ending: Need = (deployment) => has('ending', deployment)

export const leftovers: Need = ({ world }) =>
  unless(world.leftovers !== undefined, world.lacks?.leftovers ?? 'this world does not show what its server stores')

export const storing: Need = ({ store }) => unless(store !== undefined, 'it has no store')

/** Its store checks who holds, in the step of the change. */
export const storeHolding: Need = ({ store }) =>
  unless(store?.holding !== false, 'its store cannot check who holds a line')

/** The first reason why it does not apply, if there is one. */
export function inapplicable(needs: readonly Need[] | undefined, deployment: Deployment): string | undefined {
  for (const need of needs ?? []) {
    const answer = need(deployment)
    if (answer !== true) return answer
  }
  return undefined
}
