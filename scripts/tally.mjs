/**
 * A vitest reporter that writes down what scripts/test.mjs adds up: each test with its result, what went wrong outside
 * of tests, and how long each file took.
 *
 * Vitest's own JSON report has no reasons for skips, and counts neither a file that failed to load nor an error outside
 * any test. Those are failures here.
 */
import { writeFileSync } from 'node:fs'
import { relative } from 'node:path'
import { stripVTControlCharacters } from 'node:util'

export default class Tally {
  onTestRunEnd(modules, unhandledErrors) {
    const report = { files: modules.map(fileReport), errors: unhandledErrors.map(({ message }) => message) }
    writeFileSync(process.env.HOLDFAST_TALLY, JSON.stringify(report))
  }
}

function fileReport(module) {
  const suites = [...module.children.allSuites()]
  const { duration, collectDuration, setupDuration, prepareDuration, environmentSetupDuration } = module.diagnostic()
  const ms = duration + collectDuration + setupDuration + prepareDuration + environmentSetupDuration
  return {
    project: module.project.name,
    file: relative('.', module.moduleId),
    seconds: Math.round(ms / 100) / 10,
    errors: [
      ...module.errors().map(({ message }) => message),
      ...suites.flatMap((suite) => suite.errors().map(({ message }) => `${suite.fullName}: ${message}`)),
    ],
    tests: [...module.children.allTests()].map(testReport),
  }
}

/** What went wrong goes along: where only the end of a run can be read, the name of a test alone says little. */
const MOST_LINES = 20

function testReport(test) {
  const { state, note, errors = [] } = test.result()
  const lines = errors.flatMap(({ message, diff = '' }) => `${message}\n${stripVTControlCharacters(diff)}`.split('\n'))
  const wrong = lines.filter((line) => line.trim() !== '').slice(0, MOST_LINES)
  return { name: test.fullName, state, note, wrong }
}
