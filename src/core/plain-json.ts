/**
 * Values as `JSON.stringify` takes them, for errors on their way into a log: tokens become decimal strings, because
 * JSON has no integers of their size, and nothing that a program has put there makes the log fail.
 */
import { thrownText } from './thrown.ts'

/** `value` without bigints, errors and circles. `around`: the objects that it is in. */
export function plainJson(value: unknown, around: readonly object[] = []): unknown {
  if (typeof value === 'bigint') return String(value)
  if (typeof value !== 'object' || value === null) return value
  if (around.includes(value)) return '[circular]'
  if (value instanceof Error) return thrownText(value)
  if ('toJSON' in value) return value
  const inside = [...around, value]
  if (Array.isArray(value)) return value.map((each) => plainJson(each, inside))
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, plainJson(each, inside)]))
}
