/** What the answers of several servers add up to. */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { decideGrant, decideRenewal, majorityOf, summarizeRefusals } from '../../src/engines/redlock/quorum-decision.ts'
import type { TakeReply } from '../../src/engines/redlock/quorum-server.ts'

const silent: TakeReply = { why: 'silent' }
const missing: TakeReply = { why: 'missing', nowMs: 0 }
const taken = (by: string): TakeReply => ({ why: 'taken', by, stranger: false, ahead: 1, next: true, recheckMs: 10 })

test('a majority is more than half', () => {
  expect([3, 4, 5, 7].map(majorityOf)).toEqual([2, 3, 3, 4])
})

describe('a lock', () => {
  test('is granted as soon as a majority has it under one number, whatever the others say or do not say', () => {
    expect(decideGrant([7, undefined, 7, 7, undefined], 0)).toEqual({ step: 'granted', token: 7 })
    expect(decideGrant([7, 9, 7, 7, taken('x')], 0)).toEqual({ step: 'granted', token: 7 })
  })

  test('that a majority has under different numbers is raised to the highest, or to what a server has counted to', () => {
    expect(decideGrant([7, 9, 8, undefined, undefined], 0)).toEqual({ step: 'raise', to: 9 })
    expect(decideGrant([7, 9, 8, undefined, undefined], 12)).toEqual({ step: 'raise', to: 12 })
  })

  test('is given up as soon as no majority can have it', () => {
    expect(decideGrant([7, taken('x'), taken('x'), taken('x'), undefined], 0)).toEqual({ step: 'failed' })
    expect(decideGrant([7, 7, taken('x'), silent, undefined], 0)).toEqual({ step: 'open' })
    expect(decideGrant([7, 7, taken('x'), silent, silent], 0)).toEqual({ step: 'failed' })
  })
})

describe('a holder', () => {
  test('is confirmed by a majority that has its own number, and by no other', () => {
    expect(decideRenewal([7, 7, 7, undefined, undefined], 7)).toEqual({ step: 'granted', token: 7 })
    expect(decideRenewal([8, 8, 8, 8, 8], 7)).toEqual({ step: 'failed' })
  })

  test('is not given up while servers that are silent may have it', () => {
    expect(decideRenewal([7, 7, missing, silent, undefined], 7)).toEqual({ step: 'open' })
    expect(decideRenewal([7, missing, missing, missing, undefined], 7)).toEqual({ step: 'failed' })
  })
})

test('a split is told from a lock that one entry has', () => {
  expect(summarizeRefusals([1, taken('x'), taken('y'), taken('x'), silent]).split).toBe(true)
  expect(summarizeRefusals([1, taken('x'), taken('x'), taken('x'), silent]).split).toBe(false)
})

test('no two majorities are granted different tokens by the same answers, and none without a majority', () => {
  const answer = fc.oneof(
    fc.integer({ min: 1, max: 3 }),
    fc.constantFrom<TakeReply | undefined>(undefined, silent, missing, taken('x')),
  )
  fc.assert(
    fc.property(fc.array(answer, { minLength: 3, maxLength: 7 }), (answers) => {
      const found = decideGrant(answers, 0)
      const ours = answers.filter((one) => typeof one === 'number')
      const most = majorityOf(answers.length)
      if (found.step === 'granted')
        expect(answers.filter((one) => one === found.token).length).toBeGreaterThanOrEqual(most)
      if (found.step === 'raise') expect(found.to).toBe(Math.max(...ours))
      if (found.step === 'failed')
        expect(ours.length + answers.filter((one) => one === undefined).length).toBeLessThan(most)
    }),
  )
})
