/**
 * The lock-order checker, for development: two keys taken in opposite orders anywhere in one process are reported with
 * both stack traces, before they ever deadlock. It costs a stack trace for each asking; do not use it in production.
 *
 * It draws an edge from every key held in the present async context to the key asked for. A circle of edges is an order
 * that can deadlock, whether or not it happened this time. `all` takes its locks in one global order, and draws its
 * edges in that order: two `all`s are never reported, but an `all` and code that takes the same locks by hand the
 * other way round are. The graph keeps every key ever asked for.
 *
 * A bare `acquire` marks the async context of its caller for as long as the lease is held; `using` marks only its own
 * work.
 */
import { AsyncLocalStorage } from 'node:async_hooks'
import type { Lease } from './lease.ts'

/** Two keys, and where each order was taken. */
export interface OrderReport {
  readonly first: string
  readonly second: string
  readonly message: string
}

interface TakenKey {
  readonly key: string
  lease: Lease | undefined
}

export class OrderChecker {
  readonly #report: (report: OrderReport) => void
  readonly #context = new AsyncLocalStorage<readonly TakenKey[]>()
  /** From the key held to the keys asked for while it was, with the stack of the first time. */
  readonly #edges = new Map<string, Map<string, string>>()
  readonly #reported = new Set<string>()

  constructor(report: (report: OrderReport) => void) {
    this.#report = report
  }

  /**
   * A caller asks for `key`. Call it synchronously from the public method: it marks the caller's async context. Returns
   * what to call with the lease.
   */
  asking(key: string): (lease: Lease) => void {
    const held = (this.#context.getStore() ?? []).filter(({ lease }) => lease?.held)
    const stack = stackOfCaller()
    for (const taken of held) if (taken.key !== key) this.#draw(taken.key, key, stack)
    const taken: TakenKey = { key, lease: undefined }
    this.#context.enterWith([...held, taken])
    return (lease) => {
      taken.lease = lease
    }
  }

  /** Run `using` so that what it takes is not taken for held by its caller. */
  apart<Result>(run: () => Result): Result {
    return this.#context.run(this.#context.getStore() ?? [], run)
  }

  /** Several keys are taken at once, in this order. */
  together(keys: readonly string[]): void {
    const stack = stackOfCaller()
    for (const [index, first] of keys.entries())
      for (const second of keys.slice(index + 1)) this.#draw(first, second, stack)
  }

  #draw(first: string, second: string, stack: string): void {
    const from = this.#edges.get(first) ?? new Map<string, string>()
    this.#edges.set(first, from)
    if (from.has(second)) return
    from.set(second, stack)
    const back = this.#path(second, first)
    if (back !== undefined) this.#found(first, second, stack, back)
  }

  /** The keys from `start` to `goal` along the edges, if there is a way. */
  #path(start: string, goal: string, seen: Set<string> = new Set()): readonly string[] | undefined {
    if (start === goal) return [goal]
    seen.add(start)
    for (const next of this.#edges.get(start)?.keys() ?? []) {
      if (seen.has(next)) continue
      const rest = this.#path(next, goal, seen)
      if (rest !== undefined) return [start, ...rest]
    }
    return undefined
  }

  #found(first: string, second: string, stack: string, back: readonly string[]): void {
    const pair = [first, second].sort().join('\0')
    if (this.#reported.has(pair)) return
    this.#reported.add(pair)
    const other = this.#edges.get(back[0] as string)?.get(back[1] as string) ?? ''
    const message =
      `lock order: '${first}' then '${second}' here, but ${back.map((key) => `'${key}'`).join(' then ')} elsewhere; ` +
      'these can deadlock. ' +
      `Take them in one order, or with locks.all([...]).\n  here:\n${stack}\n  elsewhere:\n${other}`
    this.#report({ first, second, message })
  }
}

function stackOfCaller(): string {
  // Without the lines of the checker and of the method that asked it.
  return new Error('asked').stack?.split('\n').slice(4).join('\n') ?? ''
}
