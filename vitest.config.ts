/**
 * Four projects, one after the other, so that `vitest run --project unit` is a step of its own in scripts/test.mjs.
 *
 * Unit tests are pure and share two workers. Tests that start servers and processes, kill and stop them, and measure
 * what the survivors notice, run one file at a time: beside a busy neighbour on two cores, a lease could be lost for
 * want of a processor. On a shared machine that happens even so: such a test gets a second try, and scripts/test.mjs
 * names every test that needed it.
 */
import { defineConfig } from 'vitest/config'

export default defineConfig({
  test: {
    pool: 'forks',
    maxWorkers: 2,
    testTimeout: 60_000,
    hookTimeout: 60_000,
    teardownTimeout: 20_000,
    // An unhandled rejection anywhere, also after the last test, fails the run.
    dangerouslyIgnoreUnhandledErrors: false,
    allowOnly: false,
    setupFiles: ['test/servers/orphan.ts'],
    projects: [
      {
        extends: true,
        test: { name: 'unit', include: ['test/*.test.ts', 'test/unit/**/*.test.ts'], sequence: { groupOrder: 1 } },
      },
      {
        extends: true,
        test: {
          name: 'facts',
          include: ['test/{facts,servers}/**/*.test.ts'],
          maxWorkers: 1,
          retry: 1,
          sequence: { groupOrder: 2 },
        },
      },
      {
        extends: true,
        test: {
          name: 'engines',
          include: ['test/engines/**/*.test.ts'],
          maxWorkers: 1,
          retry: 1,
          sequence: { groupOrder: 3 },
        },
      },
      {
        extends: true,
        test: { name: 'cli', include: ['test/cli/**/*.test.ts'], maxWorkers: 1, retry: 1, sequence: { groupOrder: 4 } },
      },
    ],
  },
})
