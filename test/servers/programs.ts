/**
 * Where the programs of real servers come from: what is installed, else our cache, else fetched into the cache.
 *
 * Each way is tried and its program run once (`--version`), so that a broken installation, or a cache that no longer
 * fits the machine after an upgrade, leads to the next way and not to a baffling test failure. When every way fails,
 * the answer is `Missing`, with the reasons and the command that helps; `suite.ts` turns that into a counted skip, or,
 * under CI, into a failure. Only one process of this machine fetches or installs at a time.
 */
import { execFile } from 'node:child_process'
import { existsSync, readdirSync } from 'node:fs'
import { chmod, mkdtemp, rename, rm } from 'node:fs/promises'
import { delimiter, join } from 'node:path'
import { promisify } from 'node:util'
import { fetchPackages, installPackages, libraryFolders } from './apt.ts'
import { oneAtATime } from './one-at-a-time.ts'
import { cacheFolder, serverUser, weAreRoot } from './user.ts'

const run = promisify(execFile)

/** What a server is made of. */
export interface Recipe {
  /** As in the engine's name: the folder in the cache. */
  readonly name: string
  readonly program: string
  /** Folders besides PATH; one `*` may stand for a version, as in the path of PostgreSQL's programs. */
  readonly places: readonly string[]
  /** Debian packages that hold the program, all of them named. */
  readonly packages: readonly string[]
  /** How a person gets it, for the message. */
  readonly install: string
}

export interface Program {
  readonly path: string
  /** What it says of its version. */
  readonly version: string
  /** '' for an installed program, else the folder that stands for `/`. */
  readonly root: string
  /** To be added to the environment of the program. */
  readonly env: Readonly<Record<string, string>>
}

/** The server cannot be had on this machine. */
export class Missing {
  readonly reason: string
  /**
   * Under CI, what is missing fails the run: a green run that tested nothing is a lie. This one is skipped there, too.
   * It is for real servers of MongoDB alone, which Debian and npm do not have: see mongodb.ts.
   */
  readonly skipsUnderCi: boolean

  constructor(reason: string, { skipsUnderCi = false }: { readonly skipsUnderCi?: boolean } = {}) {
    this.reason = reason
    this.skipsUnderCi = skipsUnderCi
  }
}

const PLACES = ['/usr/local/bin', '/usr/bin', '/usr/sbin', '/usr/local/sbin', '/opt/homebrew/bin']

type Way = readonly [name: string, () => Promise<Program | undefined>]

export async function findProgram(recipe: Recipe): Promise<Program | Missing> {
  const here: readonly Way[] = [
    ['installed', () => installed(recipe)],
    ['cache', () => cached(recipe)],
  ]
  const elsewhere: Way[] = [['fetch', () => fetched(recipe)]]
  // Changing the system is for machines that are thrown away.
  if (weAreRoot && process.env.CI)
    elsewhere.push(['apt-get install', () => installPackages(recipe.packages).then(() => installed(recipe))])
  const found = await firstWay(recipe, here)
  // While this process waited for its turn, another one may have fetched it.
  return found instanceof Missing ? await oneAtATime(() => firstWay(recipe, [...here, ...elsewhere])) : found
}

async function firstWay(recipe: Recipe, ways: readonly Way[]): Promise<Program | Missing> {
  const reasons: string[] = []
  for (const [way, tryIt] of ways) {
    try {
      const program = await tryIt()
      if (program !== undefined) return program
      reasons.push(`${way}: not there`)
    } catch (error) {
      reasons.push(`${way}: ${lastLine(error)}`)
    }
  }
  return new Missing(`no ${recipe.program} (${reasons.join('; ')}). To get it: ${recipe.install}`)
}

async function installed(recipe: Recipe): Promise<Program | undefined> {
  const path = (process.env.PATH ?? '').split(delimiter)
  return await firstThatRuns(recipe, '', [...path, ...PLACES, ...recipe.places], {})
}

async function cached(recipe: Recipe): Promise<Program | undefined> {
  return await unpacked(recipe, join(cacheFolder(), recipe.name))
}

/**
 * Fetch into a folder of our own and move it to its place when complete: another process that looks meanwhile finds
 * all of it or nothing. An unusable cache, if we get here in spite of one, is replaced.
 */
async function fetched(recipe: Recipe): Promise<Program | undefined> {
  const target = join(cacheFolder(), recipe.name)
  const work = await mkdtemp(`${target}-`)
  // The servers' user has to reach it; mkdtemp closes it to all others.
  await chmod(work, 0o755)
  try {
    const root = join(work, 'root')
    await fetchPackages(recipe.packages, root, join(work, 'apt'))
    if ((await unpacked(recipe, root)) === undefined)
      throw new Error(`${recipe.packages.join(', ')} hold no ${recipe.program}`)
    if (existsSync(target) && (await cached(recipe).catch(() => undefined)) === undefined)
      await rm(target, { recursive: true })
    await rename(root, target).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'ENOTEMPTY' && error.code !== 'EEXIST') throw error
    })
  } finally {
    await rm(work, { recursive: true, force: true })
  }
  return await cached(recipe)
}

async function unpacked(recipe: Recipe, root: string): Promise<Program | undefined> {
  if (!existsSync(root)) return undefined
  const places = [...PLACES, ...recipe.places].map((place) => join(root, place))
  return await firstThatRuns(recipe, root, places, { LD_LIBRARY_PATH: (await libraryFolders(root)).join(delimiter) })
}

/** Undefined if the program is nowhere; throws if it is somewhere and runs nowhere. */
async function firstThatRuns(
  recipe: Recipe,
  root: string,
  places: readonly string[],
  env: Program['env'],
): Promise<Program | undefined> {
  let failure: unknown
  for (const place of places.flatMap(expand)) {
    const path = join(place, recipe.program)
    if (place === '' || !existsSync(path)) continue
    try {
      return await programAt(path, root, env)
    } catch (error) {
      failure = error
    }
  }
  if (failure !== undefined) throw failure
  return undefined
}

/** The program at this path; throws if it does not run. */
export async function programAt(path: string, root = '', env: Program['env'] = {}): Promise<Program> {
  const options = { env: { ...process.env, ...env }, timeout: 30_000, ...serverUser }
  const { stdout } = await run(path, ['--version'], options)
  return { path, version: stdout.trim(), root, env }
}

/** The folders that a place with one `*` stands for, the newest version first. */
export function expand(place: string): readonly string[] {
  const star = place.indexOf('*')
  if (star < 0) return [place]
  const parent = place.slice(0, star)
  if (!existsSync(parent)) return []
  const newestFirst = new Intl.Collator('en', { numeric: true })
  return readdirSync(parent)
    .toSorted((a, b) => newestFirst.compare(b, a))
    .map((name) => parent + name + place.slice(star + 1))
}

export function lastLine(error: unknown): string {
  const { stderr, message } = error as { stderr?: string; message?: string }
  const text = (stderr || message || String(error)).trim()
  return text.slice(text.lastIndexOf('\n') + 1)
}
