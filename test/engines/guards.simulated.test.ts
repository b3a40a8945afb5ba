/**
 * Eight simulated processes that read, pause and write back, and are stopped again and again, for up to three ttls. The
 * guarded register decides by the rule of the guards (src/guards/marks.ts); beside it stands a bare one, to which the
 * same processes bring the same steps. That the checks notice a broken rule is tried by the mutants: see
 * simulation/defects.ts.
 */
import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { builtModule } from '../built.ts'

const conditions = { processes: 8, workers: 1, keys: 1, timedFaults: Array.from({ length: 24 }, () => 'pause') }

test('in the simulator, eight processes that are stopped past their ttl lose no update behind the rule, and lose some without', async () => {
  const simulator = fileURLToPath(builtModule('simulation/main.ts'))
  // It ends with 1 if an update is lost at the guarded register, or anything else is not as it should be.
  const { stdout } = await promisify(execFile)(process.execPath, [
    simulator,
    '--seeds',
    '200',
    '--conditions',
    JSON.stringify(conditions),
  ])
  expect(stdout).toContain('no violations')
  const reached = (what: string): number =>
    Number(new RegExp(`${what} ([\\d,]+)`).exec(stdout)?.[1]?.replaceAll(',', ''))
  expect(reached('lostWithoutGuard'), 'updates lost without a guard').toBeGreaterThan(0)
  expect(reached('staleAccesses'), 'accesses refused').toBeGreaterThan(0)
})
