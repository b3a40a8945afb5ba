/**
 * `@Once('payment:{0.id}')`: the method runs once for each key, and calls with the same key get the stored result. It
 * is `once()` of holdfast/once; the name of the records is `Class.method`, so that the keys of two methods never meet.
 */
import { checkOptions, type OptionNames } from '../../core/options.ts'
import type { Locks } from '../../locks.ts'
import { once } from '../../recipes/once/index.ts'
import { ONCE_OPTIONS, type Once as OnceOfLocks, type OnceOptions } from '../../recipes/once/options.ts'
import { runWith } from './current.ts'
import { type Argument, type KeyOfCall, keyMaker } from './key-template.ts'
import { areKnownAtStart, type LocksOfDecorator, locksFor } from './tokens.ts'
import { checkAtStart, type MethodWrapper, titleOf, wrapMethod } from './wrap.ts'

/** Options of `@Once()`: those of `once()`, and these. `name` is `Class.method` unless given. */
export interface OnceMethodOptions<Service = never> extends OnceOptions, LocksOfDecorator<Service> {
  /** Whose key it is, like the key: `'{0.tenant}'`. The keys of two scopes never meet. */
  readonly scope?: KeyOfCall
  /** What makes the call what it is: another call with the same key gets a `KeyReusedError`. */
  readonly fingerprint?: (...args: Argument[]) => unknown
}

const OPTIONS: OptionNames<OnceMethodOptions> = {
  ...ONCE_OPTIONS,
  locks: true,
  module: true,
  scope: true,
  fingerprint: true,
}

/**
 * Run the method once for each key. What it answers is stored as JSON, and answered to every later call with the key.
 * `currentAttempt()` is the attempt, while it runs.
 */
export function Once<Service = never>(key: KeyOfCall, options: OnceMethodOptions<Service> = {}): MethodWrapper {
  checkOptions('@Once()', options, OPTIONS)
  const { locks: _, module: __, scope, fingerprint, ...ofOnce } = options
  const keyOf = keyMaker('@Once()', 'its key', key, true)
  const scopeOf = scope === undefined ? undefined : keyMaker('@Once()', 'its scope', scope, true)
  return (target, name, descriptor) => {
    const locksOf = locksFor<Service>('@Once()', target, options)
    const title = titleOf({ target, key: name })
    const known = new WeakMap<Locks, OnceOfLocks>()
    const onceOf = (found: Locks): OnceOfLocks => {
      const made = known.get(found) ?? once(found, { name: title, ...ofOnce })
      known.set(found, made)
      return made
    }
    wrapMethod('@Once()', { target, key: name, descriptor }, async ({ service, args, run }) => {
      const call = {
        ...(scopeOf === undefined ? {} : { scope: scopeOf(args) }),
        ...(fingerprint === undefined ? {} : { fingerprint: fingerprint(...args) }),
      }
      const work = onceOf(locksOf(service as Service))
      return (await work.run(keyOf(args), call, async (attempt) => runWith({ attempt }, run))).value
    })
    // What is wrong with its options, or with the engine, would be told to the first customer otherwise.
    if (areKnownAtStart(options)) checkAtStart(target, (service) => void onceOf(locksOf(service as Service)))
  }
}
