/** Folders of the cache: filled once, by one process of this machine at a time, and kept. */
import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { chmod, mkdir, mkdtemp, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { oneAtATime } from './one-at-a-time.ts'
import { cacheFolder } from './user.ts'

const run = promisify(execFile)
const LIMIT_MS = 10 * 60_000

/**
 * The folder `name` of the cache. If it is not there, `fill` is given an empty folder for it, and one for what it needs
 * meanwhile. The folder is moved to its place when it is complete: another process that looks finds all of it or
 * nothing.
 */
export async function keptFolder(
  name: string,
  fill: (folder: string, scratch: string) => Promise<unknown>,
): Promise<string> {
  const target = join(cacheFolder(), name)
  if (!existsSync(target)) await oneAtATime(() => fillOnce(target, fill))
  return target
}

async function fillOnce(target: string, fill: (folder: string, scratch: string) => Promise<unknown>): Promise<void> {
  if (existsSync(target)) return
  const work = await mkdtemp(`${target}-`)
  // The servers' user has to reach it; mkdtemp closes it to all others.
  await chmod(work, 0o755)
  try {
    const folder = join(work, 'kept')
    await mkdir(folder)
    await fill(folder, join(work, 'scratch'))
    await rename(folder, target)
  } finally {
    await rm(work, { recursive: true, force: true })
  }
}

/** Install packages of npm, such as `ioredis@5.3.0`, into a folder of their own. None of their scripts is run. */
export async function installFromNpm(folder: string, packages: readonly string[]): Promise<void> {
  const quiet = ['--no-audit', '--no-fund', '--no-save', '--ignore-scripts', '--legacy-peer-deps']
  await run('npm', ['install', '--prefix', folder, ...quiet, ...packages], { timeout: LIMIT_MS, cwd: folder })
}

/** The newest version of a package that begins so: `18.`. Only a package that has nothing else gives a prerelease. */
export async function newestVersion(name: string, begins: string): Promise<string> {
  const versions = await versionsOf(name, begins)
  const stable = versions.filter((version) => !version.includes('-'))
  const newest = (stable.length > 0 ? stable : versions).at(-1)
  if (newest === undefined) throw new Error(`npm has no ${name} ${begins}`)
  return newest
}

/** The oldest one that begins so, no prerelease. */
export async function oldestVersion(name: string, begins: string): Promise<string> {
  const oldest = (await versionsOf(name, begins)).find((version) => !version.includes('-'))
  if (oldest === undefined) throw new Error(`npm has no ${name} ${begins}`)
  return oldest
}

/** The oldest first. */
async function versionsOf(name: string, begins: string): Promise<readonly string[]> {
  const { stdout } = await run('npm', ['view', name, 'versions', '--json'], { timeout: LIMIT_MS })
  const versions = (JSON.parse(stdout) as string[]).filter((version) => version.startsWith(begins))
  return versions.toSorted(new Intl.Collator('en', { numeric: true }).compare)
}
