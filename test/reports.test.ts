/** The second try of a test never hides its failure: only a test that ran again, and passed, is called unsteady. */
import { expect, test } from 'vitest'

interface Reports {
  addUp(report: object): unknown
  afterSecondTry(first: object, second: object): object
}

const { addUp, afterSecondTry } = (await import('../scripts/reports.mjs' as string)) as Reports

const failed = { name: 'a > b', state: 'failed', wrong: ['1 is not 2'] }
const file = { project: 'engines', file: 'x.test.ts', errors: [], tests: [failed] }
const tried = (again: object): unknown =>
  addUp({ files: [afterSecondTry(file, { ...file, tests: [again] })], errors: [] })

test('a test that fails again has failed', () => {
  expect(tried(failed)).toMatchObject({ passed: 0, failed: [expect.stringContaining('a > b')], unsteady: [] })
})

test('a test that passes is passed, and unsteady', () => {
  const passed = { name: 'a > b', state: 'passed', wrong: [] }
  expect(tried(passed)).toMatchObject({ passed: 1, failed: [], unsteady: [expect.stringContaining('1 is not 2')] })
})

test('a test that was not run again has failed', () => {
  for (const again of [
    { ...failed, state: 'skipped' },
    { ...failed, name: 'another', state: 'passed' },
  ])
    expect(tried(again)).toMatchObject({ passed: 0, failed: [expect.stringContaining('a > b')], skipped: [] })
})
