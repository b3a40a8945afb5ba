/**
 * Four projects. scripts/test.mjs runs `unit` as a step of its own, and the other three together, in lanes.
 *
 * Unit tests are pure. The others start servers and processes, kill and stop them, and measure what the survivors
 * notice: a few files run side by side, the longest first (scripts/lanes.mjs). On a busy machine a lease can be lost
 * for want of a processor even so: scripts/test.mjs tries what failed again, alone, and names every test that needed
 * it.
 */
import { defineConfig } from 'vitest/config'
import { LongestFirst, lanes } from './scripts/lanes.mjs'

export default defineConfig({
  test: {
    pool: 'forks',
    maxWorkers: lanes,
    sequence: { sequencer: LongestFirst },
    // Twice what the waits inside may take, so that the one which is in vain says what it waited for.
    testTimeout: 120_000,
    hookTimeout: 120_000,
    // Polls wait for events. The usual second is no longer than a busy machine may need for one.
    expect: { poll: { timeout: 30_000 } },
    teardownTimeout: 20_000,
    // An unhandled rejection anywhere, also after the last test, fails the run.
    dangerouslyIgnoreUnhandledErrors: false,
    allowOnly: false,
    setupFiles: ['test/servers/orphan.ts'],
    projects: [
      { extends: true, test: { name: 'unit', include: ['test/*.test.ts', 'test/unit/**/*.test.ts'] } },
      { extends: true, test: { name: 'facts', include: ['test/{facts,servers}/**/*.test.ts'] } },
      { extends: true, test: { name: 'engines', include: ['test/engines/**/*.test.ts'] } },
      { extends: true, test: { name: 'cli', include: ['test/cli/**/*.test.ts'] } },
    ],
  },
})
