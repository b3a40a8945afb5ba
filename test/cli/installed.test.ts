/**
 * `holdfast` as it is published: packed, and installed for the whole machine, in a place of its own that has no client
 * of any server. It finds the one of the project that it is started in, or says how to install one.
 */
import { execFileSync, spawnSync } from 'node:child_process'
import {
  existsSync,
  lchownSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, dirname, join, resolve } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { builtCommand } from '../built.ts'
import { ENGINE_NAMES } from '../engine-names.ts'
import { findRedis, RedisServer } from '../servers/redis.ts'
import { describeServer } from '../servers/suite.ts'
import { serverUser } from '../servers/user.ts'

const LIMIT_MS = 60_000
/** A port that is never listened to. */
const CLOSED = '127.0.0.1:1'
/** Says what this Node has; the built-in SQLite of newer ones needs no package. */
const bringsSqlite = await import('../../src/clients/sqlite/driver.ts').then(async ({ loadDriver }) =>
  (await loadDriver()).name.startsWith('node:'),
)

let world: string
let command: string

beforeAll(() => {
  builtCommand()
  world = mkdtempSync(join(placeWithoutPackages(), 'holdfast-installed-'))
  const packing = execFileSync('npm', ['pack', '--json', '--ignore-scripts', '--pack-destination', world], npmOptions())
  const [{ filename }] = JSON.parse(packing) as [{ filename: string }]
  const tarball = join(world, filename)
  const prefix = join(world, 'global')
  execFileSync('npm', ['install', '-g', '--prefix', prefix, '--offline', '--omit=peer', tarball], npmOptions())
  command = join(prefix, 'bin', 'holdfast')
}, 2 * LIMIT_MS)

afterAll(() => rmSync(world, { recursive: true, force: true }))

/** A folder for temporary files that is in no project: packages are looked for in all folders above. */
function placeWithoutPackages(): string {
  const places = [tmpdir(), '/var/tmp', '/dev/shm']
    .filter((place) => existsSync(place))
    .map((each) => realpathSync(each))
  const found = places.find((place) => foldersAbove(place).every((folder) => !hasPackages(folder)))
  if (found === undefined) throw new Error(`there are packages in or above each of ${places.join(', ')}`)
  return found
}

function foldersAbove(folder: string): readonly string[] {
  return folder === dirname(folder) ? [folder] : [folder, ...foldersAbove(dirname(folder))]
}

function hasPackages(folder: string): boolean {
  return ['node_modules', 'package.json'].some((name) => existsSync(join(folder, name)))
}

function npmOptions(): { readonly encoding: 'utf8'; readonly stdio: ['ignore', 'pipe', 'pipe'] } {
  return { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] }
}

/** A folder of its own; a project, if packages are given: those of this repository. */
function folderWith(name: string, packages?: readonly string[]): string {
  const folder = join(world, name)
  mkdirSync(folder)
  if (packages === undefined) return folder
  writeFileSync(join(folder, 'package.json'), '{ "private": true }')
  for (const each of packages) {
    const place = join(folder, 'node_modules', each)
    mkdirSync(dirname(place), { recursive: true })
    symlinkSync(resolve('node_modules', each), place)
  }
  return folder
}

/** The command, started there. */
function holdfast(cwd: string, ...args: string[]): { readonly status: number | null; readonly said: string } {
  const env = { PATH: process.env.PATH, HOME: world, XDG_STATE_HOME: join(world, 'state') }
  mkdirSync(env.XDG_STATE_HOME, { recursive: true })
  const { status, stdout, stderr } = spawnSync(command, args, { cwd, env, encoding: 'utf8', timeout: LIMIT_MS })
  return { status, said: stdout + stderr }
}

const CLIENTS = [
  { url: `redis://${CLOSED}`, client: 'ioredis' },
  { url: `redlock://${CLOSED},127.0.0.1:2,127.0.0.1:3`, client: 'ioredis' },
  { url: `postgres://me@${CLOSED}/db`, client: 'pg' },
  { url: `postgres-advisory://me@${CLOSED}/db`, client: 'pg' },
  { url: `mysql://me@${CLOSED}/db`, client: 'mysql2' },
  { url: `mongodb://${CLOSED}/db?serverSelectionTimeoutMS=500`, client: 'mongodb' },
] as const
/** These speak to their server, or to the file, by themselves, or with what Node brings. */
const WITHOUT_CLIENT = ['memory', 'sqlite', 'etcd', 'zookeeper']

test('every engine that needs a client is tried here', () => {
  const withClient = CLIENTS.map(({ url }) => url.split(':')[0] as string)
  expect([...WITHOUT_CLIENT, ...withClient].toSorted()).toEqual(ENGINE_NAMES.toSorted())
})

describe.each(CLIENTS)('without the client of $url', ({ url, client }) => {
  const scheme = url.split(':')[0]

  test('says how to install it: for the whole machine, or in the project', () => {
    const nowhere = holdfast(folderWith(`nowhere-${scheme}`), 'ls', '--url', url)
    expect(nowhere).toMatchObject({ status: 69, said: expect.stringContaining(`: npm install -g ${client}\n`) })
    const project = folderWith(`project-${scheme}`, [])
    expect(holdfast(project, 'ls', '--url', url).said).toContain(`: npm install ${client}\n`)
    const below = join(project, 'below')
    mkdirSync(below)
    expect(holdfast(below, 'ls', '--url', url).said).toContain(`: npm install ${client}\n`)
  })

  test('uses that of the project, also from a folder below', () => {
    const below = join(folderWith(`has-${scheme}`, [client]), 'below')
    mkdirSync(below)
    const { status, said } = holdfast(below, 'ls', '--url', url)
    expect({ status, said }).toMatchObject({ status: 69, said: expect.not.stringContaining('npm install') })
    expect(said).toMatch(/ECONNREFUSED|refused|no connection|not reachable|of \d servers/i)
  })
})

test('runs no client that another user has laid out where it is started', (context) => {
  if (serverUser === undefined) return context.skip('only root can make what belongs to another user')
  const { uid, gid } = serverUser
  const world = folderWith('planted', ['pg'])
  const url = `postgres://me@${CLOSED}/db`
  for (const planted of ['node_modules', 'node_modules/pg']) {
    lchownSync(join(world, planted), uid, gid)
    const { status, said } = holdfast(world, 'ls', '--url', url)
    expect({ status, said }).toMatchObject({ status: 69, said: expect.stringContaining('npm install -g pg (that in') })
    expect(said).toContain(`belongs to user ${uid}, and is not run`)
    lchownSync(join(world, planted), 0, 0)
  }
  expect(holdfast(world, 'ls', '--url', url).said).toContain('ECONNREFUSED')
})

test('the completion of a shell loads no client of the project that the shell is in', () => {
  const project = folderWith('completing', [])
  const loaded = join(project, 'loaded')
  mkdirSync(join(project, 'node_modules', 'pg'), { recursive: true })
  writeFileSync(
    join(project, 'node_modules', 'pg', 'index.js'),
    `require('node:fs').writeFileSync(${JSON.stringify(loaded)}, '')`,
  )
  const env = {
    PATH: `${dirname(command)}:${process.env.PATH}`,
    HOME: world,
    HOLDFAST_URL: `postgres://me@${CLOSED}/db`,
  }
  const typed = `eval "$(holdfast completion bash)"
    COMP_WORDS=(holdfast show '') COMP_CWORD=2 COMP_LINE='holdfast show ' COMP_POINT=14
    _holdfast`
  execFileSync('bash', ['-c', typed], { cwd: project, env, timeout: LIMIT_MS })
  expect(existsSync(loaded)).toBe(false)
  // It is found by a command that the user starts.
  spawnSync(command, ['ls'], { cwd: project, env, timeout: LIMIT_MS })
  expect(existsSync(loaded)).toBe(true)
})

test('guards, too: their marks are asked for with the client of the project', () => {
  const url = `postgres://me@${CLOSED}/db`
  expect(holdfast(folderWith('marks-none'), 'guard', 'show', '--url', url).said).toContain('npm install -g pg')
  expect(holdfast(folderWith('marks-pg', ['pg']), 'guard', 'show', '--url', url).said).toContain('ECONNREFUSED')
})

test('the embedded default uses the SQLite of Node, or that of the project, or says how to install one', () => {
  const run = ['run', 'hello', '--', 'echo', 'held'] as const
  const bare = holdfast(folderWith('sqlite-none'), ...run)
  if (bringsSqlite) expect(bare).toEqual({ status: 0, said: 'held\n' })
  else
    expect(bare).toMatchObject({
      status: 69,
      said: expect.stringContaining(': npm install -g @photostructure/sqlite@1, or'),
    })
  const project = folderWith('sqlite-has', ['@photostructure/sqlite'])
  expect(holdfast(project, ...run)).toEqual({ status: 0, said: 'held\n' })
})

/** What the command loads: files of its own, and modules of Node. Both are paid for at every start. */
function loadedBy(...args: readonly string[]): { files: readonly string[]; modules: readonly string[] } {
  const main = realpathSync(command)
  const script = `
    const before = new Set(process.moduleLoadList)
    const main = ${JSON.stringify(main)}
    const files = new Set([main])
    const fs = require('node:fs')
    const { readFileSync } = fs
    fs.readFileSync = (path, ...rest) => {
      if (require('node:path').dirname(String(path)) === ${JSON.stringify(dirname(main))}) files.add(path)
      return readFileSync(path, ...rest)
    }
    process.argv = [process.execPath, main, ...${JSON.stringify(args)}]
    process.on('exit', () => {
      const modules = process.moduleLoadList.filter((name) => !before.has(name))
      console.log(JSON.stringify({ files: [...files], modules }))
    })
    require(main)`
  const printed = execFileSync(process.execPath, ['-e', script], { encoding: 'utf8', cwd: resolve('.') })
  const { files, modules } = JSON.parse(printed.trim().split('\n').at(-1) ?? '') as Record<string, readonly string[]>
  return {
    // That of the bundler itself is one line long.
    files: (files ?? [])
      .map((file) => basename(file))
      .filter((name) => name !== 'rolldown-runtime.cjs')
      .toSorted(),
    modules: (modules ?? []).map((name) => name.replace('NativeModule ', '')),
  }
}

test('the start loads neither an engine nor the core', () => {
  expect(loadedBy('--version').files).toEqual(['holdfast.cjs', 'main.cjs'])
})

test('a command loads five files of ours, and no module of Node that it can do without', () => {
  const url = `sqlite:${join(world, 'loaded.db')}`
  const looking = loadedBy('ls', '--url', url)
  expect(looking.files).toEqual(['core.cjs', 'holdfast.cjs', 'ls.cjs', 'main.cjs', 'sqlite.cjs'])
  const running = loadedBy('run', 'loaded', '--url', url, '--', 'true')
  expect(running.files).toEqual(['core.cjs', 'holdfast.cjs', 'job.cjs', 'main.cjs', 'sqlite.cjs'])
  for (const heavy of ['crypto', 'perf_hooks', 'http', 'tls', 'worker_threads', 'readline']) {
    expect(looking.modules).not.toContain(heavy)
    expect(running.modules).not.toContain(heavy)
  }
  for (const ofProcesses of ['child_process', 'net']) expect(looking.modules).not.toContain(ofProcesses)
})

test('each engine has a file of its own, so that a command loads only the one that it needs', () => {
  const files = readdirSync(dirname(realpathSync(command)))
  expect(files).toEqual(expect.arrayContaining(ENGINE_NAMES.map((name) => `${name}.cjs`)))
})

await describeServer('a command under a lock on Redis', findRedis, (source) => {
  test('is run with the client of the project', async () => {
    await using server = await RedisServer.start(source)
    const project = folderWith('redis-run', ['ioredis'])
    const ran = holdfast(project, 'run', 'hello', '--url', server.url, '--', 'echo', 'held')
    expect(ran).toEqual({ status: 0, said: 'held\n' })
  })
})
