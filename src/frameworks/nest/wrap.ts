/**
 * A method in another method, as decorators of Nest make it. The new one is what all callers get: routes, schedules,
 * and the code of the same class.
 *
 * Other decorators note at the function what they want (`@Get`, `@Cron`, `@UseGuards`). What was noted before is
 * carried over; what comes later is noted at the new function. So the order of decorators does not matter.
 */

/** A decorator of methods, as `experimentalDecorators` calls it. */
export type MethodWrapper<Method extends (...args: never[]) => unknown = (...args: never[]) => Promise<unknown>> = <
  Wrapped extends Method,
>(
  target: object,
  key: string | symbol,
  descriptor: TypedPropertyDescriptor<Wrapped>,
) => void

/** A call of a wrapped method. */
export interface MethodCall {
  readonly service: unknown
  readonly args: readonly unknown[]
  /** Call what was wrapped; with other arguments, if they are given. */
  run(args?: readonly unknown[]): unknown
}

/** What is decorated. */
export interface Decorated {
  readonly target: object
  readonly key: string | symbol
  readonly descriptor: { value?: unknown }
}

/** reflect-metadata, which every Nest application loads. */
interface Metadata {
  getMetadataKeys(target: object): unknown[]
  getMetadata(key: unknown, target: object): unknown
  defineMetadata(key: unknown, value: unknown, target: object): void
}

/** `Class.method`: what it is called in errors, and in keys. */
export function titleOf({ target, key }: Pick<Decorated, 'target' | 'key'>): string {
  const owner = typeof target === 'function' ? target.name : target.constructor.name
  return `${owner}.${String(key)}`
}

/** Put `around` in the place of a method. Answers the new function. */
export function wrapMethod(
  decorator: string,
  { target, key, descriptor }: Decorated,
  around: (call: MethodCall) => Promise<unknown>,
): object {
  const isStandard = typeof key === 'object' && key !== null && 'kind' in key
  if (isStandard) throw new TypeError(`${decorator} is one of Nest's decorators: set "experimentalDecorators": true`)
  const method = descriptor?.value
  if (typeof method !== 'function') throw new TypeError(`${decorator} belongs to a method; '${String(key)}' is none`)
  const title = titleOf({ target, key })
  const wrapped = async function (this: unknown, ...args: unknown[]): Promise<unknown> {
    const run = (others: readonly unknown[] = args): unknown =>
      refuseLater(decorator, title, Reflect.apply(method, this, others))
    return around({ service: this, args, run })
  }
  Object.defineProperty(wrapped, 'name', { value: method.name, configurable: true })
  Object.defineProperty(wrapped, 'length', { value: method.length, configurable: true })
  const metadata = metadataOf()
  for (const note of metadata?.getMetadataKeys(method) ?? [])
    metadata?.defineMetadata(note, metadata.getMetadata(note, method), wrapped)
  descriptor.value = wrapped
  return wrapped
}

const START_HOOK = 'onModuleInit'

/**
 * Have Nest call `check` with the object when it starts the application: by then all decorators have noted what they
 * want. What it throws keeps the application from starting. The hook of the class itself comes after it.
 */
export function checkAtStart(target: object, check: (service: unknown) => void): void {
  const own = Object.getOwnPropertyDescriptor(target, START_HOOK)?.value as unknown
  const value = function (this: unknown): unknown {
    check(this)
    const hook = own ?? Reflect.get(Object.getPrototypeOf(target) as object, START_HOOK)
    return typeof hook === 'function' ? Reflect.apply(hook, this, []) : undefined
  }
  Object.defineProperty(target, START_HOOK, { value, configurable: true, writable: true })
}

/** What a decorator has noted at a function. */
export function noteAt(note: string, method: object): unknown {
  return metadataOf()?.getMetadata(note, method)
}

function metadataOf(): Metadata | undefined {
  return 'getMetadata' in Reflect ? (Reflect as unknown as Metadata) : undefined
}

/** What runs only when it is subscribed to, or iterated over, would run after the lock has been given back. */
function refuseLater(decorator: string, title: string, result: unknown): unknown {
  const has = (...names: readonly (string | symbol)[]): boolean =>
    typeof result === 'object' &&
    result !== null &&
    names.every((name) => typeof Reflect.get(result, name) === 'function')
  const isGenerator = has('next', Symbol.asyncIterator) || has('next', Symbol.iterator)
  if (!has('subscribe', 'pipe') && !isGenerator) return result
  const what = isGenerator ? 'a generator' : 'an Observable'
  throw new TypeError(
    `${title} returns ${what}, which runs after ${decorator} is over: return a promise, by lastValueFrom() for example`,
  )
}
