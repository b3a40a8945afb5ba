/** The guard of files, on a real disk. Stopped processes are in guards.processes.test.ts. */
import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import {
  existsSync,
  lchownSync,
  linkSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { loadDriver } from '../../src/clients/sqlite/driver.ts'
import { EngineError, StaleTokenError } from '../../src/core/errors.ts'
import { type FilesGuard, guard } from '../../src/guards/files.ts'
import { builtModule } from '../built.ts'
import { expectForgetting, expectRule, leaseLike } from './guards.rule.ts'

let folder: string
let guarded: FilesGuard

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'holdfast-files-'))
  guarded = guard({ folder })
})

afterEach(async () => {
  await guarded[Symbol.asyncDispose]()
  rmSync(folder, { recursive: true, force: true })
})

test('decides as the pure rule does', async () => {
  await expectRule(
    {
      check: async (access, lease) => {
        if (access === 'read') await guarded.read(lease, lease.key)
        else await guarded.write(lease, lease.key, 'x')
      },
      list: (prefix) => guarded.list(prefix),
    },
    6,
  )
})

test('marks are forgotten after the time that the user chose since their last use, and never before', async () => {
  const marks = (await loadDriver()).open(join(folder, '.holdfast-marks.db'))
  marks.exec('pragma busy_timeout = 10000')
  await expectForgetting({
    check: async (forget, access, lease) => {
      await using other = guard({ folder, ...(forget === undefined ? {} : { forget }) })
      if (access === 'read') await other.read(lease, lease.key)
      else await other.write(lease, lease.key, 'x')
    },
    list: (prefix) => guarded.list(prefix),
    pass: async (ms) =>
      void marks.exec(
        `update holdfast_marks set kept_until = kept_until - ${ms} where kept_until < 9223372036854775807`,
      ),
    // A guard that is new looks at its first write.
    forget: async () => {
      await using other = guard({ folder, forget: '30d' })
      await other.write(leaseLike(9n), 'other', 'x')
    },
  })
  marks.close()
})

test('a file is replaced as a whole, and a stale holder leaves it and nothing else behind', async () => {
  expect(await guarded.read(leaseLike(5n), 'daily.json')).toBeUndefined()
  await guarded.write(leaseLike(5n), 'daily.json', 'five')
  await guarded.write(leaseLike(6n), 'daily.json', Buffer.from('six'))
  await expect(guarded.write(leaseLike(5n), 'daily.json', 'late')).rejects.toMatchObject({
    resource: 'daily.json',
    offered: 5n,
    seen: 6n,
  })
  expect(String(await guarded.read(leaseLike(6n), 'daily.json'))).toBe('six')
  expect(readdirSync(folder).filter((name) => !name.startsWith('.holdfast-marks.db'))).toEqual(['daily.json'])
})

test('a mark that was raised before its writer died keeps older ones out', async () => {
  // As if killed between the two transactions: the rename cannot succeed onto a folder that is not empty.
  mkdirSync(join(folder, 'b', 'c'), { recursive: true })
  await expect(guarded.write(leaseLike(6n), 'b', 'new')).rejects.toThrow()
  await expect(guarded.write(leaseLike(5n), 'b', 'late')).rejects.toThrow(StaleTokenError)
})

test('many writes at once through one guard take turns', async () => {
  await Promise.all(
    Array.from({ length: 20 }, (_, index) => guarded.write(leaseLike(5n), `many:${index % 4}`, `${index}`)),
  )
  expect(readdirSync(folder).filter((name) => name.startsWith('many'))).toHaveLength(4)
})

test('paths stay in the folder, each in one spelling', async () => {
  for (const path of ['../x', '/etc/x', './x', 'a/../x', 'x/', '', '.'])
    await expect(guarded.write(leaseLike(5n), path, '')).rejects.toThrow(RangeError)
})

test('one file has one name: links in the folder are refused, and the folder itself may be behind one', async () => {
  mkdirSync(join(folder, 'real'))
  symlinkSync(join(folder, 'real'), join(folder, 'alias'))
  await guarded.write(leaseLike(6n), 'real/x', 'six')
  await expect(guarded.write(leaseLike(5n), 'alias/x', 'late')).rejects.toThrow('symbolic link')
  symlinkSync(join(folder, 'real', 'x'), join(folder, 'x'))
  await expect(guarded.read(leaseLike(6n), 'x')).rejects.toMatchObject({ code: 'ELOOP' })
  await using behind = guard({ folder: join(folder, 'alias') })
  await behind.write(leaseLike(6n), 'y', 'six')
  await using straight = guard({ folder: join(folder, 'real') })
  await expect(straight.write(leaseLike(5n), 'y', 'late')).rejects.toThrow(StaleTokenError)
})

test('the marks themselves are no file to be read or replaced', async () => {
  for (const path of ['.holdfast-marks.db', '.holdfast-marks.db-wal', '.holdfast-marks.db-shm']) {
    await expect(guarded.write(leaseLike(5n), path, '')).rejects.toThrow('where the marks are')
    await expect(guarded.read(leaseLike(5n), path)).rejects.toThrow('where the marks are')
  }
})

test('opening and closing keeps no descriptor of the marks', async (context) => {
  if (process.platform !== 'linux') return context.skip('only Linux lists the descriptors of a process')
  const cycle = async (): Promise<void> => {
    await using once = guard({ folder })
    await once.write(leaseLike(5n), 'x', 'five')
  }
  const count = (): number => readdirSync('/proc/self/fd').length
  await cycle()
  const before = count()
  for (let round = 0; round < 30; round += 1) await cycle()
  // Some room for what else this process does.
  expect(count() - before).toBeLessThan(10)
})

test('a FIFO in the place of a file is refused, and not waited for', async () => {
  execFileSync('mkfifo', [join(folder, 'x')])
  const program = `
    const { guard } = await import(${JSON.stringify(builtModule('src/guards/files.ts'))})
    const guarded = guard({ folder: ${JSON.stringify(folder)} })
    console.log(await guarded.read({ key: 'x', token: 6n, shared: false }, 'x').then(() => 'read', (error) => error.message))`
  const said = execFileSync(process.execPath, ['--input-type=module', '-e', program], { timeout: 30_000 })
  expect(String(said)).toContain('is not a regular file')
})

test('the marks are not opened under a second name either', async () => {
  await guarded.write(leaseLike(5n), 'x', 'five')
  linkSync(join(folder, '.holdfast-marks.db'), join(folder, 'y'))
  await expect(guarded.read(leaseLike(5n), 'y')).rejects.toThrow('where the marks are')
})

test('marks behind a link of another user are refused', async (context) => {
  if (process.getuid?.() !== 0) return context.skip('only root can make what belongs to another user')
  symlinkSync(join(folder, 'elsewhere'), join(folder, '.holdfast-marks.db'))
  lchownSync(join(folder, '.holdfast-marks.db'), 65534, 65534)
  await expect(guarded.write(leaseLike(5n), 'x', 'five')).rejects.toThrow('symbolic link of user 65534')
  expect(existsSync(join(folder, 'elsewhere'))).toBe(false)
})

test('what a folder does not have is undefined to a reader, and an error to a writer', async () => {
  expect(await guarded.read(leaseLike(5n), 'missing/x')).toBeUndefined()
  await expect(guarded.write(leaseLike(5n), 'missing/x', '')).rejects.toMatchObject({ code: 'ENOENT' })
})

test.each(['before', 'after'] as const)(
  'a writer that is killed %s its rename leaves the file no newer than its mark',
  async (when) => {
    await guarded.write(leaseLike(5n), 'x', 'five')
    expect(await killedWriter(folder, when)).toBe('SIGKILL')
    expect(readFileSync(join(folder, 'x'), 'utf8')).toBe(when === 'before' ? 'five' : 'six')
    expect(await guarded.list('x')).toEqual([{ resource: 'x', seen: 6n, written: 6n }])
    await expect(guarded.write(leaseLike(5n), 'x', 'late')).rejects.toThrow(StaleTokenError)
    await guarded.write(leaseLike(7n), 'x', 'seven')
    expect(String(await guarded.read(leaseLike(7n), 'x'))).toBe('seven')
  },
)

/**
 * A process that writes with token 6 to `x`, and dies right before or right after the rename. Resolves with what it
 * died of.
 */
async function killedWriter(folder: string, when: 'before' | 'after'): Promise<unknown> {
  const program = `
    import fs from 'node:fs'
    import { syncBuiltinESMExports } from 'node:module'
    const { renameSync } = fs
    fs.renameSync = (from, to) => {
      if (${when === 'after'}) renameSync(from, to)
      process.kill(process.pid, 'SIGKILL')
    }
    syncBuiltinESMExports()
    const { guard } = await import(${JSON.stringify(builtModule('src/guards/files.ts'))})
    await guard({ folder: ${JSON.stringify(folder)} }).write({ key: 'x', token: 6n, shared: false }, 'x', 'six')`
  const child = spawn(process.execPath, ['--input-type=module', '--eval', program], { stdio: 'inherit' })
  const [, signal] = (await once(child, 'close')) as [number | null, string | null]
  return signal
}

test('two guards of one folder see the same marks; a process that keeps the marks busy is an EngineError', async () => {
  await using other = guard({ folder, wait: 50 })
  await guarded.write(leaseLike(6n), 'x', 'six')
  await expect(other.write(leaseLike(5n), 'x', 'five')).rejects.toThrow(StaleTokenError)
  const database = (await loadDriver()).open(join(folder, '.holdfast-marks.db'))
  database.exec('begin immediate')
  await expect(other.write(leaseLike(7n), 'x', 'seven')).rejects.toThrow(EngineError)
  database.exec('rollback')
  database.close()
  expect(readFileSync(join(folder, 'x'), 'utf8')).toBe('six')
  expect(await other.reset('x', 6n)).toBe(true)
})
