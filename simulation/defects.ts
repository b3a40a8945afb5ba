/**
 * Deliberate defects. Each is one mistake that a lock library has made, or that the core made once, as a patch: the text to find, which has to occur exactly once in
 * its file, and what to put in its place. The simulator has to catch every one of them (mutants.ts); one that survives means that a check or a fault is missing.
 */
export interface Defect {
  /** The mistake, in a few words. */
  readonly name: string
  readonly file: string
  readonly find: string
  readonly replace: string
}

const ENTRY = 'src/core/entry.ts'
const KEEPER = 'src/core/keeper.ts'
const SWEEPER = 'src/core/sweeper.ts'
const MEMORY = 'src/engines/memory.ts'

export const DEFECTS: readonly Defect[] = [
  {
    name: 'validity is counted from the reply',
    file: KEEPER,
    find: 'this.#carryOut(entry, entry.hear(standing, sent, this.clock.now()))',
    replace: 'this.#carryOut(entry, entry.hear(standing, { ...sent, at: this.clock.now() }, this.clock.now()))',
  },
  {
    name: 'a wall clock in the lease maths',
    file: 'src/core/clock.ts',
    find: '    return monotonic + asleepMs\n',
    replace: '    return sources.wallMs() + asleepMs * 0 + monotonic * 0\n',
  },
  {
    name: 'time asleep is not counted',
    file: 'src/core/clock.ts',
    find: 'if (slept > asleepMs + BOOT_STEP_MS) asleepMs = slept',
    replace: 'if (slept > asleepMs + BOOT_STEP_MS) asleepMs += 0',
  },
  { name: 'no margin', file: ENTRY, find: 'return ttlMs / 100 + 2', replace: 'return ttlMs * 0' },
  {
    name: 'loss by the timer alone: a look does not look at the clock',
    file: KEEPER,
    find: "if (entry.phase === 'held' && this.clock.now() >= entry.deadline) this.#lose(entry, 'deadline')",
    replace: '',
  },
  {
    name: 'a waiter that gives up stays in the line',
    file: 'src/core/acquire.ts',
    find: '      void keeper.leave(entry)\n',
    replace: '',
  },
  {
    name: 'no settling after a waiter leaves',
    file: MEMORY,
    find: '    this.#takeOut(entry, options)\n    this.#settle(entry.key)\n',
    replace: "    const settles = entry.state !== 'waiting'\n    this.#takeOut(entry, options)\n    if (settles) this.#settle(entry.key)\n",
  },
  {
    name: 'entering again does not renew',
    file: MEMORY,
    find: 'if (known !== undefined) return this.#renewEntry(known, claim.ttlMs, now)',
    replace:
      "if (known !== undefined) return known.state === 'waiting' ? { state: 'waiting', ahead: null } : { state: 'held', token: known.token, heldForMs: claim.ttlMs }",
  },
  {
    name: 'a leave overtakes the enter',
    file: KEEPER,
    find: '    if (entry.entering !== 0) await entry.entered()\n    if (!entry.mayBeInLine) return false\n',
    replace: '',
  },
  {
    name: 'renewals go on after the release',
    file: KEEPER,
    find: '    const { phase } = entry\n    this.#drop(entry)\n',
    replace: '    const { phase } = entry\n',
  },
  {
    name: 'a renewal brings back what has expired',
    file: MEMORY,
    find: "return entry === undefined ? { state: 'gone', why: 'unknown' } : this.#renewEntry(entry, place.ttlMs, now)",
    replace:
      "return entry === undefined ? { state: 'held', token: this.#lastToken, heldForMs: place.ttlMs } : this.#renewEntry(entry, place.ttlMs, now)",
  },
  {
    name: 'entering before the subscription stands',
    file: 'src/core/verbs.ts',
    find: '      await attempt\n      if (this.#subscription !== attempt) throw',
    replace: '      void attempt.catch(() => {})\n      if (this.#subscription !== attempt) throw',
  },
  {
    name: 'a token is given twice',
    file: MEMORY,
    find: '      token: this.#lastToken,\n      client,',
    replace: '      token: this.#lastToken - (this.#lastToken % 3n === 0n ? 1n : 0n),\n      client,',
  },
  {
    name: "an old 'waiting' is taken for a loss",
    file: ENTRY,
    find: "    if (this.phase === 'held') return this.#knownSince(sent) ? { step: 'lose', why: 'expired' } : PLAN\n    this.phase = 'waiting'",
    replace: "    if (this.phase === 'held') return { step: 'lose', why: 'expired' }\n    this.phase = 'waiting'",
  },
  {
    name: 'a timer is not cleared',
    file: KEEPER,
    find: '    this.#heartbeat.stop()\n    this.#sweeper.stop()\n',
    replace: '    this.#sweeper.stop()\n',
  },
  {
    name: 'news of a grant is believed however little time is left',
    file: ENTRY,
    find: 'if (leftMs < this.ttlMs / 2 && !this.confirming) {',
    replace: 'if (leftMs > this.ttlMs * 2) {',
  },
  {
    name: 'another token on renewal is accepted',
    file: ENTRY,
    find: "if (token !== this.token) return this.#knownSince(sent) ? { step: 'lose', why: 'expired' } : PLAN",
    replace: 'this.token = token',
  },
  {
    name: 'an enter of unknown outcome is not swept',
    file: SWEEPER,
    find: 'if (now < doubtfulUntil) this.#repeat(departure, Math.min(now + departure.ttlMs / 3, doubtfulUntil))\n    else this.#end(departure)',
    replace: 'this.#end(departure)',
  },
  {
    name: 'a gap in the news is ignored',
    file: KEEPER,
    find: "for (const entry of this.#entries.values()) if (entry.phase !== 'held') this.#carryOut(entry, entry.hearHint())",
    replace: '',
  },
  {
    name: 'the heartbeat dies with the first failure',
    file: KEEPER,
    find: "if (entry.phase === 'entering' && (!entry.wait || !error.transient)) this.#refuse(entry, error)\n    else this.#plan(entry)",
    replace: "if (entry.phase === 'entering' && (!entry.wait || !error.transient)) this.#refuse(entry, error)",
  },
  {
    name: 'a hint that comes while a question is on its way is forgotten',
    file: KEEPER,
    find: 'entry.askAgain = entry.asking !== QUEUED',
    replace: 'entry.askAgain = false',
  },
  {
    name: 'news of an earlier stay is believed',
    file: ENTRY,
    find: '    if (this.#isDoubtful) return ASK\n',
    replace: '',
  },
  {
    name: 'an overtaken answer is believed',
    file: ENTRY,
    find: "if (sent.order < this.#answeredOrder && this.phase !== 'held') return ASK",
    replace: '',
  },
  {
    name: 'an expired waiter is told that it failed',
    file: ENTRY,
    find: "if (!evicted) return { step: 'finish', outcome: { state: 'again' } }",
    replace: "if (!evicted) return { step: 'finish', outcome: { state: 'busy', ahead: null } }",
  },
  {
    name: 'a grant sets the expiry anew',
    file: MEMORY,
    find: '      entry.heldAt = this.#clock.now()\n',
    replace: '      entry.heldAt = this.#clock.now()\n      this.#expiries.put(entry, entry.heldAt + entry.ttlMs)\n',
  },
  {
    name: 'a grant that a cancellation raced with is kept',
    file: 'src/core/acquire.ts',
    find: "if (state === 'timeout' && entry.phase === 'held') return",
    replace: "if (entry.phase === 'held') return resolve({ state })",
  },
]
