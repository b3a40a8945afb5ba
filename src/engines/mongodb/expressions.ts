/**
 * Words of MongoDB's expression language, as functions.
 *
 * What a user wrote goes through `literal` and nothing else: a holder called `$token` or a key called `$$NOW` would
 * otherwise be evaluated by the server.
 *
 * Traps of the language that were met on a real server: `$slice` with a count of 0 as its third argument is an error,
 * and so are `$size` and `$in` of a missing field. `$cond` evaluates only the branch that it takes.
 */

/** An expression, in the spelling of the server. */
export type Expression = string | number | boolean | null | readonly Expression[] | { readonly [name: string]: unknown }

/** Values by name, for `$let`. */
export type Variables = Readonly<Record<string, Expression>>

export const NOW = '$$NOW'

export const literal = (value: string): Expression => ({ $literal: value })
export const either = (condition: Expression, then: Expression, otherwise: Expression): Expression => ({
  $cond: [condition, then, otherwise],
})
export const withVariables = (vars: Variables, value: Expression): Expression => ({ $let: { vars, in: value } })
export const equal = (one: Expression, other: Expression): Expression => ({ $eq: [one, other] })
export const above = (one: Expression, other: Expression): Expression => ({ $gt: [one, other] })
export const not = (condition: Expression): Expression => ({ $not: [condition] })
export const all = (...conditions: Expression[]): Expression => ({ $and: conditions })
export const isIn = (value: Expression, array: Expression): Expression => ({ $in: [value, array] })
export const orElse = (value: Expression, otherwise: Expression): Expression => ({ $ifNull: [value, otherwise] })
export const isNull = (value: Expression): Expression => equal(orElse(value, null), null)
export const concat = (...texts: Expression[]): Expression => ({ $concat: texts })
export const joined = (...arrays: Expression[]): Expression => ({ $concatArrays: arrays })
export const sizeOf = (array: Expression): Expression => ({ $size: array })
export const elementAt = (array: Expression, index: Expression): Expression => ({ $arrayElemAt: [array, index] })
export const merged = (object: Expression, changes: Variables): Expression => ({ $mergeObjects: [object, changes] })
export const textOf = (value: Expression): Expression => ({ $toString: value })
export const afterMs = (ms: Expression): Expression => ({ $add: [NOW, ms] })

/** `condition` and `value` call the element `$$this`. */
export const filtered = (input: Expression, condition: Expression): Expression => ({
  $filter: { input, cond: condition },
})
export const mapped = (input: Expression, value: Expression): Expression => ({ $map: { input, in: value } })
/** `next` calls the element `$$this`, and what came of those before it `$$value`. */
export const reduced = (input: Expression, initialValue: Expression, next: Expression): Expression => ({
  $reduce: { input, initialValue, in: next },
})
