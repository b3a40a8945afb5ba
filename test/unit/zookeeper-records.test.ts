/** What a record of ZooKeeper is, from the bytes of its node and the time of the servers; and when it is swept. */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { TOMBSTONE_MS } from '../../src/core/store.ts'
import { storedOf } from '../../src/engines/shared/kept-record.ts'
import {
  asOf,
  changed,
  NO_RECORD,
  readRecord,
  writeRecord,
  type ZooKeeperRecord,
} from '../../src/engines/zookeeper/record-codec.ts'
import { endedSlots, slotFor } from '../../src/engines/zookeeper/record-slots.ts'

const YEAR_MS = 365 * 24 * 3_600_000
const NOW_MS = 1_800_000_000_000

describe('a record', () => {
  const record: ZooKeeperRecord = { ...NO_RECORD, kind: 'value', version: 9n, mark: 5n, ttlMs: 1_000, putAtMs: NOW_MS }

  test('whatever is written comes back', () => {
    fc.assert(
      fc.property(
        fc.constantFrom('value', 'removed', 'nothing'),
        fc.bigInt({ min: 0n, max: 2n ** 53n - 1n }),
        fc.nat(),
        fc.nat(),
        fc.uint8Array({ maxLength: 100 }),
        (kind, mark, ttlMs, slot, bytes) => {
          const content = { kind, mark, ttlMs, slot, value: Buffer.from(bytes) }
          const stat = { czxid: 1n, mzxid: 7n, mtimeMs: 3, version: 4, ephemeralOwner: 0n, childCount: 0 }
          const read = readRecord('/r', { data: writeRecord(content), stat })
          expect(read).toEqual({ ...content, version: 7n, nodeVersion: 4, putAtMs: 3 })
        },
      ),
    )
  })

  test('is there until its ttl is over, by the time of the servers, and is nothing from that moment on', () => {
    expect(storedOf('k', asOf(record, NOW_MS + 999), NOW_MS + 999)).toMatchObject({ version: 9n, livesForMs: 1 })
    const over = asOf(record, NOW_MS + 1_000)
    expect(storedOf('k', over, NOW_MS + 1_000)).toEqual({
      key: 'k',
      value: null,
      version: 0n,
      mark: 0n,
      livesForMs: null,
    })
    // Its mark has gone with it.
    const change = { key: 'k', value: Buffer.from('x'), ttlMs: null, mark: 2n, when: {} }
    expect([changed(record, change, true, NOW_MS).mark, changed(over, change, true, NOW_MS).mark]).toEqual([5n, 2n])
    const stays = { ...record, ttlMs: 0 }
    expect(asOf(stays, NOW_MS + YEAR_MS)).toBe(stays)
  })

  test('a removal is remembered for a day, where it has to be', () => {
    const removal = { key: 'k', value: null, ttlMs: null, when: {} }
    expect(changed(record, removal, true, NOW_MS)).toMatchObject({ kind: 'removed', mark: 0n, ttlMs: TOMBSTONE_MS })
    expect(changed(record, removal, false, NOW_MS)).toMatchObject({ kind: 'nothing', mark: 0n })
  })
})

describe('slots', () => {
  test('a slot does not end before the expiry, and soon after it, against the ttl', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: YEAR_MS }), fc.integer({ min: 0, max: YEAR_MS }), (ttlMs, passedMs) => {
        const nowMs = NOW_MS + passedMs
        const lateMs = slotFor(ttlMs, nowMs) - (nowMs + ttlMs)
        expect(lateMs).toBeGreaterThanOrEqual(0)
        expect(lateMs).toBeLessThanOrEqual(Math.max(60_000, ttlMs / 8))
      }),
    )
  })

  test('those that have ended are swept, the oldest first, and other names are left alone', () => {
    expect(endedSlots(['900', '120', 'x', '1000', '1e2', '-5', '60'], 900)).toEqual([60, 120, 900])
  })
})
