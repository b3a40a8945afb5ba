/**
 * What a record is on servers that keep bytes under a name, and know nothing of records (etcd, ZooKeeper). A removal is
 * such bytes as well, so that its version is not given again. How they are written is in the codec of each engine.
 */
import { EngineError } from '../../core/errors.ts'
import type { Stored } from '../../core/store.ts'

/** `removed` is remembered. `nothing`: a removal that need not be. It stays for a moment: that gives it a number. */
export type RecordKind = 'value' | 'removed' | 'nothing'

/** As it is stored, a kind is its place in this list. */
export const RECORD_KINDS: readonly RecordKind[] = ['nothing', 'removed', 'value']

export interface KeptRecord {
  readonly kind: RecordKind
  /** The number of its last change, as the server counts. 0: nothing is kept. */
  readonly version: bigint
  readonly mark: bigint
  readonly value: Buffer
  /** 0: it stays. */
  readonly ttlMs: number
  /** When it was put (ms since 1970). */
  readonly putAtMs: number
}

/** What conditions are about. Of `nothing`, no version is remembered. */
export function foundOf({ kind, version, mark, value }: KeptRecord): Pick<Stored, 'value' | 'version' | 'mark'> {
  if (kind === 'value') return { value, version, mark }
  return { value: null, version: kind === 'removed' ? version : 0n, mark: 0n }
}

export function storedOf(key: string, record: KeptRecord, nowMs: number): Stored {
  return { key, ...foundOf(record), livesForMs: record.kind === 'value' ? livesForMsOf(record, nowMs) : null }
}

/** At least 1: what ends a record is its server, also where `nowMs` is by another clock. */
export function livesForMsOf({ ttlMs, putAtMs }: KeptRecord, nowMs: number): number | null {
  return ttlMs === 0 ? null : Math.min(ttlMs, Math.max(1, putAtMs + ttlMs - nowMs))
}

/** Other clients have changed the record in between again and again. It was compared each time, and not changed. */
export function unsettledPut(engine: string, key: string): EngineError {
  return new EngineError(engine, `put: other clients change the record of '${key}' all the time`, {
    outcome: 'not-applied',
  })
}
