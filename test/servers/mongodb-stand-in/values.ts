/**
 * Values as the stand-in keeps them, their order and their arithmetic.
 *
 * A whole number below 2^31 is an int, other JavaScript numbers are doubles, and a bigint is a long. With these, the
 * package `bson` reads and writes the types that a lock document needs. What is lost is a double with a whole value,
 * which becomes an int. The order is that of the server: by type first, numbers of all types by value.
 */
import { type Document, serialize } from 'bson'
import { CommandError } from './errors.ts'

export type { Document } from 'bson'

const RANKS: Readonly<Record<string, number>> = {
  minKey: 0,
  missing: 1,
  undefined: 1,
  null: 2,
  int: 3,
  long: 3,
  double: 3,
  decimal: 3,
  string: 4,
  object: 5,
  array: 6,
  binData: 7,
  objectId: 8,
  bool: 9,
  date: 10,
  timestamp: 11,
  regex: 12,
  maxKey: 13,
}

const BSON_TYPES: Readonly<Record<string, string>> = {
  Binary: 'binData',
  UUID: 'binData',
  ObjectId: 'objectId',
  Timestamp: 'timestamp',
  Decimal128: 'decimal',
  MinKey: 'minKey',
  MaxKey: 'maxKey',
  BSONRegExp: 'regex',
  Int32: 'int',
  Double: 'double',
  Long: 'long',
}

/** The name of the type, in the words of the server. */
export function typeOf(value: unknown): string {
  if (value === undefined) return 'missing'
  if (value === null) return 'null'
  if (typeof value === 'number') return isInt(value) ? 'int' : 'double'
  if (typeof value === 'bigint') return 'long'
  if (typeof value === 'string') return 'string'
  if (typeof value === 'boolean') return 'bool'
  if (Array.isArray(value)) return 'array'
  if (value instanceof Date) return 'date'
  if (value instanceof RegExp) return 'regex'
  return BSON_TYPES[(value as { _bsontype?: string })._bsontype ?? ''] ?? 'object'
}

export function isInt(value: unknown): value is number {
  return typeof value === 'number' && (value | 0) === value
}

export function isNumber(value: unknown): value is number | bigint {
  return typeof value === 'number' || typeof value === 'bigint'
}

export function isNothing(value: unknown): value is undefined | null {
  return value === undefined || value === null
}

export function isPlain(value: unknown): value is Document {
  return typeOf(value) === 'object'
}

/** Values of different rank are never compared by $lt and its like in a filter. */
export function rankOf(value: unknown): number {
  return RANKS[typeOf(value)] ?? 5
}

export function compare(a: unknown, b: unknown): number {
  const rank = rankOf(a)
  const difference = rank - rankOf(b)
  if (difference !== 0) return Math.sign(difference)
  switch (rank) {
    case 3:
    case 9:
      return order(a, b)
    case 4:
      return a === b ? 0 : Buffer.compare(Buffer.from(a as string), Buffer.from(b as string))
    case 5:
      return compareObjects(a as Document, b as Document)
    case 6:
      return compareArrays(a as unknown[], b as unknown[])
    case 10:
      return order((a as Date).getTime(), (b as Date).getTime())
    case 0:
    case 1:
    case 2:
    case 13:
      return 0
    default:
      return Buffer.compare(bytesOf(a), bytesOf(b))
  }
}

export function equal(a: unknown, b: unknown): boolean {
  return a === b || compare(a, b) === 0
}

/** Equal for equal values: 1, 1n and 1.0 are one key. */
export function keyOf(value: unknown): string {
  if (typeof value === 'string') return `s${value}`
  if (isNumber(value)) return `n${value}`
  return `x${bytesOf(value).toString('hex')}`
}

function bytesOf(value: unknown): Buffer {
  return Buffer.from(serialize({ value: value ?? null }))
}

function order(a: unknown, b: unknown): number {
  const [x, y] = [a as number, b as number]
  return x < y ? -1 : x > y ? 1 : 0
}

function compareObjects(a: Document, b: Document): number {
  const [xs, ys] = [Object.entries(a), Object.entries(b)]
  for (const [index, [name, value]] of xs.entries()) {
    const other = ys[index]
    if (other === undefined) return 1
    const by = rankOf(value) - rankOf(other[1]) || compare(name, other[0]) || compare(value, other[1])
    if (by !== 0) return Math.sign(by)
  }
  return Math.sign(xs.length - ys.length)
}

function compareArrays(a: readonly unknown[], b: readonly unknown[]): number {
  for (const [index, value] of a.entries()) {
    if (index >= b.length) return 1
    const by = compare(value, b[index])
    if (by !== 0) return by
  }
  return Math.sign(a.length - b.length)
}

const LONGEST = 2n ** 63n

/** Two numbers: ints stay ints while they fit, a long makes longs, a double doubles. */
export function calculate(name: string, a: unknown, b: unknown, whole: Whole, real: Real): number | bigint {
  if (!isNumber(a) || !isNumber(b)) {
    const wrong = isNumber(a) ? b : a
    throw new CommandError(14, `${name} only supports numeric types, not ${typeOf(wrong)}`)
  }
  const long = typeof a === 'bigint' || typeof b === 'bigint'
  const double = [a, b].some((each) => typeof each === 'number' && !isInt(each))
  if (double) return real(Number(a), Number(b))
  const result = whole(BigInt(a), BigInt(b))
  if (result >= LONGEST || result < -LONGEST) return Number(result)
  return !long && isInt(Number(result)) ? Number(result) : result
}

type Whole = (a: bigint, b: bigint) => bigint
type Real = (a: number, b: number) => number

export function add(a: unknown, b: unknown): unknown {
  if (a instanceof Date && b instanceof Date)
    throw new CommandError(16612, 'only one date allowed in an $add expression')
  if (a instanceof Date) return moved('$add', a, b, 1)
  if (b instanceof Date) return moved('$add', b, a, 1)
  return calculate(
    '$add',
    a,
    b,
    (x, y) => x + y,
    (x, y) => x + y,
  )
}

export function subtract(a: unknown, b: unknown): unknown {
  if (a instanceof Date && b instanceof Date) return BigInt(a.getTime() - b.getTime())
  if (a instanceof Date) return moved('$subtract', a, b, -1)
  return calculate(
    '$subtract',
    a,
    b,
    (x, y) => x - y,
    (x, y) => x - y,
  )
}

export function multiply(a: unknown, b: unknown): unknown {
  return calculate(
    '$multiply',
    a,
    b,
    (x, y) => x * y,
    (x, y) => x * y,
  )
}

export function modulo(a: unknown, b: unknown): unknown {
  if (isNumber(b) && Number(b) === 0) throw new CommandError(16610, "can't $mod by zero")
  return calculate(
    '$mod',
    a,
    b,
    (x, y) => x % y,
    (x, y) => x % y,
  )
}

function moved(name: string, date: Date, by: unknown, sign: number): Date {
  if (!isNumber(by)) throw new CommandError(14, `${name} only supports numeric or date types, not ${typeOf(by)}`)
  return new Date(date.getTime() + sign * Math.round(Number(by)))
}
