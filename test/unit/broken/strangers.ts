/**
 * An engine whose processes know nothing of each other: each has lines of its own. What real processes do in one file
 * shows it.
 */
import { memory } from '../../../src/engines/memory/index.ts'
import { builtModule } from '../../built.ts'
import type { Defect } from './defect.ts'

export const strangers: Defect = {
  name: 'keeps lines of its own in every process',
  fails: [
    'mutex: processes that count in one file lose no update',
    'a process whose wall clock is an hour ahead neither takes a lock that is held nor waits longer for one that is free',
    'a process whose wall clock is an hour behind neither takes a lock that is held nor waits longer for one that is free',
    'a process that waits is killed: the one behind it is served',
  ],
  because: /Expected values|never happened: 2 in the line/,
  limitMs: 8_000,
  world: () => ({
    engine: () => memory(),
    actor: () => ({ module: builtModule('src/engines/memory/index.ts'), export: 'memory' }),
  }),
}
