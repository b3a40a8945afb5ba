/**
 * Debian packages without root and without installing anything: apt keeps its state in a folder of ours, downloads what
 * this machine lacks, and `dpkg-deb` unpacks it beside. The program then runs from there with its libraries on
 * LD_LIBRARY_PATH.
 *
 * Packages the machine has already are taken as they are (apt reads the real dpkg status), except the named ones
 * themselves: a program can be split over several packages, of which one may be installed.
 */
import { execFile } from 'node:child_process'
import { mkdir, readdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
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
