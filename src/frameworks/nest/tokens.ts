/**
 * How the locks get into a class of Nest. Nothing is global: a decorator asks for them as for any other dependency, so
 * each application has its own, and a class in a module that cannot see them is refused when the application starts.
 */
import { Inject } from '@nestjs/common'
import type { Locks } from '../../locks.ts'

/** Where a decorator finds the locks: given, found at the object, or injected by Nest. */
export interface LocksOfDecorator<Service = never> {
  /** The locks, or where the object has them: `(service) => service.locks`. Those of the module unless given. */
  readonly locks?: Locks | ((service: Service) => Locks)
  /** Which locks of the module: the `name` that `HoldfastModule.forRoot()` was given. */
  readonly module?: string
}

const TOKEN = 'holdfast:locks'

/** The token of the locks, for `overrideProvider`, `inject` and the like. */
export function locksToken(name?: string): string {
  return name === undefined ? TOKEN : `${TOKEN}:${name}`
}

/** A parameter or a property that is the locks: `constructor(@InjectLocks() private readonly locks: Locks)`. */
export function InjectLocks(name?: string): PropertyDecorator & ParameterDecorator {
  return Inject(locksToken(name))
}

/** Which properties were asked for, by prototype: several methods of a class ask for the same. */
const injected = new WeakMap<object, Set<string>>()

/** Whether the locks of an object are there when Nest starts it: a function may find them later. */
export function areKnownAtStart({ locks }: LocksOfDecorator): boolean {
  return typeof locks !== 'function'
}

/** How the methods of `target` find their locks. `decorator` is what to call it in an error. */
export function locksFor<Service>(
  decorator: string,
  target: object,
  { locks, module }: LocksOfDecorator<Service>,
): (service: Service) => Locks {
  if (locks !== undefined) return (service) => (typeof locks === 'function' ? locks(service) : locks)
  const property = locksToken(module)
  const properties = injected.get(target) ?? new Set()
  injected.set(target, properties)
  // Nest sets a property of that name at the object.
  if (!properties.has(property)) Inject(property)(target, property)
  properties.add(property)
  return (service) => {
    const found = (service as Record<string, Locks | undefined>)[property]
    if (found !== undefined) return found
    throw new TypeError(
      `${decorator} has no locks: ${target.constructor.name} was not made by Nest. Give it { locks } where you make it yourself`,
    )
  }
}
