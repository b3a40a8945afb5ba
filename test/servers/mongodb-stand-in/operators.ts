/**
 * Operators of expressions in which the package mingo differs from a real server, and those it lacks.
 *
 * - Numbers: mingo knows doubles only. Here ints, longs and doubles stay what they are, and longs are exact.
 * - Comparisons: mingo uses those of filters, in which an array equals each of its elements.
 * - Wrong arguments, such as the $size of a missing field: mingo answers null, a server fails with a code.
 * - $reduce inside of $map: mingo leaves `$$this` to the outer one.
 * - $indexOfCP is missing; $max, $min and $sum of mingo are meant for groups.
 */
import { evalExpr } from 'mingo/core'
import { $mergeObjects as mergeOfGroup, $push as valuesOfGroup } from 'mingo/operators/accumulator'
import { $let } from 'mingo/operators/expression'
import type { Options } from 'mingo/types'
import { CommandError } from './errors.ts'
import {
  add,
  compare,
  type Document,
  equal,
  isInt,
  isNothing,
  isNumber,
  isPlain,
  modulo,
  multiply,
  subtract,
  typeOf,
} from './values.ts'

/** How mingo calls an operator: the document, the operator's argument as it was written, and the options. */
export type Operator = (document: unknown, argument: unknown, options: Options) => unknown

/** An operator of evaluated arguments. A single argument may come without its brackets. */
function on(work: (...values: unknown[]) => unknown): Operator {
  return (document, argument, options) => {
    const written = Array.isArray(argument) ? argument : [argument]
    return work(...written.map((each) => evalExpr(document, each, options)))
  }
}

/** Null as soon as one argument is null or missing. */
function onSome(work: (...values: unknown[]) => unknown): Operator {
  return on((...values) => (values.some(isNothing) ? null : work(...values)))
}

/** Of a list, or of the one array that is given instead of it. */
function onAll(work: (values: readonly unknown[]) => unknown): Operator {
  return on((...values) => work(values.length === 1 && Array.isArray(values[0]) ? values[0] : values))
}

function arrayOf(value: unknown, code: number, message: (type: string) => string): readonly unknown[] {
  if (!Array.isArray(value)) throw new CommandError(code, message(typeOf(value)))
  return value
}

function extreme(sign: 1 | -1): Operator {
  return onAll((values) => {
    const some = values.filter((each) => !isNothing(each))
    const better = (best: unknown, each: unknown): unknown => (sign * compare(each, best) > 0 ? each : best)
    return some.length === 0 ? null : some.reduce<unknown>(better, some[0])
  })
}

function rounded(name: string, round: (value: number) => number): Operator {
  return onSome((value) => {
    if (!isNumber(value)) throw new CommandError(28765, `${name} only supports numeric types, not ${typeOf(value)}`)
    return typeof value === 'bigint' ? value : round(value)
  })
}

const truth = (value: unknown): boolean => !isNothing(value) && value !== false && value !== 0 && value !== 0n

const comparisons: Readonly<Record<string, Operator>> = {
  $cmp: on(compare),
  $eq: on((a, b) => equal(a, b)),
  $ne: on((a, b) => !equal(a, b)),
  $gt: on((a, b) => compare(a, b) > 0),
  $gte: on((a, b) => compare(a, b) >= 0),
  $lt: on((a, b) => compare(a, b) < 0),
  $lte: on((a, b) => compare(a, b) <= 0),
  $and: (document, argument, options) => list(argument).every((each) => truth(evalExpr(document, each, options))),
  $or: (document, argument, options) => list(argument).some((each) => truth(evalExpr(document, each, options))),
  $not: on((value) => !truth(value)),
  $cond: (document, argument, options) => {
    const [condition, then, otherwise] = Array.isArray(argument)
      ? argument
      : [(argument as Branches).if, (argument as Branches).then, (argument as Branches).else]
    return evalExpr(document, truth(evalExpr(document, condition, options)) ? then : otherwise, options)
  },
}

interface Branches {
  readonly if: unknown
  readonly then: unknown
  readonly else: unknown
}

const list = (argument: unknown): readonly unknown[] => (Array.isArray(argument) ? argument : [argument])

const arithmetic: Readonly<Record<string, Operator>> = {
  $add: onSome((...values) => values.reduce((sum, each) => add(sum, each), 0)),
  $subtract: onSome(subtract),
  $multiply: onSome((...values) => values.reduce((product, each) => multiply(product, each), 1)),
  $mod: onSome(modulo),
  $divide: onSome((a, b) => {
    if (isNumber(b) && Number(b) === 0) throw new CommandError(2, "can't $divide by zero")
    if (!isNumber(a) || !isNumber(b))
      throw new CommandError(14, `$divide only supports numeric types, not ${typeOf(a)} and ${typeOf(b)}`)
    return Number(a) / Number(b)
  }),
  $abs: onSome((value) => (typeof value === 'bigint' ? (value < 0n ? -value : value) : Math.abs(value as number))),
  $floor: rounded('$floor', Math.floor),
  $ceil: rounded('$ceil', Math.ceil),
  $max: overGroup(extreme(1)),
  $min: overGroup(extreme(-1)),
  $sum: overGroup(onAll((values) => values.filter(isNumber).reduce<unknown>((sum, each) => add(sum, each), 0))),
}

const arrays: Readonly<Record<string, Operator>> = {
  $size: on(
    (value) =>
      arrayOf(value, 17124, (type) => `The argument to $size must be an array, but was of type: ${type}`).length,
  ),
  $in: on((value, within) =>
    arrayOf(within, 40081, (type) => `$in requires an array as a second argument, found: ${type}`).some((each) =>
      equal(each, value),
    ),
  ),
  $indexOfArray: on((within, value, from = 0, to = Number.MAX_SAFE_INTEGER) => {
    if (isNothing(within)) return null
    const values = arrayOf(
      within,
      40090,
      (type) => `$indexOfArray requires an array as a first argument, found: ${type}`,
    )
    return values.findIndex((each, index) => index >= Number(from) && index < Number(to) && equal(each, value))
  }),
  $arrayElemAt: onSome((within, index) => {
    const values = arrayOf(within, 28689, (type) => `$arrayElemAt's first argument must be an array, but is ${type}`)
    return values.at(Number(index))
  }),
  $slice: onSome((within, from, count) => {
    const values = arrayOf(
      within,
      28724,
      (type) => `First argument to $slice must be an array, but is of type: ${type}`,
    )
    const start = Number(from)
    if (count === undefined) return start < 0 ? values.slice(start) : values.slice(0, start)
    if (Number(count) <= 0) throw new CommandError(28729, `Third argument to $slice must be positive: ${Number(count)}`)
    const first = start < 0 ? Math.max(0, values.length + start) : start
    return values.slice(first, first + Number(count))
  }),
  $concatArrays: onSome((...parts) =>
    parts.flatMap((part) => arrayOf(part, 28664, (type) => `$concatArrays only supports arrays, not ${type}`)),
  ),
  $filter: (document, argument, options) => {
    const { input, cond, as = 'this' } = argument as Each
    return (
      each(document, input, options, 28651, '$filter')?.filter((item) =>
        truth(within(document, { [as]: item }, cond, options)),
      ) ?? null
    )
  },
  $map: (document, argument, options) => {
    const { input, in: body, as = 'this' } = argument as Each
    return (
      each(document, input, options, 16883, '$map')?.map(
        (item) => within(document, { [as]: item }, body, options) ?? null,
      ) ?? null
    )
  },
  $reduce: (document, argument, options) => {
    const { input, in: body, initialValue } = argument as Each
    const first = evalExpr(document, initialValue, options)
    return (
      each(document, input, options, 40080, '$reduce')?.reduce(
        (value, item) => within(document, { this: item, value }, body, options),
        first,
      ) ?? null
    )
  },
}

interface Each {
  readonly input: unknown
  readonly cond?: unknown
  readonly in?: unknown
  readonly as?: string
  readonly initialValue?: unknown
}

function each(
  document: unknown,
  input: unknown,
  options: Options,
  code: number,
  name: string,
): readonly unknown[] | undefined {
  const value = evalExpr(document, input, options)
  return isNothing(value) ? undefined : arrayOf(value, code, (type) => `input to ${name} must be an array not ${type}`)
}

/** The expression, in which these variables have these values. */
function within(
  document: unknown,
  values: Readonly<Record<string, unknown>>,
  body: unknown,
  options: Options,
): unknown {
  const vars = Object.fromEntries(Object.entries(values).map(([name, value]) => [name, { $literal: value }]))
  return $let(document as Document, { vars, in: body }, options)
}

const conversions: Readonly<Record<string, Operator>> = {
  $toLong: onSome((value) => {
    const long = BigInt(whole(value, 'long'))
    if (long !== BigInt.asIntN(64, long))
      throw new CommandError(241, `Failed to parse number '${long}' in $convert with no onError value: Overflow`)
    return long
  }),
  $toInt: onSome((value) => {
    const number = Number(whole(value, 'int'))
    if (!isInt(number))
      throw new CommandError(241, 'Conversion would overflow target type in $convert with no onError value')
    return number
  }),
  $toDouble: onSome((value) => Number(value instanceof Date ? value.getTime() : value)),
  $toDate: onSome((value) =>
    value instanceof Date ? value : new Date(typeof value === 'string' ? value : Number(value)),
  ),
  $type: on(typeOf),
  $isNumber: on(isNumber),
  $isArray: on((value) => Array.isArray(value)),
  $indexOfCP: on((text, part, from = 0) =>
    typeof text === 'string' ? text.indexOf(part as string, Number(from)) : null,
  ),
  $mergeObjects: alsoInGroups(
    on((...values) => {
      const parts = values.length === 1 && Array.isArray(values[0]) ? values[0] : values
      const wrong = parts.find((part) => !isNothing(part) && !isPlain(part))
      if (wrong !== undefined)
        throw new CommandError(40400, `$mergeObjects requires object inputs, but input is of type ${typeOf(wrong)}`)
      return Object.assign({}, ...parts)
    }),
    mergeOfGroup as Operator,
  ),
}

function whole(value: unknown, target: string): number | bigint | string {
  if (value instanceof Date) return value.getTime()
  if (typeof value === 'boolean') return Number(value)
  if (typeof value === 'bigint') return value
  if (typeof value === 'number' && Number.isFinite(value)) return Math.trunc(value)
  if (typeof value === 'string' && /^-?\d+$/.test(value)) return value
  throw new CommandError(
    241,
    `Unsupported conversion from ${typeOf(value)} to ${target} in $convert with no onError value`,
  )
}

/** In a $group, mingo calls an operator with the documents of the group instead of one document. */
function alsoInGroups(operator: Operator, inGroup: Operator): Operator {
  return (document, argument, options) => (Array.isArray(document) ? inGroup : operator)(document, argument, options)
}

/** The operator of an array, on what the documents of the group give. */
function overGroup(operator: Operator): Operator {
  return alsoInGroups(operator, (documents, argument, options) => {
    const values = valuesOfGroup(documents as Document[], argument, options)
    return operator({}, [{ $literal: values }], options)
  })
}

export const EXPRESSIONS: Readonly<Record<string, Operator>> = {
  ...comparisons,
  ...arithmetic,
  ...arrays,
  ...conversions,
}
