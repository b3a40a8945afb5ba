/**
 * Deliberate defects. Each is a mistake that some lock library has made, or that this one once had, as a small
 * change to one file: the exact text to find (it must be there exactly once) and what to put in its place. The
 * simulator has to catch every one of them (`mutants.ts` tries), or its silence about the real core means nothing.
 */
import type { Conditions } from './conditions.ts'
import type { Defect } from './defect.ts'
import { CALL_DEFECTS } from './defects-of-calls.ts'
import { LIMIT_DEFECTS } from './defects-of-limits.ts'

/** Nothing goes wrong. */
const FAIR: Partial<Conditions> = {
  subscription: 'prompt',
  refuse: 0,
  loseRequest: 0,
  loseReply: 0,
  slow: 0,
  duplicate: 0,
  failItem: 0,
  loseNews: 0,
  slowNews: 0,
  duplicateNews: 0,
  stall: 0,
  timedFaults: [],
}

const core: readonly Defect[] = [
  {
    name: 'validity from the reply',
    file: 'src/core/batch.ts',
    find: 'else this.#spec.answered(items[index] as Item, answer, sent, now)',
    replace: 'else this.#spec.answered(items[index] as Item, answer, { at: now, sequence: sent.sequence }, now)',
    why: 'the engine set the expiry before it answered: counted from the arrival, the holder believes for longer than the engine does',
  },
  {
    name: 'wall clock in lease maths',
    file: 'src/core/clock.ts',
    find: 'return monotonic + asleepMs',
    replace: 'return sources.wallMs()',
    why: 'an administrator or NTP can set the wall clock, and a lease lives for ever when it is set back',
  },
  {
    name: 'sleep is not counted',
    file: 'src/core/clock.ts',
    find: 'if (slept > asleepMs + ROUNDING_MS) asleepMs = slept + BOOT_STEP_MS',
    replace: 'if (slept < asleepMs) asleepMs = slept',
    why: 'monotonic time stands still while a machine sleeps, and the server does not',
  },
  {
    name: 'sleep hidden by a clock set back',
    file: 'src/core/clock.ts',
    find: 'if (Math.abs(ahead - wallAhead) > SUSPICIOUS_MS) {',
    replace: 'if (ahead - wallAhead > SUSPICIOUS_MS) {',
    why: 'a machine that wakes up and sets its wall clock back has slept all the same',
  },
  {
    name: 'no margin',
    file: 'src/core/entry.ts',
    find: 'return ttlMs / 100 + 2',
    replace: 'return 0 * ttlMs',
    why: 'two clocks never run at the same rate',
  },
  {
    name: 'held by flag',
    file: 'src/core/entry-lease.ts',
    find: 'return this.#keeper.entries.check(this.#entry)',
    replace: "return this.#entry.phase === 'held'",
    why: 'no timer fires during a stall: a holder that looks right after it must see the clock, not what the timer would have set',
  },
  {
    name: 'signal aborted by its timer alone',
    file: 'src/core/signal.ts',
    find: '        look()\n        return aborted.call(this)',
    replace: '        return aborted.call(this)',
    why: 'the same for a holder that looks at the signal',
  },
  {
    name: 'no timer at the deadline',
    file: 'src/core/entry.ts',
    find: 'return this.inJeopardy ? this.deadline : this.jeopardyAt',
    replace: 'return Number.POSITIVE_INFINITY',
    why: 'work that only listens to the signal is never told',
  },
  {
    name: 'waiter not removed on abort',
    file: 'src/core/acquire.ts',
    find: '      end({ state })\n      void keeper.entries.leave(entry)',
    replace: '      end({ state })',
    why: 'the place in line is kept, renewed and granted, and no caller wants it',
  },
  {
    name: 'timer of a wait not cleared',
    file: 'src/core/acquire.ts',
    find: '      timer?.cancel()\n',
    replace: '',
    why: 'it holds on to everything it knows until it fires',
  },
  {
    name: 'expired waiter keeps its old id',
    file: 'src/core/acquire.ts',
    find: '  for (let queued = false; ; queued = true) {\n    const entry = new Entry(ask, keeper.chance.id(),',
    replace:
      '  const id = keeper.chance.id()\n  for (let queued = false; ; queued = true) {\n    const entry = new Entry(ask, id,',
    why: 'late news and answers of the first stay are taken for the second',
  },
  {
    name: 'leave overtakes the enter',
    file: 'src/core/sweeper.ts',
    find: '    return entry.enterEnded().then(() => this.#leave(entry, held))',
    replace: '    entry.inLine = true\n    return this.#leave(entry, held)',
    why: 'it finds nothing to take out, and then the enter arrives',
  },
  {
    name: 'doubtful enter not swept',
    file: 'src/core/entry.ts',
    find: 'return this.inLine || this.isDoubtful',
    replace: 'return this.inLine',
    why: 'an enter whose answer was lost stands in line for a whole ttl, and no caller waits for it',
  },
  {
    name: 'renewal after release',
    file: 'src/core/entry-requests.ts',
    find: '      if (entry.over) return false\n      entry.pendingRequest = sent.sequence',
    replace: '      entry.pendingRequest = sent.sequence',
    why: 'on an engine that creates what it renews, the lock is held again, and no process knows',
  },
  {
    name: 'gap ignored',
    file: 'src/core/entry-tracker.ts',
    find: "        if (entry.phase !== 'held') this.#carryOut(entry, entry.hearHint(), now)\n",
    replace: "        if (entry.phase !== 'held') continue\n",
    why: 'a grant that was announced during the outage is noticed only with the next renewal',
  },
  {
    name: 'hint forgotten while asking',
    file: 'src/core/entry-requests.ts',
    find: 'entry.askAgain = entry.pendingRequest !== QUEUED',
    replace: 'entry.askAgain = false',
    why: 'the answer on its way may be older than what the hint is about',
    conditions: { news: 'bare', subscription: 'prompt' },
  },
  {
    name: 'heartbeat dies of one failure',
    file: 'src/core/entry-tracker.ts',
    find: '    this.#carryOut(entry, entry.hearFailure(error, sent, now), now)',
    replace:
      "    if (entry.hearFailure(error, sent, now).step === 'refuse') this.#refuse(entry, error)\n    else this.#heartbeat.remove(entry)",
    why: 'one lost message costs the lease, and the holder is not told',
  },
  {
    name: '`waiting` treated as loss',
    file: 'src/core/entry.ts',
    find: "if (this.phase === 'held') return this.#knownSince(sent) ? { step: 'lose', why: 'expired' } : SCHEDULE\n    if (this.confirming",
    replace: "if (this.phase === 'held') return { step: 'lose', why: 'expired' }\n    if (this.confirming",
    why: 'the answer to a renewal may be older than the news of the grant that overtook it',
  },
  {
    name: 'late answer believed',
    file: 'src/core/entry.ts',
    find: "    if (sent.sequence < this.#answeredSequence && this.phase !== 'held') return ASK\n",
    replace: '',
    why: 'it may speak of an earlier stay of the same id, and be counted from the send of a later one',
    conditions: { slow: 0.3, reorder: true },
  },
  {
    name: 'announcement of an earlier stay believed',
    file: 'src/core/entry.ts',
    find: '    if (this.isDoubtful) return ASK\n',
    replace: '',
    why: 'after an enter of unknown outcome, the id may be in line for the second time',
  },
  {
    name: 'grant by news without a look at the time left',
    file: 'src/core/entry.ts',
    find: 'if (leftMs > 0) return',
    replace: 'if (leftMs > Number.NEGATIVE_INFINITY) return',
    why: 'a lease is returned that is over',
  },
  {
    name: 'another token accepted',
    file: 'src/core/entry.ts',
    find: "    if (token !== this.token) return this.#knownSince(sent) ? { step: 'lose', why: 'expired' } : SCHEDULE\n",
    replace: '',
    why: 'a late duplicate of the enter began another stay; the old token is stale, and the holder goes on with it',
    conditions: { duplicate: 0.5, timedFaults: ['server amnesia', 'server amnesia', 'server amnesia'] },
  },
  {
    name: 'subscription after the enter',
    file: 'src/core/subscription.ts',
    find: '      await attempt\n      if (this.#subscription !== attempt) throw',
    replace: '      void attempt.catch(() => {})\n      if (this.#subscription !== attempt) throw',
    why: 'what is granted before the subscription stands is never announced',
  },
  {
    name: 'the loss of a lease is swallowed',
    file: 'src/core/lock.ts',
    find: '    if (lossError === undefined) return result',
    replace: '    return result',
    why: 'work that met another holder is reported as done',
  },
  {
    name: 'siblings do not take turns',
    file: 'src/core/nested-lease.ts',
    find: 'return outer.holding.limit === 1',
    replace: 'return outer.holding.limit === 0',
    why: 'two nested leases of one mutex work at the same time',
  },
  {
    name: 'a life longer than the ttl is believed',
    file: 'src/core/entry.ts',
    find: 'this.#validMs = Math.min(validMs, this.ttlMs)',
    replace: 'this.#validMs = validMs',
    why: 'an engine whose clock was set between expiry and answer promises more than it keeps',
  },
  {
    name: 'a grant announced in an earlier stay is believed',
    file: 'src/core/entry.ts',
    find: 'if (announced === undefined || this.isDoubtful) return SCHEDULE',
    replace: 'if (announced === undefined) return SCHEDULE',
    why: 'the enter that brought it in had an unknown outcome, and what was announced may be over',
  },
  {
    name: 'the short rest of a wait taken for an outage',
    file: 'src/core/acquire.ts',
    find: 'if (error !== undefined && !answered) {',
    replace: 'if (error !== undefined) {',
    why: 'all that has waited for its first lock has little time for the second: it is late, and the engine is there',
    conditions: {
      ...FAIR,
      ttlMs: 300,
      longTtlMs: 300,
      callTimeoutMs: 900,
      delayMs: 24,
      keys: 3,
      processes: 4,
      workers: 3,
      thinkMs: 10,
    },
  },
  {
    name: 'a part of all not given back',
    file: 'src/primitives/all.ts',
    find: '      void giveBack(parts)\n',
    replace: '',
    why: 'what was taken before the wait ran out is held, and renewed, for ever',
  },
]

const engine: readonly Defect[] = [
  {
    name: 'no settling after a waiter leaves',
    file: 'src/engines/memory/server.ts',
    find: '    this.#takeOut(entry, options)\n    this.#settle(entry.key)',
    replace:
      "    const { state } = entry\n    this.#takeOut(entry, options)\n    if (state === 'held') this.#settle(entry.key)",
    why: 'a cancelled writer between readers keeps those behind it waiting',
  },
  {
    name: 'enter does not renew',
    file: 'src/engines/memory/server.ts',
    find: 'if (known !== undefined) return this.#renew(known, ttlMs, now)',
    replace:
      "if (known !== undefined) return known.state === 'held' ? { state: 'held', token: known.token, heldForMs: ttlMs } : { state: 'waiting', ahead: null }",
    why: 'its answer restarts the deadline of the caller, and not that of the entry',
  },
  {
    name: 'renewal resurrects',
    file: 'src/engines/memory/server.ts',
    find: '  renew(places: readonly Place[]): Standing[] {\n    const now = this.#expire()',
    replace: '  renew(places: readonly Place[]): Standing[] {\n    const now = this.#clock.now()',
    why: 'gone is final',
  },
  {
    name: 'a grant renews',
    file: 'src/engines/memory/server.ts',
    find: '      entry.heldAt = this.#clock.now()\n',
    replace: '      entry.heldAt = this.#clock.now()\n      this.#expiries.put(entry, entry.heldAt + entry.ttlMs)\n',
    why: 'a dead process with many waiters delays the line by a ttl for each of them',
  },
  {
    name: 'token reset',
    file: 'src/engines/memory/server.ts',
    find: 'if (line.entries.size === 1) this.#lines.delete(entry.key)\n',
    replace:
      'if (line.entries.size === 1) {\n        this.#lines.delete(entry.key)\n        this.#lastToken = 0n\n      }\n',
    why: 'counters that go with their key let a stale holder pass every guard',
  },
  {
    name: 'newcomers overtake the line',
    file: 'src/engines/memory/server.ts',
    find: 'const holds = line.first === undefined && line.held.admits(claim)',
    replace: 'const holds = line.held.admits(claim)',
    why: 'readers starve a writer',
  },
]

const guards: readonly Defect[] = [
  {
    name: 'no token is refused',
    file: 'src/guards/marks.ts',
    find: "return access === 'write' ? marks.seen : marks.written",
    replace: "return access === 'write' || marks.seen > 0n ? 0n : marks.written",
    why: 'a holder that was stopped past its ttl writes over what its successor has written',
    conditions: { timedFaults: ['pause', 'pause', 'pause', 'pause'] },
  },
  {
    name: 'reads do not count',
    file: 'src/guards/marks.ts',
    find: 'seen: token > marks.seen ? token : marks.seen,',
    replace: "seen: token > marks.seen && access === 'write' ? token : marks.seen,",
    why: 'a late write between the read and the write of the successor is lost',
    conditions: { timedFaults: ['pause', 'pause', 'pause', 'pause'] },
  },
]

export const DEFECTS: readonly Defect[] = [...core, ...CALL_DEFECTS, ...LIMIT_DEFECTS, ...engine, ...guards]
