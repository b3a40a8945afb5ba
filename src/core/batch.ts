/**
 * Batching: requests of one turn become one call. This is where the speed comes from.
 *
 * What one event-loop turn asks for goes out together; what is asked while a call is in flight goes out when it is
 * answered. An idle batch sends at once, so a single caller pays one round trip and no delay.
 *
 * Every call has a deadline of ours, whatever the client's own time-outs do: a frozen server, a hung driver and a lost
 * reply all look the same, and all mean that the call may or may not have been applied. An answer that comes after the
 * deadline is still delivered: it is true, only late.
 *
 * A call that has become slow (a stuck row, a frozen server) stops blocking the others, but its own keys wait for it,
 * so that a stuck key costs one call and not all of them, and so that the order of claims on one key is kept. Only a
 * renewal that has less time than that call goes ahead: renewals have no order, and its lease would be lost.
 */

import type { Clock, Timer } from './clock.ts'
import type { EngineError } from './errors.ts'
import { type EngineCall, failureOf, noAnswer } from './failed-call.ts'
import type { KeepAlive } from './keep-alive.ts'
import { withoutContext } from './no-context.ts'

/** When a call went out. `sequence` tells earlier from later even where the clock does not. */
export interface Sent {
  readonly at: number
  readonly sequence: number
}

/** What a batch sends, how much of it at once, and what is called with the answers. */
export interface BatchSpec<Item extends { readonly key: string }, Answer> {
  readonly engine: string
  /** What is called, for the error of a call that failed. */
  readonly verb: EngineCall
  readonly batchLimit: number
  /** How many items of one key one call takes; without it: as many as there are. */
  readonly itemsPerKey?: number | undefined
  /** A batch of twice as many is better sent in two halves. */
  readonly splitFrom: number
  /** `signal` aborts when the call has had its time; undefined unless `takesSignal()`. */
  call(items: readonly Item[], signal: AbortSignal | undefined): Promise<readonly Answer[]>
  /** Whether a call can do anything with a signal. Making one is the dearest part of a call that costs nothing else. */
  takesSignal(): boolean
  timeoutMs(items: readonly Item[]): number
  /** How long an item may wait for an earlier call of its key; without it: until that is over. */
  readonly mayWaitMs?: (item: Item) => number
  /** About to be sent. False: no longer wanted, drop it. */
  sending(item: Item, sent: Sent): boolean
  answered(item: Item, answer: Answer, sent: Sent, now: number): void
  /** The call failed or timed out. After a time-out, `answered` may still follow. */
  failed(item: Item, error: EngineError, sent: Sent): void
  /** The batch was stopped. If the call was on its way (`sent`), `answered` may still follow. */
  abandoned(item: Item, sent: Sent | undefined): void
}

/** After this long a call no longer holds up what is asked for other keys. */
const SLOW_MS = 50
/** How many calls of one verb may be unanswered at once: a fast one, or two halves of one batch, and slow ones. */
const CALLS_IN_FLIGHT = 4

interface Call<Item> {
  readonly items: readonly Item[]
  readonly sent: Sent
  readonly timeoutMs: number
  readonly abort: AbortController | undefined
  slow: boolean
  over: boolean
}

export class Batch<Item extends { readonly key: string }, Answer> {
  readonly #spec: BatchSpec<Item, Answer>
  readonly #clock: Clock
  readonly #keepAlive: KeepAlive
  readonly #nextSequence: () => number
  /**
   * Those that are unanswered. An array: when a Set is changed all the time, the tables that it has outgrown are kept
   * from the quick part of the garbage collection, and with them every item that was ever in a call.
   */
  readonly #calls: Call<Item>[] = []
  readonly #drainers: (() => void)[] = []
  #queue: Item[] = []
  #scheduled = false
  /**
   * One timer watches all calls. It is left standing when they are answered, for the next ones, and ends when it finds
   * none.
   */
  #watch: Timer | undefined
  #watchAt: number = Number.POSITIVE_INFINITY
  #asleepMs = 0

  constructor(spec: BatchSpec<Item, Answer>, clock: Clock, keepAlive: KeepAlive, nextSequence: () => number) {
    this.#spec = spec
    this.#clock = clock
    this.#keepAlive = keepAlive
    this.#nextSequence = nextSequence
  }

  add(item: Item): void {
    this.#queue.push(item)
    if (this.#scheduled) return
    this.#scheduled = true
    // nextTick runs when the promise jobs of this turn are done: everything they ask for is in the queue by then.
    process.nextTick(this.#tick)
  }

  /** Whether nothing is queued or in flight. */
  get idle(): boolean {
    return this.#queue.length === 0 && this.#calls.length === 0
  }

  /** Resolves when nothing is queued or in flight. Calls time out, so it does. */
  drained(): Promise<void> {
    if (this.idle) return Promise.resolve()
    return new Promise((resolve) => this.#drainers.push(resolve))
  }

  /** Give up on whatever is queued or in flight. */
  stop(): void {
    this.#unwatch()
    for (const item of this.#queue.splice(0)) this.#spec.abandoned(item, undefined)
    for (const call of [...this.#calls]) {
      this.#end(call)
      for (const item of call.items) this.#spec.abandoned(item, call.sent)
    }
    this.#flush()
  }

  #unwatch(): void {
    this.#watch?.cancel()
    this.#watch = undefined
    this.#watchAt = Number.POSITIVE_INFINITY
  }

  readonly #tick = (): void => withoutContext(this.#flush)

  readonly #flush = (): void => {
    this.#scheduled = false
    while (this.#queue.length > 0 && this.#mayCall()) {
      const sent: Sent = { at: this.#clock.now(), sequence: this.#nextSequence() }
      const items = this.#take(sent, this.#share())
      if (items.length === 0) break
      this.#send(items, sent)
    }
    // After a sleep of the machine the watch timer is late. Set it anew, so that the queue does not wait for it.
    if (this.#queue.length > 0 && this.#watch !== undefined && this.#asleepMs !== (this.#clock.asleepMs?.() ?? 0))
      this.#lookAt(this.#watchAt, this.#clock.now())
    if (this.#drainers.length === 0 || !this.idle) return
    for (const resolve of this.#drainers.splice(0)) resolve()
  }

  #mayCall(): boolean {
    if (this.#calls.length >= CALLS_IN_FLIGHT) return false
    const fast = this.#fastCalls()
    return fast === 0 || (fast === 1 && this.#queue.length >= this.#spec.splitFrom)
  }

  #fastCalls(): number {
    let fast = 0
    for (const call of this.#calls) if (!call.slow) fast += 1
    return fast
  }

  /** How much of the queue the next call takes. */
  #share(): number {
    const { batchLimit, splitFrom } = this.#spec
    const { length } = this.#queue
    const halves = length >= 2 * splitFrom && this.#fastCalls() === 0
    return Math.min(batchLimit, halves ? Math.ceil(length / 2) : length)
  }

  #take(sent: Sent, share: number): readonly Item[] {
    const { batchLimit, itemsPerKey } = this.#spec
    if (this.#queue.length <= share && this.#calls.length === 0 && itemsPerKey === undefined) return this.#takeAll(sent)
    const counts = itemsPerKey === undefined ? undefined : new Map<string, number>()
    const stuck = this.#stuckKeys()
    const taken: Item[] = []
    const left: Item[] = []
    // A call for half of the queue takes all items of its keys: those left behind would have to wait for its answer.
    const keys = share < Math.min(this.#queue.length, batchLimit) ? new Set<string>() : undefined
    for (const item of this.#queue) {
      const full = taken.length >= batchLimit || (taken.length >= share && keys?.has(item.key) !== true)
      const count = counts?.get(item.key) ?? 0
      if (full || this.#mustWait(item, stuck, sent.at) || (itemsPerKey !== undefined && count >= itemsPerKey)) {
        left.push(item)
      } else if (this.#spec.sending(item, sent)) {
        taken.push(item)
        keys?.add(item.key)
        counts?.set(item.key, count + 1)
      }
    }
    this.#queue = left
    return taken
  }

  /** Nothing is in the way. */
  #takeAll(sent: Sent): readonly Item[] {
    const items = this.#queue
    this.#queue = []
    // The usual item is alone, and wanted.
    if (items.length === 1) return this.#spec.sending(items[0] as Item, sent) ? items : []
    return items.filter((item) => this.#spec.sending(item, sent))
  }

  /** The keys of calls that are on their way, and when those have had their time: of two, the later one. */
  #stuckKeys(): ReadonlyMap<string, number> | undefined {
    if (this.#calls.length === 0) return undefined
    const stuck = new Map<string, number>()
    for (const { items, sent, timeoutMs } of this.#calls)
      for (const { key } of items) stuck.set(key, sent.at + timeoutMs)
    return stuck
  }

  #mustWait(item: Item, stuck: ReadonlyMap<string, number> | undefined, now: number): boolean {
    const overAt = stuck?.get(item.key)
    if (overAt === undefined) return false
    const { mayWaitMs } = this.#spec
    return mayWaitMs === undefined || overAt <= now + mayWaitMs(item)
  }

  #send(items: readonly Item[], sent: Sent): void {
    const abort = this.#spec.takesSignal() ? new AbortController() : undefined
    const timeoutMs = this.#spec.timeoutMs(items)
    const call: Call<Item> = { items, sent, timeoutMs, abort, slow: false, over: false }
    this.#keepAlive.begin()
    this.#calls.push(call)
    this.#lookAt(sent.at + Math.min(SLOW_MS, timeoutMs), sent.at)
    this.#invoke(call).then(
      (answers) => this.#answer(call, answers),
      (error: unknown) => {
        if (!call.over) this.#fail(call, this.#failureOf(error))
      },
    )
  }

  #invoke({ items, abort }: Call<Item>): Promise<readonly Answer[]> {
    try {
      return this.#spec.call(items, abort?.signal)
    } catch (error) {
      return Promise.reject(error)
    }
  }

  #answer(call: Call<Item>, answers: readonly Answer[] | undefined): void {
    const { items, sent } = call
    if (answers?.length !== items.length) {
      if (!call.over)
        this.#fail(call, this.#failureOf(new Error(`${answers?.length ?? 'no'} answers for ${items.length} items`)))
      return
    }
    this.#end(call)
    // One look at the clock for all of them: it costs as much as the rest of an answer.
    const now = this.#clock.now()
    for (let index = 0; index < items.length; index += 1) {
      const answer = answers[index]
      if (answer === undefined)
        this.#spec.failed(items[index] as Item, this.#failureOf(new Error('an answer is missing')), sent)
      else this.#spec.answered(items[index] as Item, answer, sent, now)
    }
    if (this.#queue.length > 0 || this.#drainers.length > 0) this.#flush()
  }

  /** See which calls have become slow, and which have had their time. */
  #look(): void {
    this.#unwatch()
    const now = this.#clock.now()
    let next = Number.POSITIVE_INFINITY
    for (const call of [...this.#calls]) {
      const { sent, timeoutMs } = call
      // Compare sums, as `next` does. `now - sent.at` can round to just below the time-out, at every look.
      if (now >= sent.at + timeoutMs) {
        this.#timedOut(call)
      } else {
        call.slow ||= now >= sent.at + SLOW_MS
        next = Math.min(next, sent.at + (call.slow ? timeoutMs : Math.min(SLOW_MS, timeoutMs)))
      }
    }
    if (next < Number.POSITIVE_INFINITY) this.#lookAt(next, now)
    this.#flush()
  }

  #lookAt(at: number, now: number): void {
    // Timers do not run while the machine sleeps (see timer-queue.ts), so set it again.
    const asleepMs = this.#clock.asleepMs?.() ?? 0
    if (this.#watchAt <= Math.max(at, now) && asleepMs === this.#asleepMs) return
    this.#watch?.cancel()
    this.#watchAt = Math.max(Math.min(at, this.#watchAt), now)
    this.#asleepMs = asleepMs
    this.#watch = this.#clock.timer(this.#watchAt - this.#clock.now(), () => withoutContext(() => this.#look()))
  }

  #timedOut(call: Call<Item>): void {
    const error = noAnswer(this.#spec.engine, this.#spec.verb, call.timeoutMs)
    call.abort?.abort(error)
    this.#fail(call, error)
  }

  #fail(call: Call<Item>, error: EngineError): void {
    this.#end(call)
    for (const item of call.items) this.#spec.failed(item, error, call.sent)
    this.#flush()
  }

  #end(call: Call<Item>): void {
    const at = this.#calls.indexOf(call)
    if (at < 0) return
    // Mostly this is the only call: pop() allocates nothing, splice() would.
    if (at === this.#calls.length - 1) this.#calls.pop()
    else this.#calls.splice(at, 1)
    call.over = true
    this.#keepAlive.end()
  }

  #failureOf(error: unknown): EngineError {
    return failureOf(this.#spec.engine, this.#spec.verb, error)
  }
}
