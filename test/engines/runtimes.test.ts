/**
 * A newer Node than the one that runs the tests: memory and SQLite conform there, with the SQLite that Node brings, by
 * the runner that `npm run matrix` has for all runtimes.
 */
import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { builtModule } from '../built.ts'
import type { Line } from '../matrix/lines.ts'
import { findRuntime } from '../servers/runtimes.ts'
import { describeServer } from '../servers/suite.ts'

const run = promisify(execFile)
const LIMIT_MS = 120_000
const PROPERTIES = '^(?:waiting|keys|expiry|tokens|death and absence|the store and its lines|closing)$'

await describeServer(
  'the newest Node',
  () => findRuntime('node@26'),
  (runtime) => {
    test.each([
      ['memory', undefined],
      ['sqlite', /^SQLite [\d.]+ from node:sqlite$/],
    ])('plays the conformance of %s', { timeout: LIMIT_MS }, async (engine, server) => {
      builtModule('src/index.ts')
      const args = [...runtime.args, 'dist/test/matrix/play.js', 'engine', engine, PROPERTIES]
      const { stdout } = await run(runtime.path, args, { timeout: LIMIT_MS, maxBuffer: 2 ** 24 })
      const lines = stdout
        .trim()
        .split('\n')
        .map((text) => JSON.parse(text) as Line)
      const about = lines.find((line) => line.type === 'about')
      expect(about?.runtime).toMatch(/^Node 26\./)
      if (server !== undefined) expect(about?.server).toMatch(server)
      const cases = lines.filter((line) => line.type === 'case')
      expect(cases.filter(({ outcome }) => outcome === 'failed')).toEqual([])
      expect(cases.filter(({ outcome }) => outcome === 'passed').length).toBeGreaterThan(20)
    })
  },
)
