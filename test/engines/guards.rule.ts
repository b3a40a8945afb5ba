/** What the guards of all backends have in common: they decide as the pure rule does, and store the same marks. */
import fc from 'fast-check'
import { expect } from 'vitest'
import { StaleTokenError } from '../../src/core/errors.ts'
import type { Bearer } from '../../src/guards/bearer.ts'
import { type Mark, raised, type Touch, UNTOUCHED } from '../../src/guards/marks.ts'

/** Somebody with that token. */
export function bearer(token: bigint, key = 'order', shared = false): Bearer {
  return { key, token, shared }
}

export interface Guarded {
  /** Touch that resource in a transaction of its own; rejects if it is refused. */
  come(touch: Touch, bearer: Bearer): Promise<void>
  list(prefix: string): Promise<readonly Mark[]>
}

let run = 0

/** Random touches, each compared with the rule; resources are new for each run. */
export async function expectRule(guarded: Guarded, runs: number): Promise<void> {
  // Around a number beyond which a double skips some.
  const token = fc.oneof(fc.bigInt(1n, 9n), fc.bigInt(2n ** 53n, 2n ** 53n + 9n))
  const touches = fc.array(fc.tuple(fc.constantFrom<Touch>('read', 'write'), token), { minLength: 1, maxLength: 12 })
  const property = fc.asyncProperty(touches, async (all) => {
    run += 1
    const resource = `run:${run}:%'"\\ä`
    let marks = UNTOUCHED
    for (const [touch, offered] of all) {
      const least = touch === 'write' ? marks.seen : marks.written
      const coming = guarded.come(touch, bearer(offered, resource))
      if (offered >= least) await coming
      else await expect(coming).rejects.toMatchObject({ name: 'StaleTokenError', resource, offered, seen: least })
      marks = raised(marks, offered, touch)
    }
    expect(await guarded.list(resource)).toEqual([{ resource, ...marks }])
  })
  await fc.assert(property, { numRuns: runs })
  expect(StaleTokenError.code).toBe('STALE_TOKEN')
  await expectReasons(guarded)
}

/** What no token can make safe is refused with the reason, and leaves no mark. */
async function expectReasons({ come, list }: Guarded): Promise<void> {
  run += 1
  const key = `run:${run}`
  await expect(come('write', { key, token: 5n, shared: true })).rejects.toThrow(
    /shared lease .* whose write is the later one/,
  )
  for (const touch of ['read', 'write'] as const)
    await expect(come(touch, { key, token: null, shared: false })).rejects.toThrow(/without a token .* no fencing/)
  expect(await list(key)).toEqual([])
  await come('read', { key, token: 5n, shared: true })
  expect(await list(key)).toEqual([{ resource: key, seen: 5n, written: 0n }])
}
