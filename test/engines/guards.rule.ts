/** What the guards of all backends have in common: they decide as the pure rule does, and store the same marks. */
import fc from 'fast-check'
import { expect } from 'vitest'
import { StaleTokenError } from '../../src/core/errors.ts'
import type { LeaseLike } from '../../src/guards/lease-like.ts'
import { type Access, type Mark, NO_MARKS, raiseMarks } from '../../src/guards/marks.ts'

/** A lease with that token. */
export function leaseLike(token: bigint, key = 'order', shared = false): LeaseLike {
  return { key, token, shared }
}

export interface Guarded {
  /** Access that resource in a transaction of its own; rejects if it is refused. */
  check(access: Access, lease: LeaseLike): Promise<void>
  list(prefix: string): Promise<readonly Mark[]>
}

let run = 0

/** Random reads and writes, each compared with the rule; resources are new for each run. */
export async function expectRule(guarded: Guarded, runs: number): Promise<void> {
  // Around a number beyond which a double skips some.
  const token = fc.oneof(fc.bigInt(1n, 9n), fc.bigInt(2n ** 53n, 2n ** 53n + 9n))
  const accesses = fc.array(fc.tuple(fc.constantFrom<Access>('read', 'write'), token), { minLength: 1, maxLength: 12 })
  const property = fc.asyncProperty(accesses, async (all) => {
    run += 1
    const resource = `run:${run}:%'"\\ä`
    let marks = NO_MARKS
    for (const [access, offered] of all) {
      const lowest = access === 'write' ? marks.seen : marks.written
      const lease = guarded.check(access, leaseLike(offered, resource))
      if (offered >= lowest) await lease
      else await expect(lease).rejects.toMatchObject({ name: 'StaleTokenError', resource, offered, seen: lowest })
      marks = raiseMarks(marks, offered, access)
    }
    expect(await guarded.list(resource)).toEqual([{ resource, ...marks }])
  })
  await fc.assert(property, { numRuns: runs })
  expect(StaleTokenError.code).toBe('STALE_TOKEN')
  await expectReasons(guarded)
}

/** What no token can make safe is refused with the reason, and leaves no mark. */
async function expectReasons({ check, list }: Guarded): Promise<void> {
  run += 1
  const key = `run:${run}`
  await expect(check('write', { key, token: 5n, shared: true })).rejects.toThrow(
    /shared lease .* whose write is the later one/,
  )
  for (const access of ['read', 'write'] as const)
    await expect(check(access, { key, token: null, shared: false })).rejects.toThrow(/without a token .* no fencing/)
  expect(await list(key)).toEqual([])
  await check('read', { key, token: 5n, shared: true })
  expect(await list(key)).toEqual([{ resource: key, seen: 5n, written: 0n }])
}
