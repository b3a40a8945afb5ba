/**
 * The names of what is kept for a line beside its lock: three keys (see lua/line.lua), its record (see lua/record.lua),
 * and the counter that tokens come from. In Cluster they are declared, and made here; elsewhere the scripts make them,
 * all with the suffix `:{...}`.
 *
 * How names are made so that they are in the slot of the lock is in clients/redis/names.ts.
 */
import { globEscape, type Naming, nameOfSuffix, RESERVED, suffixOf, tagOfSlot } from '../../clients/redis/names.ts'

const PARTS = ['entries', 'queue', 'expiries'] as const
const ENTRIES = `${RESERVED}entries`
const RECORD = `${RESERVED}record`
const POOL_PARTS = ['pool', 'holds', 'lapses', 'forgets'] as const

/** The counter that the tokens of a slot come from. Outside Cluster there is one. */
export function counterKey(slot?: number): string {
  return slot === undefined ? `${RESERVED}counter` : `${RESERVED}counter:{${tagOfSlot(slot)}}`
}

/** The three other keys of a line, in Cluster. */
export function siblings(serverKey: string): readonly string[] {
  const suffix = suffixOf(serverKey)
  return PARTS.map((part) => RESERVED + part + suffix)
}

/** The record of a line, in Cluster. */
export function recordKey(serverKey: string): string {
  return RECORD + suffixOf(serverKey)
}

/** The record of a line elsewhere, as the scripts name it (see lua/record.lua). */
export function plainRecordKey(serverKey: string): string {
  return `${RECORD}:{${serverKey}}`
}

/** The four keys of a pool (see lua/hold.lua), in Cluster. */
export function poolKeys(serverKey: string): readonly string[] {
  const suffix = suffixOf(serverKey)
  return POOL_PARTS.map((part) => RESERVED + part + suffix)
}

/** The server key of a line, if `name` is that of its entries. */
export function lineOfEntries(name: string, naming: Naming): string | undefined {
  return lineOf(ENTRIES, name, naming)
}

/** The server key of a line, if `name` is that of its record. */
export function lineOfRecord(name: string, naming: Naming): string | undefined {
  return lineOf(RECORD, name, naming)
}

function lineOf(word: string, name: string, { cluster, keyPrefix }: Naming): string | undefined {
  const own = cluster ? name.slice(keyPrefix.length) : name
  return own.startsWith(word) ? nameOfSuffix(own.slice(word.length)) : undefined
}

/** Patterns for SCAN that find the entries of lines whose server key begins with `prefix`. */
export function entriesPatterns(prefix: string, naming: Naming): readonly string[] {
  return patterns(ENTRIES, prefix, naming)
}

/** Patterns for SCAN that find the records of lines whose server key begins with `prefix`. */
export function recordPatterns(prefix: string, naming: Naming): readonly string[] {
  return patterns(RECORD, prefix, naming)
}

function patterns(word: string, prefix: string, { cluster, keyPrefix }: Naming): readonly string[] {
  const rest = `${globEscape(prefix)}*`
  if (!cluster) return [`${word}:{${rest}`]
  return [':{', '/', '{*}'].map((form) => `${globEscape(keyPrefix)}${word}${form}${rest}`)
}
