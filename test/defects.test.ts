/** The deliberate defects of the simulators still fit the code: each finds the text that it changes, exactly once. */
import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { DEFECTS as CORE_DEFECTS } from '../simulation/defects.ts'
import { DEFECTS as REDLOCK_DEFECTS } from '../simulation/redlock/defects.ts'

test.each([...CORE_DEFECTS, ...REDLOCK_DEFECTS])('$name', ({ file, find }) => {
  expect(readFileSync(file, 'utf8').split(find)).toHaveLength(2)
})
