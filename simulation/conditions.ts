/**
 * The conditions of a seed's world: how fast it is, how lossy, how many processes it has, which faults happen. They are
 * drawn once, at the beginning, so that some worlds are perfectly fair (there, nothing may be lost or late at all),
 * some have one kind of trouble, and some have everything at once.
 */
import type { ResumeOrder } from './actor.ts'
import type { Random } from './random.ts'

/** Faults that happen to a process or to the server at some moment, as opposed to those of single messages. */
export const TIMED_FAULTS = [
  'blackout',
  'pause',
  'suspension',
  'crash',
  'close',
  'wall clock jump',
  'server freeze',
  'server restart',
  'server amnesia',
  'server clock jump',
  'eviction',
] as const
export type TimedFault = (typeof TIMED_FAULTS)[number]

export interface Conditions {
  readonly ttlMs: number
  /** Some locks have a longer ttl, in some worlds. */
  readonly longTtlMs: number
  readonly callTimeoutMs: number
  /** The greatest one-way delay of an ordinary message. */
  readonly delayMs: number
  /** Messages may overtake each other, as on several connections. */
  readonly reorder: boolean
  readonly news: 'standing' | 'bare' | 'none'
  /** Whether observers are woken, or have to look. */
  readonly watch: boolean
  readonly subscription: 'prompt' | 'slow' | 'fails at first'
  /** What tokens continue from when the server has lost its memory. */
  readonly mint: 'counter survives' | 'server time'
  /**
   * Whether the engine takes the signal by which the core gives up on a call. Making one is dear, so most worlds do
   * without.
   */
  readonly signals: boolean
  /**
   * Whether workers use `using`. The async contexts behind it make every promise dearer, so most worlds do without.
   */
  readonly contexts: boolean
  /**
   * How often the engine answers that an entry lives for longer than its ttl, as one whose clock was set back between
   * the expiry and the answer. The core must not believe it.
   */
  readonly overstate: number
  /** Whether some leases may be held for a limited time only. */
  readonly maxHolds: boolean
  /** How often a process that ends drains its locks, instead of closing them at once. */
  readonly drains: number
  readonly batchLimit: number
  /** From how many items on half a batch goes out by itself; undefined: batches are not halved. */
  readonly splitFrom: number | undefined
  readonly processes: number
  readonly workers: number
  readonly keys: number
  /** Whether many workers of one process ask in the same moment, so that batches are large, and halved. */
  readonly crowded: boolean
  /** Whether each process has an observer, which watches an election. */
  readonly observers: boolean
  /**
   * How long a worker is busy with something else, at most: the more of them there are, the longer, or all they would
   * do is wait.
   */
  readonly thinkMs: number
  /** How often each of these happens to a message. */
  readonly refuse: number
  readonly loseRequest: number
  readonly loseReply: number
  readonly slow: number
  readonly duplicate: number
  readonly failItem: number
  readonly loseNews: number
  readonly slowNews: number
  readonly duplicateNews: number
  /** How often the program stalls its own event loop. */
  readonly stall: number
  /** What happens at some moment, each as often as it is listed. */
  readonly timedFaults: readonly TimedFault[]
  /** What may come first when a process that was stopped goes on. */
  readonly resumeOrders: readonly ResumeOrder[]
}

/** Delays are small against every ttl, unless something is wrong. */
const DELAY_SHARE = 1 / 80

/** `given` takes the place of what is drawn: to look closer at one kind of world. */
export function drawConditions(random: Random, given: Partial<Conditions>): Conditions {
  const mood = random.pick(MOODS)
  const fair = mood === 'fair'
  const often = (probability: number): number => {
    if (fair || !random.happens(mood === 'wild' ? 0.7 : 0.35)) return 0
    return random.between(probability / 4, mood === 'wild' ? 3 * probability : probability)
  }
  const ttlMs = random.pick([300, 500, 1000, 1500, 3000])
  const longTtlMs = random.happens(0.25) ? ttlMs * random.pick([2, 4, 10]) : ttlMs
  const timedFaults = fair ? [] : drawTimedFaults(random)
  const crowded = random.happens(CROWDED)
  const processes = crowded ? 2 : random.pick([2, 2, 3, 4])
  const workers = crowded ? random.whole(6, 12) : random.pick([1, 2, 2, 3])
  return {
    ttlMs,
    longTtlMs,
    callTimeoutMs: ttlMs * random.pick([0.25, 1, 3]),
    delayMs: Math.max(1, ttlMs * DELAY_SHARE * random.pick([0.1, 1])),
    reorder: random.happens(0.7),
    news: random.pick(['standing', 'standing', 'bare', 'none']),
    watch: random.happens(0.7),
    subscription: fair ? 'prompt' : random.pick(['prompt', 'prompt', 'slow', 'fails at first']),
    mint: timedFaults.includes('server clock jump')
      ? 'counter survives'
      : random.pick(['counter survives', 'server time']),
    signals: random.happens(0.15),
    contexts: random.happens(0.3),
    overstate: random.happens(0.2) ? 0.5 : 0,
    batchLimit: crowded ? random.pick([5, 1000, 1000]) : random.pick([1, 3, 1000]),
    processes,
    workers,
    observers: random.happens(0.05),
    thinkMs: (ttlMs / 12) * processes * workers,
    crowded,
    keys: crowded ? random.whole(2, MOST_KEYS) : random.whole(1, 3),
    refuse: often(0.1),
    loseRequest: often(0.08),
    loseReply: often(0.08),
    slow: often(0.08),
    duplicate: often(0.08),
    failItem: often(0.05),
    loseNews: often(0.2),
    slowNews: often(0.2),
    duplicateNews: often(0.3),
    stall: often(0.15),
    timedFaults,
    resumeOrders: ['timers', 'messages', 'program'],
    splitFrom: random.happens(crowded ? 0.7 : 0.3) ? random.pick([1, 2]) : undefined,
    maxHolds: random.happens(0.2),
    drains: 0.3,
    ...given,
  }
}

/** How many worlds are crowded. They cost more, and most faults show as well in the others. */
const CROWDED = 0.1
const MOST_KEYS = 6

const MOODS = [
  'fair',
  'fair',
  'fair',
  'rough',
  'rough',
  'rough',
  'rough',
  'rough',
  'rough',
  'rough',
  'rough',
  'wild',
  'wild',
  'wild',
] as const

/** A few kinds, a few times each. */
function drawTimedFaults(random: Random): readonly TimedFault[] {
  const timedFaults: TimedFault[] = []
  for (const fault of TIMED_FAULTS) {
    if (!random.happens(RARE.has(fault) ? 0.1 : 0.25)) continue
    for (let times = random.whole(1, 3); times > 0; times -= 1) timedFaults.push(fault)
  }
  return timedFaults
}

/** These excuse what they happen to from some checks, so most worlds do without them. */
const RARE: ReadonlySet<TimedFault> = new Set(['server amnesia', 'server clock jump'])
