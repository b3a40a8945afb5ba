/** A signal that comes between the grant and the start of the command ends the run: the command never starts. */
import { existsSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { Interrupted } from '../../src/cli/failure.ts'
import { supervise } from '../../src/cli/supervise.ts'
import type { CoreLease } from '../../src/core/lease.ts'
import { memory } from '../../src/engines/memory/index.ts'
import { createLocks } from '../../src/locks.ts'

test.each(['SIGTERM', 'SIGINT', 'SIGHUP'] as const)('%s while the engine is told of the process', async (signal) => {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-interrupted-'))
  const started = join(folder, 'started')
  await using locks = createLocks(memory())
  const lease = (await locks.mutex('job').acquire()) as CoreLease
  const interrupt = new AbortController()
  const job = {
    lease,
    program: ['touch', started],
    env: process.env,
    id: 'id',
    limits: { onLost: 'term', ttlMs: 30_000, graceMs: 100, atMostMs: undefined, maxHoldMs: undefined } as const,
    // On a busy SQLite this takes a while, and most signals that come early come now.
    alsoAlive: async () => interrupt.abort(new Interrupted(signal)),
    signals: () => () => undefined,
    interrupted: interrupt.signal,
    onUnguarded: () => undefined,
    onRefused: () => undefined,
    onEnding: () => undefined,
  }
  await expect(supervise(job)).rejects.toMatchObject({ signal })
  expect(existsSync(started)).toBe(false)
  rmSync(folder, { recursive: true })
})
