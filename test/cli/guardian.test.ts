/** The guardian by itself: what its orders start must end with it, however fast they follow each other. */
import { readdirSync, readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { Guardian } from '../../src/cli/guardian.ts'
import { eventually, isRunning } from './holdfast.ts'

const ARMS = 400

test('an alarm that is set again at once leaves no process sleeping, which would count as a sign of life', async (context) => {
  if (process.platform !== 'linux') context.skip('looks into /proc')
  const guardian = await Guardian.start(1_000, 'id', () => undefined)
  for (let arm = 0; arm < ARMS; arm++) guardian.arm(600_000, 1_000)
  await guardian.dismiss()
  await eventually('the end of the guardian', () => guardian.gone)
  await eventually('an empty process group', () => members(guardian.pid).length === 0).catch(() => undefined)
  expect(members(guardian.pid)).toEqual([])
})

/** The living members of a process group, by their command. */
function members(group: number): string[] {
  const pids = readdirSync('/proc').filter((name) => /^\d+$/.test(name))
  return pids
    .filter((pid) => groupOf(pid) === group && isRunning(Number(pid)))
    .map((pid) => readFileSync(`/proc/${pid}/cmdline`, 'utf8'))
}

function groupOf(pid: string): number | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
    return Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[2])
  } catch {
    return undefined
  }
}
