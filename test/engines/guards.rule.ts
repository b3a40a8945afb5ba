/** What guards have in common on all backends: they decide as the pure rule does, store the same marks, and forget. */
import fc from 'fast-check'
import { expect } from 'vitest'
import { StaleTokenError } from '../../src/core/errors.ts'
import type { LeaseLike } from '../../src/guards/lease-like.ts'
import { type Access, type ForgetAfter, type Mark, NO_MARKS, raiseMarks } from '../../src/guards/marks.ts'

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

/** Guards of one place that differ in `forget`, and time that can be let go by. */
export interface ForgettingGuards {
  /** Access that resource in a transaction of its own, by a guard that was made with that option. */
  check(forget: ForgetAfter | undefined, access: Access, lease: LeaseLike): Promise<void>
  list(prefix: string): Promise<readonly Mark[]>
  /** As if so much time had gone by since the marks were used: their ends come nearer. */
  pass(ms: number): Promise<void>
  /** Have those removed whose time is over. */
  forget(): Promise<unknown>
}

const DAY_MS = 86_400_000

/** Marks are forgotten when the chosen time has gone by since their last use, and never before. */
export async function expectForgetting({ check, list, pass, forget }: ForgettingGuards): Promise<void> {
  const days = async (count: number): Promise<void> => {
    await pass(count * DAY_MS)
    await forget()
  }
  const refused = async (key: string): Promise<void> =>
    await expect(check('30d', 'write', leaseLike(8n, key))).rejects.toThrow(StaleTokenError)

  for (const key of ['f:used', 'f:late', 'f:mixed', 'f:longer']) await check('30d', 'write', leaseLike(9n, key))
  await check(undefined, 'read', leaseLike(9n, 'f:mixed'))
  await check('1h', 'write', leaseLike(9n, 'f:longer'))
  await check(undefined, 'write', leaseLike(9n, 'f:ever'))
  await check('30d', 'write', leaseLike(9n, 'f:ever'))

  await days(29)
  for (const key of ['f:used', 'f:late', 'f:mixed', 'f:longer', 'f:ever']) await refused(key)
  // A read is a use, too; what was refused is none.
  await check('30d', 'read', leaseLike(9n, 'f:used'))
  await days(2)
  expect((await list('f:')).map(({ resource }) => resource)).toEqual(['f:ever', 'f:mixed', 'f:used'])
  await refused('f:used')
  // This is what is lost: the guard does not know any more that a higher token has been here.
  await check('30d', 'write', leaseLike(8n, 'f:late'))

  await days(10_000)
  expect((await list('f:')).map(({ resource }) => resource)).toEqual(['f:ever', 'f:mixed'])
  for (const key of ['f:ever', 'f:mixed']) await refused(key)
}
