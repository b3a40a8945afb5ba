/**
 * The key of a call: `'order:{0.id}'` has the field `id` of the first argument in it, and a function of the arguments
 * makes any other. A part that is missing is refused: `order:undefined` would be one key for all orders.
 */

/**
 * An argument of a decorated method. A decorator is made before it sees its method, so the types of arguments are those
 * that the user gives to the parameters of the function, or are not checked, like what comes out of JSON.
 */
export type Argument = ReturnType<typeof JSON.parse>

/** A text with parts of the arguments in braces, or a function of the arguments. */
export type KeyOfCall = string | ((...args: Argument[]) => string)

/** A key, made for each call. */
export type MakeKey = (args: readonly unknown[]) => string

/** `{0}`, `{1.user.id}`. */
const PART = /\{([^{}]*)\}/g
const PATH = /^\d+(?:\.[\w$-]+)*$/

/**
 * `quote`: values are put in quotes where a text has several of them. `a:{0}:{1}` would be the same for `x:y` and `z`
 * as for `x` and `y:z`. For a lock that costs a wait; for a stored result it would be that of another call.
 */
export function keyMaker(decorator: string, what: string, key: KeyOfCall, quote = false): MakeKey {
  if (typeof key === 'function') {
    return (args) => {
      const made = (key as (...given: readonly unknown[]) => unknown)(...args)
      if (typeof made === 'string' && made !== '') return made
      throw new TypeError(
        `${what} of ${decorator} must be a string that is not empty; its function made ${String(made)}`,
      )
    }
  }
  if (typeof key !== 'string' || key === '')
    throw new TypeError(`${decorator} takes ${what} as a string, '…:{0.id}', or as a function; got ${typeof key}`)
  const parts = [...key.matchAll(PART)].map(([, path = '']) => path)
  for (const path of parts) {
    if (!PATH.test(path))
      throw new TypeError(
        `'{${path}}' in '${key}' must be the number of an argument, and fields of it: {0}, {1.user.id}`,
      )
  }
  const isQuoted = quote && parts.length > 1
  return (args) =>
    key.replaceAll(PART, (_, path: string) => {
      const text = textOf(valueAt(args, path), `{${path}}`, key)
      return isQuoted ? JSON.stringify(text) : text
    })
}

function valueAt(args: readonly unknown[], path: string): unknown {
  return path
    .split('.')
    .reduce<unknown>(
      (found, name) => (found === undefined || found === null ? undefined : Reflect.get(Object(found), name)),
      args,
    )
}

function textOf(value: unknown, part: string, key: string): string {
  const isText = typeof value === 'string' || typeof value === 'bigint' || typeof value === 'boolean'
  if ((isText || Number.isFinite(value)) && value !== '') return String(value)
  throw new TypeError(
    `${part} in the key '${key}' must be a string or a number that is not empty; got ${kindOf(value)}`,
  )
}

function kindOf(value: unknown): string {
  if (value === '') return "''"
  return typeof value === 'object' && value !== null ? 'an object' : String(value)
}
