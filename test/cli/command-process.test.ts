/** The command as a process: what becomes of it where the kernel refuses something. */
import { ChildProcess } from 'node:child_process'
import { chmodSync, existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { CommandProcess, refuseProgram } from '../../src/cli/command-process.ts'
import { CannotRun } from '../../src/cli/failure.ts'
import { Guardian } from '../../src/cli/guardian.ts'
import { eventually } from './holdfast.ts'

const ANY_USER = 65_534

let folder: string
const { PATH } = process.env
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'holdfast-command-'))
})
afterEach(() => {
  process.env.PATH = PATH
  rmSync(folder, { recursive: true })
})

test('a signal that the kernel refuses, since the command runs as another user, is told once, and the command goes on', async () => {
  const guardian = await Guardian.start(1_000, 'id', () => undefined)
  let told = 0
  const wait = `touch '${folder}/ready'; while [ ! -e '${folder}/go' ]; do sleep 0.02; done; exit 5`
  const child = new CommandProcess(['sh', '-c', wait], process.env, guardian, () => {
    told += 1
  })
  await eventually('a command', () => existsSync(join(folder, 'ready')))
  // What Node does where kill(2) answers EPERM. To see it answer that takes a program like sudo.
  const kill = vi.spyOn(ChildProcess.prototype, 'kill').mockImplementation(function (this: ChildProcess) {
    this.emit('error', Object.assign(new Error('kill EPERM'), { code: 'EPERM' }))
    return false
  })
  try {
    child.forward('SIGUSR1')
    child.forward('SIGUSR2')
  } finally {
    kill.mockRestore()
    writeFileSync(join(folder, 'go'), '')
  }
  expect(await child.ended).toMatchObject({ exit: 5, signal: null })
  expect(told).toBe(1)
  await guardian.dismiss()
})

test('an argument that is too long for the kernel: the command cannot be run', async () => {
  const guardian = await Guardian.start(1_000, 'id', () => undefined)
  const start = (): CommandProcess =>
    new CommandProcess(['true', 'x'.repeat(10_000_000)], process.env, guardian, () => undefined)
  expect(start).toThrow(CannotRun)
  await guardian.dismiss()
})

test('an entry of PATH that cannot be used is skipped, as shells do', () => {
  writeFileSync(join(folder, 'file'), '')
  const long = join(folder, 'long'.repeat(100))
  process.env.PATH = `${join(folder, 'file')}:${long}:${PATH}`
  expect(refuseProgram(['true'])).toBeUndefined()
  expect(refuseProgram(['no-such-command-anywhere'])).toMatchObject({ exit: 127 })
  expect(refuseProgram([join(folder, 'file', 'command')])).toMatchObject({ exit: 127 })
  expect(refuseProgram(['long'.repeat(100)])).toMatchObject({ exit: 127 })
})

test('a folder of PATH that may not be read is skipped, but a command found nowhere else cannot be run', () => {
  const closed = join(folder, 'closed')
  mkdirSync(closed)
  writeFileSync(join(closed, 'hidden'), '')
  chmodSync(folder, 0o755)
  chmodSync(closed, 0)
  process.env.PATH = `${closed}:${PATH}`
  // Root may read everything.
  const isRoot = process.getuid?.() === 0
  if (isRoot) process.seteuid?.(ANY_USER)
  try {
    expect(refuseProgram(['true'])).toBeUndefined()
    expect(refuseProgram(['hidden'])).toMatchObject({ exit: 126 })
    expect(refuseProgram([join(closed, 'hidden')])).toMatchObject({ exit: 126 })
  } finally {
    if (isRoot) process.seteuid?.(0)
    chmodSync(closed, 0o700)
  }
})
