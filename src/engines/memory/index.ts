/**
 * `holdfast/memory`: lines in the memory of one process, for tests and for work that only has to exclude other work of
 * the same process. It is the reference that every other engine is compared with: read it before you write one.
 *
 * Read in this order, after the rule by which an entry holds (../../core/line.ts):
 *
 *     engine.ts             the verbs of the contract
 *     server.ts             what each of them does to the lines
 *     line.ts               one line and its entries
 *     store.ts, records.ts  records beside the lines
 *     pools.ts              pools: stock of which parts are held for a while
 */
import type { Clock } from '../../core/clock.ts'
import { checkOptions, type OptionNames } from '../../core/options.ts'
import { showEngine } from '../../core/show.ts'
import { MemoryEngine } from './engine.ts'
import { MemoryServer } from './server.ts'

export type { MemoryEngine } from './engine.ts'
export { MemoryServer } from './server.ts'

/** Options of `memory()`. */
export interface MemoryOptions {
  /** Where the lines live; a new server of its own unless given. */
  readonly server?: MemoryServer
  /** The clock of that new server. */
  readonly clock?: Clock
}

const MEMORY_OPTIONS: OptionNames<MemoryOptions> = { server: true, clock: true }

/** An engine for one process. Engines that are given the same `server` share their lines. */
export function memory(options: MemoryOptions = {}): MemoryEngine {
  checkOptions('memory()', options, MEMORY_OPTIONS)
  return showEngine(new MemoryEngine(options.server ?? new MemoryServer(options)))
}
