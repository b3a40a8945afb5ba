/** Changes as the procedures of sql/records.sql want them, and what those answer in the words of the contract. */
import { type EngineCall, unexpectedAnswer } from '../../core/failed-call.ts'
import type { Change, Got, Put, Stored, StoredSummary, When } from '../../core/store.ts'
import type { PoolStep } from '../../core/store-hold.ts'
import { poolsOf, textOfLines } from '../shared/pool-codec.ts'
import { hex, unhex } from './codec.ts'
import { ENGINE, recordLocked } from './errors.ts'

/** What it is, value in hexadecimal digits, version, mark, microseconds that it lives, and what time it is. */
export type MysqlRecordRow = readonly unknown[]

/** So long a ttl is as good as none: 100 years, which microseconds can tell. */
const LONGEST_TTL_MS = 100 * 31_557_600_000

/** The argument of `get`. */
export function getArgument(keys: readonly string[]): string {
  return `'${keys.map((key) => `${hex(key)};`).join('')}'`
}

/** The arguments of `put`, but for the last. */
export function putArguments(changes: readonly Change[]): string[] {
  const asking = changes.filter(({ when }) => when.holding !== undefined)
  const batch = changes.map(({ key, value, ttlMs, mark, when }) => {
    const { holding, absent, version, markBelow } = when
    const length = value === null ? null : 2 * value.length
    const given = [holding, length, ttlUs(ttlMs), mark, absent === undefined ? null : 1, version, markBelow]
    return `${[hex(key), ...given.map((one) => one ?? '-')].join(' ')};`
  })
  const values = changes.map(({ value }) => (value === null ? '' : hexBytes(value)))
  return [lockOrder(changes), lockOrder(asking), `'${batch.join('')}'`, `'${values.join('')}'`]
}

/** The arguments of `put_in`. */
export function putInArguments({ key, value, ttlMs, mark, when }: Change, holds: boolean, isEmpty: boolean): string[] {
  const { absent, version, markBelow } = when
  const given = [ttlUs(ttlMs), mark, holds, isEmpty, absent, version, markBelow]
  return [
    `x'${hex(key)}'`,
    value === null ? 'NULL' : `x'${hexBytes(value)}'`,
    ...given.map((one) => (one === undefined || one === null ? 'NULL' : String(one).toUpperCase())),
  ]
}

/** The arguments of `hold`. */
export function holdArguments(steps: readonly PoolStep[]): string[] {
  const pools = poolsOf(steps).keys.map((key) => `${hex(key)};`)
  const batch = steps.map(({ key, verb, id, lines, ms, wantMs, flag }) => {
    const given = [hex(key), verb, hex(id), hex(textOfLines(lines)), Math.ceil(ms), Math.ceil(wantMs), flag ? 1 : 0]
    return `${given.join(' ')};`
  })
  return [`'${pools.join('')}'`, `'${batch.join('')}'`]
}

/** The keys once each, in the order of their bytes. */
function lockOrder(changes: readonly Change[]): string {
  const keys = new Set(changes.map(({ key }) => hex(key)))
  return `'${[...keys]
    .sort()
    .map((key) => `${key};`)
    .join('')}'`
}

function ttlUs(ttlMs: number | null): string | null {
  return ttlMs === null ? null : `${Math.min(ttlMs, LONGEST_TTL_MS)}000`
}

function hexBytes(value: Uint8Array): string {
  return Buffer.from(value.buffer, value.byteOffset, value.byteLength).toString('hex')
}

export function gotOf(key: string, row: MysqlRecordRow): Got {
  return { state: 'read', stored: storedOf(key, row), serverTimeMs: timeOf(row) }
}

export function putOf(key: string, row: MysqlRecordRow): Put {
  const [state, , version, mark] = row
  if (state === 'locked') return { state: 'failed', error: recordLocked(key) }
  if (state === 'stored')
    return { state, version: BigInt(String(version)), mark: BigInt(String(mark)), serverTimeMs: timeOf(row) }
  return { state: 'refused', by: state as keyof When, stored: storedOf(key, row), serverTimeMs: timeOf(row) }
}

function storedOf(key: string, [, value, version, mark, livesForUs]: MysqlRecordRow): Stored {
  return {
    key,
    value: value === null ? null : Buffer.from(value as string, 'hex'),
    version: BigInt(String(version)),
    mark: BigInt(String(mark)),
    livesForMs: livesForUs === null ? null : Number(livesForUs) / 1000,
  }
}

function timeOf(row: MysqlRecordRow): number {
  return Number(row[5]) / 1000
}

/** Undefined for what has expired, and for removals. */
export function recordSummaryOf([key, bytes, version, mark, livesForUs]: MysqlRecordRow): StoredSummary | undefined {
  if (bytes === null) return undefined
  return {
    key: unhex(key),
    bytes: Number(bytes),
    version: BigInt(String(version)),
    mark: BigInt(String(mark)),
    livesForMs: livesForUs === null ? null : Number(livesForUs) / 1000,
  }
}

/** One row for each of `count` items: the only one of its result set. */
export function rowsOf(
  call: EngineCall,
  sets: readonly (readonly MysqlRecordRow[])[],
  count: number,
): readonly MysqlRecordRow[] {
  const rows = sets.map(([row]) => row).filter((row) => row !== undefined)
  if (rows.length === count) return rows
  throw unexpectedAnswer(ENGINE, call, `the answer has ${rows.length} rows instead of ${count}`)
}
