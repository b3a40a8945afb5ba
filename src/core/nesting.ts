/**
 * Nesting: asking for a key inside work that already holds it.
 *
 * `using` remembers, in the async context of the work, what is held around it. Asking again for something that can
 * never be granted beside it is an immediate `DeadlockError` instead of a hang; with `reentrant: true` it is a nested
 * lease. Whether it can be granted is decided by the rule of the line: a read inside a read can, a write inside a read
 * cannot.
 *
 * Only what `using` holds counts, because only there the end of the work is known. (What `acquire` has granted counts
 * inside of `using({ within: lease })`.) Inside such work all askings are looked at, those of `using` and of `acquire`
 * alike. Contexts whose lease has ended (a forgotten promise) do not count. But work whose nested lease was lost alone
 * is still inside of what that one is nested in. Siblings of one `Promise.all` are not inside each other: two of them
 * that ask for the same key queue, also inside a common outer lease.
 */
import { AsyncLocalStorage } from 'node:async_hooks'
import { UNLIMITED } from './engine.ts'
import { DeadlockError } from './errors.ts'
import type { Keeper } from './keeper.ts'
import type { CoreLease, Holding } from './lease.ts'
import { heldCount, type Weighted } from './line.ts'

export interface Frame {
  readonly keeper: Keeper
  readonly lease: CoreLease
  readonly parent: Frame | undefined
}

/**
 * What is held around the caller. Exported for the simulator, which ends it where nothing nests: until Node 24, every
 * promise pays for it from its first use on.
 */
export const context: AsyncLocalStorage<Frame | undefined> = new AsyncLocalStorage()

/** Run `work` so that whatever it asks for is known to be inside `leases`. */
export function runInside<Result>(
  keeper: Keeper,
  leases: readonly CoreLease[],
  work: () => Promise<Result>,
): Promise<Result> {
  let frame = context.getStore()
  for (const lease of leases) frame = { keeper, lease, parent: frame }
  return context.run(frame, work)
}

/** Whether we are inside the work of any `using`. */
export function insideWork(): boolean {
  return context.getStore() !== undefined
}

/** The innermost live lease of `key` around us, if any. */
export function enclosing(keeper: Keeper, key: string): CoreLease | undefined {
  for (const lease of leasesAround(keeper, key)) if (lease.held) return lease
  return undefined
}

/** Throw if what is held around us can never let `asked` through. */
export function refuseDeadlock(keeper: Keeper, asked: Holding): void {
  // A nested lease has the entry of the one that it is nested in: each is counted once.
  const byEntry = new Map<string, Weighted>()
  for (const { inTheWay, entryId, holding } of leasesAround(keeper, asked.key))
    if (inTheWay) byEntry.set(entryId, holding)
  const held = [...byEntry.values()]
  if (held.length === 0 || heldCount([...held, asked]) === held.length + 1) return
  throw new DeadlockError(
    asked.key,
    `asking for '${asked.key}' (${described(asked)}) inside work that already holds it ` +
      `(${held.map(described).join(', ')}) would wait for itself for ever; ` +
      `if the nesting is meant, create the lock with { reentrant: true }, or pass { within: lease }`,
  )
}

/** The leases of `key` whose work we are inside of, the innermost first: also those that have ended. */
export function* leasesAround(keeper: Keeper, key: string): Iterable<CoreLease> {
  for (let frame = context.getStore(); frame !== undefined; frame = frame.parent) {
    if (frame.keeper === keeper && frame.lease.holding.key === key) yield frame.lease
  }
}

export function described({ weight, limit }: Weighted): string {
  if (limit === 1) return 'exclusive'
  return limit === UNLIMITED ? 'read' : `${weight} of ${limit}`
}
