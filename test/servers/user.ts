/**
 * Who runs the servers, and where they may live.
 *
 * PostgreSQL refuses to run as root and no server here needs it, so under root every server is started as `nobody`.
 * That user must be able to reach the program and the folder: a cache below a closed home folder (`/root`) is of no
 * use, and is passed over.
 */
import { execFileSync } from 'node:child_process'
import { accessSync, constants, existsSync, lstatSync, mkdirSync, statSync } from 'node:fs'
import { homedir, tmpdir } from 'node:os'
import { dirname, join } from 'node:path'

export interface User {
  readonly uid: number
  readonly gid: number
}

export const weAreRoot: boolean = process.getuid?.() === 0

/** Who servers run as: `nobody` under root; undefined means ourselves. */
export const serverUser: User | undefined = weAreRoot ? { uid: idOf('-u'), gid: idOf('-g') } : undefined

function idOf(which: '-u' | '-g'): number {
  return Number(execFileSync('id', [which, 'nobody'], { encoding: 'utf8' }))
}

/**
 * The folder where fetched servers are kept: the first of the usual cache folders that we can write and the servers'
 * user can reach. The last one, in the shared temporary folder, carries our uid in its name and is refused if another
 * user made it, since we run programs from it.
 */
export function cacheFolder(env: NodeJS.ProcessEnv = process.env): string {
  const places = [env.XDG_CACHE_HOME, home(env), weAreRoot ? '/var/cache' : undefined]
  for (const place of places) {
    if (place === undefined || place === '') continue
    const folder = join(place, 'holdfast', 'servers')
    if (usable(folder)) return folder
  }
  const last = join(tmpdir(), `holdfast-servers-${process.getuid?.() ?? 'user'}`)
  if (usable(last) && lstatSync(last).uid === process.getuid?.()) return last
  throw new Error(`no folder to keep test servers in: neither a cache folder nor ${last} can be written by us alone`)
}

function home(env: NodeJS.ProcessEnv): string | undefined {
  const folder = env.HOME ?? homedir()
  return folder === '' ? undefined : join(folder, '.cache')
}

function usable(folder: string): boolean {
  if (serverUser !== undefined && !reachable(folder)) return false
  try {
    mkdirSync(folder, { recursive: true, mode: 0o755 })
    accessSync(folder, constants.W_OK | constants.X_OK)
    return true
  } catch {
    return false
  }
}

/** Whether a stranger can enter `folder`, or whatever of the way to it exists. */
export function reachable(folder: string): boolean {
  if (existsSync(folder) && (statSync(folder).mode & 0o001) === 0) return false
  return dirname(folder) === folder || reachable(dirname(folder))
}
