/**
 * Where the language of pipelines in the package mingo differs from that of a server, the stand-in does what the server
 * does, by the manual and by what was seen on a 5.0.
 */
import { describe, expect, test } from 'vitest'
import { CommandError } from './errors.ts'
import { atOneInstant, filter, optionsFor, runPipeline } from './evaluate.ts'
import { updated } from './updates.ts'
import type { Document } from './values.ts'

const set = (document: Document, value: unknown): unknown => updated(document, [{ $set: { r: value } }]).r

function codeOf(work: () => unknown): number | undefined {
  try {
    work()
  } catch (error) {
    if (error instanceof CommandError) return error.code
  }
  return undefined
}

describe('numbers', () => {
  test('longs are exact, and ints become longs where they do not fit', () => {
    expect(set({ t: 9007199254740993n }, { $add: ['$t', 1] })).toBe(9007199254740994n)
    expect(set({}, { $add: [2147483647, 1] })).toBe(2147483648n)
    expect(set({}, { $add: [2, 1] })).toBe(3)
    expect(set({ a: new Date(5), b: new Date(2) }, { $subtract: ['$a', '$b'] })).toBe(3n)
  })

  test('are compared by value, whatever their type, in expressions and in filters', () => {
    expect(set({ t: 2n }, { $max: ['$t', 10] })).toBe(10)
    expect(set({ t: 2n }, { $eq: ['$t', 2] })).toBe(true)
    expect(filter({ mark: { $lte: 11n } })({ mark: 9 })).toBe(true)
    expect(filter({ mark: { $lte: 11n } })({ mark: '9' })).toBe(false)
    expect(filter({ mark: { $lte: 11n } })({})).toBe(false)
  })
})

describe('arrays', () => {
  test('are equal to arrays, and not to what is in them', () => {
    expect(set({ e: ['a'] }, { $eq: ['$e', 'a'] })).toBe(false)
    expect(set({ e: [] }, { $eq: ['$e', []] })).toBe(true)
    expect(filter({ e: 'a' })({ e: ['a'] })).toBe(true)
  })

  test('of a missing field: some operators fail, and one answers null', () => {
    expect(codeOf(() => set({}, { $size: '$nothing' }))).toBe(17124)
    expect(codeOf(() => set({}, { $in: ['a', '$nothing'] }))).toBe(40081)
    expect(set({}, { $indexOfArray: ['$nothing', 'a'] })).toBeNull()
  })

  test('are sliced from the front, but not by none from the middle', () => {
    expect(set({ e: [1, 2, 3] }, { $slice: ['$e', 0] })).toEqual([])
    expect(set({ e: [1, 2, 3] }, { $slice: ['$e', 1, 5] })).toEqual([2, 3])
    expect(codeOf(() => set({ e: [1] }, { $slice: ['$e', 0, 0] }))).toBe(28729)
  })

  test('are reduced inside of a map, each with an item of its own', () => {
    const sum = { $reduce: { input: '$$this.n', initialValue: 0, in: { $add: ['$$value', '$$this'] } } }
    expect(set({ e: [{ n: [1, 2] }, { n: [5] }] }, { $map: { input: '$e', in: sum } })).toEqual([3, 5])
  })
})

describe('an update', () => {
  test('sets the fields that a nested object names, and leaves the others', () => {
    expect(updated({ _id: 1, a: { x: 1, y: 2 } }, [{ $set: { a: { x: 3 } } }])).toEqual({ _id: 1, a: { x: 3, y: 2 } })
    expect(updated({ _id: 1, a: { x: 1 } }, [{ $set: { a: { $literal: { z: 1 } } } }])).toEqual({ _id: 1, a: { z: 1 } })
  })

  test('keeps its id, in front, and gives it to no other', () => {
    expect(Object.keys(updated({ _id: 1, a: 2 }, [{ $replaceWith: { b: 1 } }]))).toEqual(['_id', 'b'])
    expect(codeOf(() => updated({ _id: 1 }, [{ $set: { _id: 2 } }]))).toBe(66)
  })

  test('takes what comes from a user literally only where it says so', () => {
    expect(set({ a: 1 }, { $literal: '$a' })).toBe('$a')
    expect(set({ a: 1 }, '$a')).toBe(1)
  })

  test('is refused for an operator that a 5.0 does not have, also in a branch that is not taken', () => {
    const later = { $cond: [true, 1, { $sortArray: { input: '$e', sortBy: 1 } }] }
    expect(codeOf(() => set({}, later))).toBe(168)
    expect(codeOf(() => set({}, { $cond: [true, 1, { $noSuch: 1 }] }))).toBe(168)
  })
})

test('every $$NOW of a command is one instant', () => {
  const stages = Array.from({ length: 200 }, (_, index) => ({ $set: { [`at${index}`]: '$$NOW' } }))
  const [document = {}] = atOneInstant(() => runPipeline([{ _id: 1 }], stages, optionsFor()))
  expect(new Set(Object.values(document).map(Number)).size).toBe(2)
})

test('documents are grouped and counted', () => {
  const group = { $group: { _id: null, n: { $sum: 1 }, most: { $max: '$n' } } }
  expect(runPipeline([{ n: 1 }, { n: 3 }], [group], optionsFor())).toEqual([{ _id: null, n: 2, most: 3 }])
})
