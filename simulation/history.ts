/**
 * What happened in one run, in true time: what the server did, what the programs believed, and what went wrong around
 * them. Plain data, so that the checks are functions of it and can be tested on histories made by hand.
 */
import type { Standing } from '../src/core/engine.ts'
import type { LossReason } from '../src/core/errors.ts'

/** One entry's time in a line, in the server's truth. The same id has two stays if it comes in again after its end. */
export interface Stay {
  readonly key: string
  readonly id: string
  readonly process: number
  readonly token: bigint
  readonly weight: number
  readonly limit: number
  readonly enteredAt: number
  /** A duplicated request brought it in: no process knows of it. */
  readonly echo: boolean
  /** It came in later than its ttl after it was sent, so that its process did not expect it any more. */
  readonly late: boolean
  /** Evicted, and to be renewed no more; it may stand in the line until it has expired. */
  condemned: boolean
  grantedAt: number | undefined
  /** From when on the server would let others in. */
  goneAt: number | undefined
  /** `forgotten`: the server lost its memory. */
  why: 'left' | 'expired' | 'evicted' | 'forgotten' | undefined
}

/** One attempt of a program to get a lease: an acquire, a try, a using. */
export interface Attempt {
  readonly process: number
  readonly what: string
  readonly keys: readonly string[]
  /** Its first entry; undefined where it asks for several keys, or not at once. */
  readonly id: string | undefined
  /** The ttl of its entries; of several, the shortest. */
  readonly ttlMs: number
  readonly at: number
  /** How long it waits; Infinity: for ever. */
  readonly waitMs: number
  settledAt: number | undefined
  outcome: 'granted' | 'busy' | 'timeout' | 'cancelled' | 'refused' | 'lost' | undefined
  error: unknown
}

/** One lease of one key, as the program that has it sees it. */
export interface Holding {
  readonly process: number
  readonly key: string
  readonly token: bigint
  readonly weight: number
  readonly limit: number
  readonly ttlMs: number
  /** How long it may be held; Infinity: without limit. */
  readonly maxHoldMs: number
  readonly grantedAt: number
  /** It is the only key of its lease. */
  readonly alone: boolean
  /** The program listens to the lease's signal from the start. */
  readonly listening: boolean
  /** When it last looked and saw itself holding. */
  believedAt: number
  /** When it first looked and saw itself not holding. */
  doubtedAt: number | undefined
  /** When the signal aborted. */
  lostAt: number | undefined
  lostWhy: LossReason | undefined
  /** When it gave the lease back, or died. */
  endedAt: number | undefined
  /** It asked the server to keep the key busy after that; and for how much longer the server has promised to. */
  keeping: boolean
  keptMs: number | undefined
}

/** What a call is about: one entry in one line. */
export interface CallItem {
  readonly key: string
  readonly id: string
  /** Leaves need none. */
  readonly ttlMs?: number
  /** A renewal that lets the entry stand without its process. It goes out by itself, not in a batch. */
  readonly outlives?: boolean
}

/** One call of the core to its engine. */
export interface Call {
  readonly process: number
  readonly verb: 'enter' | 'renew' | 'leave'
  readonly items: readonly CallItem[]
  readonly sentAt: number
  /** It had to wait until the subscription stood: the core counts from an earlier moment than `sentAt`. */
  readonly subscribedFirst: boolean
  /** When its answer or its failure reached the process; and the answers, if it was answered. */
  heardAt?: number
  answers?: readonly (Standing | boolean)[]
  /**
   * Answered, failed, or given up by the core's own deadline. Where the giving up cannot be seen: as soon as it was
   * sent.
   */
  overAt: number | undefined
  /** When the core gave up on it, where its signal tells. */
  givenUpAt?: number
  /** The ids that its answer said are gone, and when it came. */
  gone: readonly string[]
  goneAt: number
}

/** The holder of `token` was told, in answer to a renewal, that its entry holds by another one. */
export interface Replacement {
  readonly at: number
  readonly process: number
  readonly key: string
  readonly token: bigint
}

/**
 * A process was told of a grant in a way that must not be believed at once: it may be about an earlier stay of the same
 * id.
 */
export interface UnconfirmedGrant {
  readonly at: number
  readonly process: number
  readonly key: string
  readonly token: bigint
  readonly why: 'overtaken by a later answer' | 'news after an enter of unknown outcome'
}

/** News of a gap came to a process that had nothing on its way. */
export interface Gap {
  readonly at: number
  readonly process: number
  /** The ids that it knows to be waiting in line. */
  readonly waiting: readonly string[]
}

/** A process began to drain its locks. */
export interface Drain {
  readonly process: number
  readonly at: number
  /** How long its holders have to end. */
  readonly graceMs: number
}

export type FaultKind =
  | 'refused call'
  | 'lost request'
  | 'lost reply'
  | 'slow message'
  | 'duplicated request'
  | 'failed item'
  | 'lost news'
  | 'slow news'
  | 'duplicated news'
  | 'slow subscription'
  | 'failed subscription'
  | 'blackout'
  | 'pause'
  | 'stall'
  | 'suspension'
  | 'crash'
  | 'close'
  | 'wall clock jump'
  | 'server freeze'
  | 'server restart'
  | 'server amnesia'
  | 'server clock jump'
  | 'eviction'

/** During these a process does not run. */
export const STOPS: ReadonlySet<FaultKind> = new Set(['pause', 'stall', 'suspension'])

/** Something that went wrong, and how long. `process` undefined: it concerns all processes. */
export interface Fault {
  readonly kind: FaultKind
  readonly process: number | undefined
  readonly from: number
  readonly to: number
}

/** A program has read or written a register. */
export interface RegisterAccess {
  readonly at: number
  readonly key: string
  readonly token: bigint
  readonly guarded: boolean
  readonly kind: 'read' | 'write'
  readonly accepted: boolean
  /** What was read, or written. */
  readonly value: number
}

export type MishapKind =
  /** The server keeps an entry waiting that could hold. */
  | 'unsettled line'
  /** The server let an entry live after its end. */
  | 'resurrection'
  /** The server changed an entry's expiry without being asked, or did not when it was. */
  | 'expiry moved'
  /** Timers, entries, or whatever keeps a process alive, when nothing is asked and nothing held any more. */
  | 'left behind'
  | 'lease after its end'
  /** Two nested leases at once. */
  | 'nesting'
  | 'dishonest using'
  | 'leaders out of order'
  | 'slow close'
  | 'unexpected error'
  | 'unhandled rejection'
  /** It never comes to rest. */
  | 'runaway'

/** Something that must not happen, seen while it happened. */
export interface Mishap {
  readonly at: number
  readonly kind: MishapKind
  readonly text: string
}

/** What the bounds of the checks depend on. */
export interface Terms {
  /** The greatest one-way delay of a message that is not marked slow. */
  readonly delayMs: number
  /** The longest ttl in use, and the core's own deadline for calls. */
  readonly ttlMs: number
  readonly callTimeoutMs: number
  /** Whether the engine wakes waiters, and with what. */
  readonly news: 'standing' | 'bare' | 'none'
}

export class History {
  readonly terms: Terms
  readonly stays: Stay[] = []
  readonly attempts: Attempt[] = []
  readonly holdings: Holding[] = []
  readonly calls: Call[] = []
  readonly gaps: Gap[] = []
  readonly drains: Drain[] = []
  readonly replacements: Replacement[] = []
  readonly unconfirmedGrants: UnconfirmedGrant[] = []
  readonly faults: Fault[] = []
  readonly accesses: RegisterAccess[] = []
  readonly mishaps: Mishap[] = []
  /** When the core made each id: that is when its caller asked. */
  readonly askedAt: Map<string, number> = new Map()
  /** Since when each process is subscribed to the news. */
  readonly subscribedAt: Map<number, number> = new Map()
  /** Faults end here, and nothing new is asked. */
  calmAt: number = Number.POSITIVE_INFINITY
  endedAt: number = Number.POSITIVE_INFINITY

  constructor(terms: Terms) {
    this.terms = terms
  }

  /** Since when enters of `process` are sent at once. Before, they wait for its subscription, and can fail with it. */
  sendsFrom(process: number): number {
    if (this.terms.news === 'none') return Number.NEGATIVE_INFINITY
    return this.subscribedAt.get(process) ?? Number.POSITIVE_INFINITY
  }

  /** Whether any of `kinds` happened at all. */
  had(...kinds: readonly FaultKind[]): boolean {
    return this.faults.some(({ kind }) => kinds.includes(kind))
  }

  /** The faults that concern `process` in this span of time. */
  *troubles(process: number, from: number, to: number): Iterable<Fault> {
    for (const fault of this.faults) {
      if (fault.from > to || fault.to < from || (fault.process !== undefined && fault.process !== process)) continue
      if (fault.kind !== 'wall clock jump') yield fault
    }
  }

  /** Whether `process` did not run for a part of this span of time. */
  stopped(process: number, from: number, to: number): boolean {
    for (const { kind } of this.troubles(process, from, to)) if (STOPS.has(kind)) return true
    return false
  }

  troubled(process: number, from: number, to: number): boolean {
    for (const _ of this.troubles(process, from, to)) return true
    return false
  }
}
