/** What the answers of several servers add up to. */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { Answer } from '../../src/engines/redlock/node.ts'
import { majorityOf, summaryOf, verdict, verdictOnHolder } from '../../src/engines/redlock/verdict.ts'

const silent: Answer = { why: 'silent' }
const missing: Answer = { why: 'missing', nowMs: 0 }
const taken = (by: string): Answer => ({ why: 'taken', by, stranger: false, ahead: 1, next: true, recheckMs: 10 })

test('a majority is more than half', () => {
  expect([3, 4, 5, 7].map(majorityOf)).toEqual([2, 3, 3, 4])
})

describe('a lock', () => {
  test('is granted as soon as a majority has it under one number, whatever the others say or do not say', () => {
    expect(verdict([7, undefined, 7, 7, undefined], 0)).toEqual({ step: 'granted', token: 7 })
    expect(verdict([7, 9, 7, 7, taken('x')], 0)).toEqual({ step: 'granted', token: 7 })
  })

  test('that a majority has under different numbers is raised to the highest, or to what a server has counted to', () => {
    expect(verdict([7, 9, 8, undefined, undefined], 0)).toEqual({ step: 'raise', to: 9 })
    expect(verdict([7, 9, 8, undefined, undefined], 12)).toEqual({ step: 'raise', to: 12 })
  })

  test('is given up as soon as no majority can have it', () => {
    expect(verdict([7, taken('x'), taken('x'), taken('x'), undefined], 0)).toEqual({ step: 'failed' })
    expect(verdict([7, 7, taken('x'), silent, undefined], 0)).toEqual({ step: 'open' })
    expect(verdict([7, 7, taken('x'), silent, silent], 0)).toEqual({ step: 'failed' })
  })
})

describe('a holder', () => {
  test('is confirmed by a majority that has its own number, and by no other', () => {
    expect(verdictOnHolder([7, 7, 7, undefined, undefined], 7)).toEqual({ step: 'granted', token: 7 })
    expect(verdictOnHolder([8, 8, 8, 8, 8], 7)).toEqual({ step: 'failed' })
  })

  test('is not given up while servers that are silent may have it', () => {
    expect(verdictOnHolder([7, 7, missing, silent, undefined], 7)).toEqual({ step: 'open' })
    expect(verdictOnHolder([7, missing, missing, missing, undefined], 7)).toEqual({ step: 'failed' })
  })
})

test('a split is told from a lock that somebody has', () => {
  expect(summaryOf([1, taken('x'), taken('y'), taken('x'), silent]).split).toBe(true)
  expect(summaryOf([1, taken('x'), taken('x'), taken('x'), silent]).split).toBe(false)
})

test('no two majorities are granted different tokens by the same answers, and none without a majority', () => {
  const answer = fc.oneof(
    fc.integer({ min: 1, max: 3 }),
    fc.constantFrom<Answer | undefined>(undefined, silent, missing, taken('x')),
  )
  fc.assert(
    fc.property(fc.array(answer, { minLength: 3, maxLength: 7 }), (answers) => {
      const found = verdict(answers, 0)
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
