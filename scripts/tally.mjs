/**
 * A vitest reporter that writes down what scripts/test.mjs adds up: how many passed, what failed, and what was skipped
 * for which reason.
 *
 * Vitest's own JSON report has no reasons for skips, and counts neither a file that failed to load nor an error outside
 * any test. Those are failures here.
 */
import { writeFileSync } from 'node:fs'
import { relative } from 'node:path'
import { stripVTControlCharacters } from 'node:util'

export default class Tally {
  onTestRunEnd(modules, unhandledErrors) {
    const tally = { passed: 0, failed: [], skipped: [], unsteady: [] }
    for (const module of modules) {
      const file = relative('.', module.moduleId)
      for (const error of module.errors()) tally.failed.push(`${file}: ${error.message}`)
      for (const suite of module.children.allSuites()) {
        for (const error of suite.errors()) tally.failed.push(`${file}: ${suite.fullName}: ${error.message}`)
      }
      for (const test of module.children.allTests())
        count(tally, `${file}: ${test.fullName}`, test.result(), test.diagnostic()?.flaky)
    }
    for (const error of unhandledErrors) tally.failed.push(`unhandled: ${error.message}`)
    writeFileSync(process.env.HOLDFAST_TALLY, JSON.stringify(tally))
  }
}

/** What went wrong goes along: where only the end of a run can be read, its name alone says little. */
const MOST_LINES = 20

function count(tally, name, result, flaky) {
  if (flaky) tally.unsteady.push(withErrors(name, result))
  if (result.state === 'passed') tally.passed += 1
  else if (result.state === 'skipped') tally.skipped.push(`${name}: ${result.note ?? 'no reason given'}`)
  else tally.failed.push(withErrors(name, result))
}

function withErrors(name, { errors = [] }) {
  const lines = errors.flatMap(({ message, diff = '' }) => `${message}\n${stripVTControlCharacters(diff)}`.split('\n'))
  const told = lines.filter((line) => line.trim() !== '').slice(0, MOST_LINES)
  return [name, ...told].join('\n    ')
}
