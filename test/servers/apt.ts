/**
 * Debian packages without root and without installing anything: apt keeps its state in a folder of ours, downloads what
 * this machine lacks, and `dpkg-deb` unpacks it beside. The program then runs from there with its libraries on
 * LD_LIBRARY_PATH.
 *
 * Packages the machine has already are taken as they are (apt reads the real dpkg status), except the named ones
 * themselves: a program can be split over several packages, of which one may be installed.
 *
 * Packages of another release of Debian (a suite, such as `sid`) come with all that they need, the C library included,
 * and their programs are run by the loader among them: nothing of theirs has to fit this machine.
 */
import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { chmod, mkdir, readdir, rm, writeFile } from 'node:fs/promises'
import { basename, join, relative } from 'node:path'
import { promisify } from 'node:util'

const run = promisify(execFile)

/** An unreachable mirror must not hold up a test run for minutes. */
const PATIENCE = ['-o', 'Acquire::http::Timeout=20', '-o', 'Acquire::https::Timeout=20', '-o', 'Acquire::Retries=2']
const LIMIT_MS = 10 * 60_000

/**
 * Unpack `packages` and what they need into `root`. `scratch` is a folder of ours for apt's own state; the caller
 * removes it.
 */
export async function fetchPackages(packages: readonly string[], root: string, scratch: string): Promise<void> {
  await unpack(packages, root, scratch, [])
}

/** The same, out of another suite of Debian, for a machine that has nothing. */
export async function fetchFromSuite(
  suite: string,
  packages: readonly string[],
  root: string,
  scratch: string,
): Promise<void> {
  const sources = join(scratch, 'sources.list')
  const status = join(scratch, 'status')
  await mkdir(scratch, { recursive: true })
  await writeFile(sources, `deb ${KEYRING} ${await debianMirror()} ${suite} main\n`)
  await writeFile(status, '')
  const own = [`Dir::Etc::SourceList=${sources}`, 'Dir::Etc::SourceParts=-', `Dir::State::status=${status}`]
  await unpack(packages, root, scratch, own)
}

const KEYRING = '[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]'

/** Where this machine gets Debian from, or what HOLDFAST_TEST_DEBIAN_MIRROR says. */
async function debianMirror(): Promise<string> {
  const given = process.env.HOLDFAST_TEST_DEBIAN_MIRROR
  if (given) return given
  const { stdout } = await run('apt-get', ['update', '--print-uris'])
  const found = /'([^']+\/debian)\/dists\/[^']*InRelease'/.exec(stdout)?.[1]
  if (found === undefined)
    throw new Error('the apt of this machine knows no mirror of Debian: HOLDFAST_TEST_DEBIAN_MIRROR can name one')
  return found
}

async function unpack(
  packages: readonly string[],
  root: string,
  scratch: string,
  more: readonly string[],
): Promise<void> {
  const lists = join(scratch, 'lists')
  const archives = join(scratch, 'archives')
  await mkdir(join(lists, 'partial'), { recursive: true })
  await mkdir(join(archives, 'partial'), { recursive: true })
  await mkdir(root, { recursive: true })
  const state = [
    `Dir::State::Lists=${lists}`,
    `Dir::Cache=${scratch}`,
    `Dir::Cache::archives=${archives}`,
    'Debug::NoLocking=1',
    ...more,
  ]
  const options = [...state.flatMap((option) => ['-o', option]), ...PATIENCE]

  // One dead source among several makes `update` complain; whether the packages can be had is for the next step to say.
  await apt([...options, 'update']).catch(() => undefined)
  await apt([...options, 'install', '--yes', '--download-only', '--reinstall', '--no-install-recommends', ...packages])
  const files = (await readdir(archives)).filter((name) => name.endsWith('.deb'))
  if (files.length === 0) throw new Error(`apt-get downloaded nothing for ${packages.join(', ')}`)
  for (const file of files) await run('dpkg-deb', ['-x', join(archives, file), root])
  await rm(scratch, { recursive: true, force: true })
}

/** The last resort, as root on a throw-away machine. RUNLEVEL=1 keeps the packages from starting their services. */
export async function installPackages(packages: readonly string[]): Promise<void> {
  await apt([...PATIENCE, 'update']).catch(() => undefined)
  await apt([...PATIENCE, 'install', '--yes', '--no-install-recommends', ...packages])
}

async function apt(args: readonly string[]): Promise<void> {
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive', RUNLEVEL: '1', LC_ALL: 'C' }
  await run('apt-get', ['-q', ...args], { env, timeout: LIMIT_MS, maxBuffer: 2 ** 26 })
}

/** Where the libraries of an unpacked `root` are: Debian keeps them in a folder named for the machine's kind. */
export async function libraryFolders(root: string): Promise<readonly string[]> {
  const folders: string[] = []
  for (const parent of [join(root, 'usr', 'lib'), join(root, 'lib')]) {
    const names = await readdir(parent).catch(() => [])
    if (names.length > 0) folders.push(parent)
    for (const name of names) if (name.includes('-linux-')) folders.push(join(parent, name))
  }
  return folders
}

/**
 * A script beside an unpacked `root` that runs a program of it with its own loader and libraries: its path. The script
 * becomes the program, so that they have one process id; and the root may be moved.
 */
export async function loaderScript(root: string, program: string): Promise<string> {
  const folders = (await libraryFolders(root)).map((folder) => relative(root, folder))
  const loader = (await Promise.all(folders.map((folder) => loaderIn(root, folder)))).find((one) => one !== undefined)
  if (loader === undefined || !existsSync(join(root, program)))
    throw new Error(`what was unpacked has no ${loader === undefined ? 'loader' : program}`)
  const script = join(root, 'run', basename(program))
  const libraries = folders.map((folder) => `$root/${folder}`).join(':')
  const lines = [
    '#!/bin/sh',
    'root=$(dirname "$(dirname "$(readlink -f "$0")")")',
    `exec "$root/${loader}" --library-path "${libraries}" "$root/${program}" "$@"`,
  ]
  await mkdir(join(root, 'run'), { recursive: true })
  await writeFile(script, `${lines.join('\n')}\n`)
  await chmod(script, 0o755)
  return script
}

async function loaderIn(root: string, folder: string): Promise<string | undefined> {
  const name = (await readdir(join(root, folder))).find((one) => /^ld-linux.*\.so\.\d+$/.test(one))
  return name === undefined ? undefined : join(folder, name)
}
