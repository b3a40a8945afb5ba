/**
 * What scripts/tally.mjs has written about runs of vitest, added up: the tally of a run, and what to try again.
 */

export function emptyTally() {
  return { passed: 0, failed: [], skipped: [], unsteady: [] }
}

/** A tally of the files of a report. */
export function addUp({ files, errors }) {
  const tally = emptyTally()
  for (const { file, errors: outside, tests } of files) {
    for (const error of outside) tally.failed.push(`${file}: ${error}`)
    for (const test of tests) count(tally, `${file}: ${test.name}`, test)
  }
  for (const error of errors) tally.failed.push(`unhandled: ${error}`)
  return tally
}

function count(tally, title, { state, note, wrong, before }) {
  if (state === 'passed') tally.passed += 1
  else if (state === 'skipped') tally.skipped.push(`${title}: ${note ?? 'no reason given'}`)
  else tally.failed.push([title, ...wrong].join('\n    '))
  if (before !== undefined && state === 'passed') tally.unsteady.push([title, ...before].join('\n    '))
}

/** The files in which something failed, and the pattern of names of what failed there, if it was only tests. */
export function failures({ files }) {
  return files.filter(isBad).map(({ project, file, errors, tests }) => ({
    project,
    file,
    names: errors.length > 0 ? undefined : tests.filter(hasFailed).map(({ name }) => name),
  }))
}

function isBad({ errors, tests }) {
  return errors.length > 0 || tests.some(hasFailed)
}

function hasFailed({ state }) {
  return state !== 'passed' && state !== 'skipped'
}

/**
 * The file as it is after what failed in it was tried again alone. Only what had failed is taken from the second run,
 * and only if it ran there: vitest reports what was left out as skipped, and a failure is no skip.
 */
export function afterSecondTry(first, second) {
  if (first.errors.length > 0) {
    const before = first.errors
    return { ...second, tests: second.tests.map((test) => ({ ...test, before })) }
  }
  const failedAgain = [...second.errors]
  const tests = first.tests.map((test, index) => (hasFailed(test) ? secondTryOf(test, second.tests[index]) : test))
  return { ...first, errors: failedAgain, tests }
}

function secondTryOf(test, again) {
  if (again === undefined || again.name !== test.name || again.state === 'skipped') return test
  return { ...again, before: test.wrong }
}
