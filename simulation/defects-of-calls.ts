/**
 * Deliberate defects of what carries the calls of the core: batches, beats, leaves that are repeated, turns inside one
 * process, what is said of a call that failed. None of them lets two hold at once; each makes others wait, turns around
 * who came first, or tells a caller what is not so. Only a check that excuses no more than the faults explain can tell
 * them from bad weather.
 */
import type { Defect } from './defect.ts'

export const CALL_DEFECTS: readonly Defect[] = [
  {
    name: 'a refusal that speaks for its last attempt alone',
    file: 'src/core/entry.ts',
    find: "return this.mayBeInLine || this.pendingEnter !== 0 ? 'unknown' : outcome",
    replace: "return this.inLine || this.pendingEnter !== 0 ? 'unknown' : outcome",
    why: 'an enter that was not answered has let the entry in, and its caller is told that nothing was applied',
  },
  {
    name: 'a refusal that forgets the attempt on its way',
    file: 'src/core/entry.ts',
    find: "return this.mayBeInLine || this.pendingEnter !== 0 ? 'unknown' : outcome",
    replace: "return this.mayBeInLine ? 'unknown' : outcome",
    why: 'it may be applied at any moment',
  },
  {
    name: 'the turn is given on at depth one only',
    file: 'src/core/nested-lease.ts',
    find: 'if (NestedLease.#takesTurns(this.#outer)) this.#outer.cover.queue.give()',
    replace:
      'if (NestedLease.#takesTurns(this.#outer) && !(this.#outer instanceof NestedLease)) this.#outer.cover.queue.give()',
    why: 'siblings inside a nested lease wait for a turn that never comes',
    conditions: { contexts: true },
  },
  {
    name: 'what is nested outlives its outer lease',
    file: 'src/core/nested-lease.ts',
    find: "this.#cover?.end(new LeaseLostError(this.key, this.token, 'released'))",
    replace: '',
    why: 'a caller behind a nested lease that was forgotten waits for ever, and no end of the locks ends that',
    conditions: { contexts: true },
  },
  {
    name: 'what is nested outlives the outermost lease',
    file: 'src/core/entry-lease.ts',
    find: "this.#cover?.end(this.#lossError ?? new LeaseLostError(this.key, this.token, 'released'))",
    replace: '',
    why: 'its work goes on beside the next holder, and is not told',
    conditions: { contexts: true },
  },
  {
    name: 'turns are served last come first',
    file: 'src/core/local-queue.ts',
    find: 'const [next] = this.#line\n',
    replace: 'const next = [...this.#line].at(-1)\n',
    why: 'of many siblings, the first may wait for ever',
    conditions: { contexts: true },
  },
  {
    name: 'a doubtful entry that is gone is not left',
    file: 'src/core/entry-tracker.ts',
    find: '    if (entry.pendingEnter !== 0 || entry.doubtfulUntil > this.#clock.now()) void this.leave(entry)\n',
    replace: '',
    why: 'an enter of it that is still on its way stands in line for no caller, for a whole ttl',
    conditions: {
      ...{ ttlMs: 500, longTtlMs: 500, callTimeoutMs: 120, keys: 1, workers: 3, slow: 0.3, reorder: true },
      mint: 'counter survives',
      timedFaults: Array.from({ length: 12 }, () => 'server clock jump' as const),
    },
  },
  {
    name: 'an evicted waiter that was granted stays in the line',
    file: 'src/core/entry.ts',
    find: '// has not heard of it now, since it is refused.\n    this.inLine = evicted',
    replace: "// has not heard of it now, since it is refused.\n    this.inLine = evicted && this.phase === 'held'",
    why: 'it was granted when it was evicted, and had not heard of it: no process holds, for a whole ttl',
    conditions: { timedFaults: Array.from({ length: 24 }, () => 'eviction' as const) },
  },
  {
    name: 'a wait is refused for one failure',
    file: 'src/core/entry.ts',
    find: '(!this.wait || !error.transient)',
    replace: '(!this.wait || error.transient)',
    why: 'an outage shorter than the ttl is not the business of a caller that has the patience',
  },
  {
    name: 'a wait that runs out is always told as an outage',
    file: 'src/core/acquire.ts',
    find: 'queued || entry.answered ? undefined : unansweredError',
    replace: 'queued ? undefined : unansweredError',
    why: 'the engine has answered, and others were in the way: the caller would look for a fault where none is',
  },
  {
    name: 'a failed leave is not repeated',
    file: 'src/core/sweeper.ts',
    find: 'if (next < departure.overAt) this.#repeat(departure, next, now)',
    replace: 'if (next < 0) this.#repeat(departure, next, now)',
    why: 'one lost message, and the line waits for a whole ttl for an entry that was given back',
  },
  {
    name: 'keys of a slow call do not wait',
    file: 'src/core/batch.ts',
    find: 'if (overAt === undefined) return false\n',
    replace: 'if (overAt !== -1) return false\n',
    why: 'what is asked later may arrive first, and a stuck key takes all the calls there are',
  },
  {
    name: 'the second half is sent first',
    file: 'src/core/batch.ts',
    find: '    for (const item of this.#queue) {\n',
    replace: '    for (const item of [...this.#queue.slice(share), ...this.#queue.slice(0, share)]) {\n',
    why: 'what was asked first stands in line behind what was asked after it',
  },
  {
    name: 'a beat that has slept is waited for',
    file: 'src/core/timer-queue.ts',
    find: 'if (this.#timerAt <= Math.max(at, now) && asleepMs === this.#asleepMs) return',
    replace: 'if (this.#timerAt <= Math.max(at, now)) return',
    why: 'no timer runs while the machine sleeps: what is renewed after it would be renewed too late',
    conditions: { timedFaults: ['suspension', 'suspension', 'suspension', 'suspension'] },
  },
  {
    name: 'a time-out that has slept is waited for',
    file: 'src/core/batch.ts',
    find: 'if (this.#watchAt <= Math.max(at, now) && asleepMs === this.#asleepMs) return',
    replace: 'if (this.#watchAt <= Math.max(at, now)) return',
    why: 'a call that is made after a sleep is given up only when the timer of an earlier one has slept enough',
    conditions: {
      signals: true,
      loseReply: 0.2,
      timedFaults: ['suspension', 'suspension', 'suspension', 'suspension'],
    },
  },
  {
    name: 'a call that has slept holds up its keys',
    file: 'src/core/batch.ts',
    find: 'if (this.#queue.length > 0 && this.#watch !== undefined && this.#asleepMs',
    replace: 'if (this.#queue.length < 0 && this.#watch !== undefined && this.#asleepMs',
    why: 'what waits for it waits for as long as the machine has slept, once more',
    conditions: {
      loseReply: 0.2,
      timedFaults: ['suspension', 'suspension', 'suspension', 'suspension'],
    },
  },
]
