/** Deliberate defects of the ends that a user sets: of a hold, by `maxHold`, and of a process, by a drain. */
import type { Defect } from './defect.ts'

/** Processes end while others go on. */
const ENDINGS = Array.from({ length: 6 }, () => 'close' as const)

export const LIMIT_DEFECTS: readonly Defect[] = [
  {
    name: 'maxHold is not looked at',
    file: 'src/core/entry-tracker.ts',
    find: "else if (now >= entry.endsAt) this.#lose(entry, 'maxHold')",
    replace: '',
    why: 'work that hangs holds the lock, and renews it, for ever',
    conditions: { maxHolds: true },
  },
  {
    name: 'no timer at the end of maxHold',
    file: 'src/core/entry.ts',
    find: 'if (this.endsAt > at) return at',
    replace: 'if (this.endsAt > 0) return at',
    why: 'work that only listens to the signal is told at some later beat',
    conditions: { maxHolds: true },
  },
  {
    name: 'given away at the end of maxHold',
    file: 'src/core/entry-tracker.ts',
    find: "if (why === 'maxHold' || why === 'evicted' || why === 'closed') this.#overstay(entry)",
    replace: "if (why === 'maxHold') void this.leave(entry)",
    why: 'the next one is let in while the work of the first, which has just been told to stop, is still going on',
    conditions: { maxHolds: true },
  },
  {
    name: 'a drain lets waiters be granted',
    file: 'src/core/entry-tracker.ts',
    find: "    for (const entry of this.#table.all()) if (entry.phase !== 'held' && !entry.over) this.#refuse(entry, error())\n",
    replace: '',
    why: 'a process that is to end begins new work, and dies in the middle of it',
    conditions: { drains: 1 },
  },
  {
    name: 'a drain lets what is asked meanwhile be granted',
    file: 'src/core/keeper.ts',
    find: 'return this.#draining.begun ? this.#draining.error() : undefined',
    replace: 'return undefined',
    why: 'a process that is to end begins new work, and dies in the middle of it',
    conditions: { drains: 1 },
  },
  {
    name: 'a drain leaves holders no time',
    file: 'src/core/keeper.ts',
    find: 'await fallbackAfter(clock, leftMs(), drained, undefined, closing)',
    replace: 'await fallbackAfter(clock, leftMs() / 2, drained, undefined, closing)',
    why: 'half of a payment is done, and the other half would have had its time',
    conditions: { drains: 1 },
  },
  {
    name: 'a drain waits though nothing is held',
    file: 'src/core/entry-tracker.ts',
    find: 'if (this.#table.size === 0) this.#onEmpty?.()',
    replace: '',
    why: 'every end of a process takes all of the grace, and its supervisor kills it',
    conditions: { drains: 1 },
  },
  {
    name: 'no moment at the end of a drain',
    file: 'src/core/keeper.ts',
    find: 'await fallbackAfter(clock, LAST_MOMENT_MS, drained, undefined, closing)',
    replace: 'await fallbackAfter(clock, 0, drained, undefined, closing)',
    why: 'a listener that tidies up for ten milliseconds does so while the next one works already',
    conditions: { drains: 1, timedFaults: ENDINGS },
  },
  {
    name: 'told at the end of a drain after its release',
    file: 'src/core/entry-tracker.ts',
    find: "for (const entry of told) if (entry.phase === 'held') this.#lose(entry, 'closed')",
    replace: "for (const entry of told) this.#lose(entry, 'closed')",
    why: 'a holder that gives back several keys when it is told of one hears that it has lost the others',
    conditions: { drains: 1, timedFaults: ENDINGS, keys: 3 },
  },
  {
    name: 'what a drain has told to stop cannot keep its key busy',
    file: 'src/core/entry-tracker.ts',
    find: "const toldToEnd = entry.lost === 'maxHold' || entry.lost === 'closed'",
    replace: "const toldToEnd = entry.lost === 'maxHold'",
    why: 'a job that must not run again within a minute runs at once on the next host',
    conditions: { drains: 1, timedFaults: ENDINGS },
  },
]
