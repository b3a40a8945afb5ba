/** The guardian by itself: what its orders start must end with it, however fast they follow each other. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
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

test('an alarm that is set again while it rings kills nothing: what it has started ends with it', async (context) => {
  if (process.platform !== 'linux') context.skip('looks into /proc')
  const guardian = await Guardian.start(1_000, 'id', () => undefined)
  const command = spawn('sh', ['-c', 'trap "" TERM; echo ready; while :; do sleep 0.05; done'], { detached: true })
  try {
    await once(command.stdout, 'data')
    guardian.orders.write(`watch -${command.pid}\n`)
    guardian.arm(1, 500_000)
    const killer = (): boolean => members(guardian.pid).includes('sleep\u0000500.000\u0000')
    await eventually('a killer beside the alarm that rings', killer)
    guardian.arm(600_000, 1_000)
    await eventually('the end of the killer', () => !killer())
    expect(isRunning(command.pid as number)).toBe(true)
    await guardian.end(0)
    expect(isRunning(command.pid as number)).toBe(false)
  } finally {
    command.kill('SIGKILL')
  }
})

/** The living members of a process group, by their command. */
function members(group: number): string[] {
  const pids = readdirSync('/proc').filter((name) => /^\d+$/.test(name))
  return pids
    .filter((pid) => groupOf(pid) === group && isRunning(Number(pid)))
    .flatMap((pid) => told(pid, 'cmdline') ?? [])
}

function groupOf(pid: string): number | undefined {
  const stat = told(pid, 'stat')
  return stat === undefined ? undefined : Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[2])
}

/** Undefined: it ended in the midst of this look. */
function told(pid: string, what: 'cmdline' | 'stat'): string | undefined {
  try {
    return readFileSync(`/proc/${pid}/${what}`, 'utf8')
  } catch {
    return undefined
  }
}
