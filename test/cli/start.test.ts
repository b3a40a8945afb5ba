/** What the command keeps for its next start, and what it does not believe of it. */
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { type Ended, World } from './holdfast.ts'

let world: World
beforeEach(() => {
  world = new World()
})
afterEach(() => world[Symbol.asyncDispose]())

/** The home of a user without variables of their own for such places. */
const ls = (...args: string[]): Promise<Ended> => world.start(['ls', ...args], { XDG_CACHE_HOME: '' }).ended

/** What is kept of `command`, by path, with what tells whether it was written anew. */
function kept(command: string): ReadonlyMap<string, number> {
  const folder = world.path('.cache/holdfast')
  const versions = existsSync(folder) ? readdirSync(folder).map((name) => join(folder, name, command)) : []
  const files = versions
    .filter((path) => existsSync(path))
    .flatMap((path) => readdirSync(path).map((name) => join(path, name)))
  return new Map(files.map((path) => [path, statSync(path).ino]))
}

async function keptByTwo(): Promise<ReadonlyMap<string, number>> {
  await ls()
  await ls()
  return kept('ls')
}

test('a command that is started a second time keeps what was compiled, for this user alone, and the third uses it', async () => {
  expect(await ls()).toMatchObject({ exit: 0, stderr: '' })
  expect([...kept('ls')]).toEqual([])
  expect(await ls()).toMatchObject({ exit: 0, stderr: '' })
  const files = kept('ls')
  expect([...files.keys()].map((path) => path.split('/').at(-1))).toEqual(
    expect.arrayContaining(['core.cjs', 'sqlite.cjs']),
  )
  for (const path of files.keys()) expect(statSync(path).mode & 0o777).toBe(0o600)
  expect(await ls()).toMatchObject({ exit: 0, stderr: '' })
  expect([...kept('ls')]).toEqual([...files])
})

test('a command that fails keeps nothing, and neither does one that does not exist', async () => {
  for (const args of [['ls', '--url', `sqlite:${world.path('missing/locks.db')}`], ['lss'], ['run']]) {
    for (let turn = 0; turn < 2; turn += 1)
      expect((await world.start(args, { XDG_CACHE_HOME: '' }).ended).exit).not.toBe(0)
  }
  expect(world.exists('.cache')).toBe(false)
})

test('what other users may write is not executed, and is replaced', async () => {
  const files = await keptByTwo()
  for (const path of files.keys()) {
    // Such code ends the process at once: V8 does not look at more than the first bytes.
    const bytes = readFileSync(path)
    writeFileSync(path, bytes.fill(0, Math.min(256, bytes.length / 2)))
    chmodSync(path, 0o666)
  }
  expect(await ls()).toMatchObject({ exit: 0, signal: null, stderr: '' })
  const after = kept('ls')
  expect([...after.keys()]).toEqual([...files.keys()])
  for (const [path, inode] of after) expect(inode).not.toBe(files.get(path))
  expect(await ls()).toMatchObject({ exit: 0, signal: null, stderr: '' })
})

test('what was cut short is not used, and is replaced', async () => {
  const files = await keptByTwo()
  for (const path of files.keys()) truncateSync(path, Math.floor(statSync(path).size / 2))
  expect(await ls()).toMatchObject({ exit: 0, signal: null, stderr: '' })
  for (const [path, inode] of kept('ls')) expect(inode).not.toBe(files.get(path))
})

test('what was kept for an earlier version goes after a while, and what is not of the command stays', async () => {
  const names = ['v20.0.0-x64-0123456789abcdef', 'v20.0.1-x64-0123456789abcdef', 'v24.0.0-x64-01234567-0', 'servers']
  const paths = names.map((name) => world.path(join('.cache/holdfast', name)))
  for (const path of paths) {
    mkdirSync(path, { recursive: true })
    if (!path.includes('v20.0.1')) utimesSync(path, 0, 0)
  }
  await ls()
  expect(paths.map((path) => existsSync(path))).toEqual([false, true, true, true])
})

test('what another Node or another Holdfast has compiled is not used', async () => {
  const [path = ''] = (await keptByTwo()).keys()
  const [folder] = path.split('/').slice(-3)
  expect(folder).toMatch(new RegExp(`^${process.version}-${process.arch}-[0-9a-f]{16}$`))
})

test('where nothing can be kept, and without a home, the command works as well', async () => {
  for (const env of [{ XDG_CACHE_HOME: '/dev/null/nothing' }, { HOME: world.path('missing') }]) {
    for (let turn = 0; turn < 2; turn += 1)
      expect(await world.start(['ls'], env).ended).toMatchObject({ exit: 0, signal: null, stderr: '' })
  }
})

test('an error inside of what was kept still tells its place', async () => {
  await keptByTwo()
  const { stderr } = await world.start(['ls', '--url', `sqlite:${world.path('missing/locks.db')}`], {
    HOLDFAST_DEBUG: '1',
  }).ended
  expect(stderr).toMatch(/at .*\((?:\/[^)]*)?\/bundle\/cli\/core\.cjs:\d+:\d+\)/)
})

test('a SQLite whose binary is not where the command looks first is loaded by its package', async () => {
  // LIBC chooses the binary, and only the package knows how.
  for (const env of [{}, { LIBC: 'glibc' }])
    expect(await world.start(['run', 'key', '--', 'true'], env).ended).toMatchObject({ exit: 0, stderr: '' })
})
