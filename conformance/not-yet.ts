/**
 * Engines of this package that do not keep a promise yet, by the ability that they lack. Their cases are reported as
 * not applicable, with the reason. A line goes when its engine keeps the promise. When all have gone, so does this
 * file.
 */
import type { Ability } from './world.ts'

const NEXT_RENEWAL = 'its holders hear of an eviction with their next renewal'
const NEXT_POLL = 'its waiters look at the old expiry, and find out with their next renewal'
const SOCKETS = 'its sockets keep a process alive that has not closed its locks'

export const NOT_YET: { readonly [Name in Ability]?: Readonly<Record<string, string>> } = {
  politeEviction: {
    postgres: NEXT_RENEWAL,
    mysql: NEXT_RENEWAL,
  },
  outliving: { redlock: NEXT_POLL },
  ending: { redis: SOCKETS, redlock: SOCKETS },
}
