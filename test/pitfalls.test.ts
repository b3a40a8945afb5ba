/** The table of mistakes is complete, and the tests it names are there. */
import { existsSync, readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { type Pitfall, pitfalls } from './pitfalls.ts'

const COUNT = 44

/** What is wrong with a row. */
function problems({ number, shownBy = [], notYet = '' }: Pitfall): readonly string[] {
  if (shownBy.length > 0 === (notYet !== '')) return [`${number}: either names tests or says why not`]
  return shownBy.flatMap(([file, name]) => {
    if (!existsSync(file)) return [`${number}: ${file} is not there`]
    return hasTest(readFileSync(file, 'utf8'), name) ? [] : [`${number}: ${file} has no '${name}'`]
  })
}

/** The whole name, as a string of its own. */
function hasTest(text: string, name: string): boolean {
  return ["'", '"', '`'].some((quote) => text.includes(`${quote}${name}${quote}`))
}

test('every mistake has its row, once and in order', () => {
  expect(pitfalls.map(({ number }) => number)).toEqual(Array.from({ length: COUNT }, (_, index) => index + 1))
})

test('every row names tests that exist, or says why it cannot apply yet', () => {
  expect(pitfalls.flatMap(problems)).toEqual([])
})

test('a row without either, with both, or with a test that is not there, would be seen', () => {
  const row = { number: 1, mistake: 'x' }
  const file = 'test/errors.test.ts'
  const wrong: readonly Pitfall[] = [
    row,
    { ...row, shownBy: [] },
    { ...row, notYet: 'why', shownBy: [[file, 'no class is left out']] },
    { ...row, shownBy: [['test/no-such.test.ts', 'x']] },
    { ...row, shownBy: [[file, 'no class is left']] },
  ]
  expect(wrong.map((pitfall) => problems(pitfall).length)).toEqual([1, 1, 1, 1, 1])
})
