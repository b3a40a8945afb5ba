/** Changes as the functions of sql/records.sql want them, and what those answer in the words of the contract. */
import type { Change, Entered, Entrance, Put, Stored, StoredSummary, When } from '../../core/store.ts'
import { texts } from './codec.ts'

/** Value in hexadecimal digits, version, mark, and for how long it lives. Null: nothing is stored. */
export type FoundRow = readonly [string | null, string, string, number | null] | null

export type PutRow = readonly ['stored', string, string] | readonly [keyof When, FoundRow] | readonly ['strict']

/** The answer of `begin`. Where the record is stored, the token comes last. */
export type EnteredRow = PutRow | readonly ['stored', string, string, string]

/** Key, bytes, version, mark, and for how long it lives. Null bytes: it has expired, or is a removal. */
export type PostgresRecordRow = readonly [string, number | null, string, string, number | null]

/** One array for each parameter of `put`. */
export function valuesOf(changes: readonly Change[]): string[] {
  const [keys, values, ttls, marks, ...others] = freeValuesOf(changes)
  return [keys, values, ttls, marks, nullable(changes, ({ when }) => when.holding), ...others]
}

type FreeValues = [keys: string, values: string, ttls: string, marks: string, ...conditions: string[]]

/** The same without `holding`: for `begin` and `end`, which are given the ids of entries in arrays of their own. */
export function freeValuesOf(changes: readonly Change[]): FreeValues {
  return [
    texts(changes.map(({ key }) => key)),
    nullable(changes, ({ value }) => (value === null ? null : Buffer.from(value).toString('hex'))),
    nullable(changes, ({ ttlMs }) => ttlMs),
    nullable(changes, ({ mark }) => mark),
    nullable(changes, ({ when }) => when.absent),
    nullable(changes, ({ when }) => when.version),
    nullable(changes, ({ when }) => when.markBelow),
  ]
}

type Given = string | number | bigint | boolean | null | undefined

/** Digits, ids and booleans are themselves between quotes; what is not given is NULL without any. */
function nullable(changes: readonly Change[], given: (change: Change) => Given): string {
  const items = changes.map((change) => given(change) ?? null)
  return `{${items.map((item) => (item === null ? 'NULL' : `"${item}"`)).join(',')}}`
}

export function storedOf(key: string, row: FoundRow): Stored {
  if (row === null) return { key, value: null, version: 0n, mark: 0n, livesForMs: null }
  const [hex, version, mark, livesForMs] = row
  const value = hex === null ? null : Buffer.from(hex, 'hex')
  return { key, value, version: BigInt(version), mark: BigInt(mark), livesForMs }
}

export function putOf(key: string, row: PutRow, serverTimeMs: number): Put {
  if (row[0] === 'stored') {
    const [state, version, mark] = row as Extract<PutRow, readonly ['stored', string, string]>
    return { state, version: BigInt(version), mark: BigInt(mark), serverTimeMs }
  }
  const [by, found] = row as readonly [keyof When, FoundRow]
  return { state: 'refused', by, stored: storedOf(key, found), serverTimeMs }
}

export function enteredOf({ claim, change }: Entrance, row: EnteredRow, serverTimeMs: number): Entered {
  const put = putOf(change.key, row as PutRow, serverTimeMs)
  if (put.state !== 'stored') return { standing: { state: 'busy', ahead: null }, put }
  return { standing: { state: 'held', token: BigInt(row[3] ?? ''), heldForMs: claim.ttlMs }, put }
}

export function recordSummaryOf([key, bytes, version, mark, livesForMs]: PostgresRecordRow): StoredSummary | undefined {
  return bytes === null ? undefined : { key, bytes, version: BigInt(version), mark: BigInt(mark), livesForMs }
}
