/**
 * What paths look like on each system: where the state of a user is kept, what a URL says, and which paths lead to
 * another host. All of it without a look at the disk, and for whichever system is asked about: so one system tests it.
 */
import { posix, win32 } from 'node:path'

/**
 * Where programs of this system keep the state of a user: `$XDG_STATE_HOME` wherever it is set; else `~/.local/state`,
 * on macOS `~/Library/Application Support`, on Windows `%LOCALAPPDATA%`. `knownHome`: what the system itself says of
 * the user, if no variable does. A cron job and a shell then agree on the place.
 */
export function stateFolder(
  env: NodeJS.ProcessEnv,
  platform: NodeJS.Platform,
  knownHome: () => string | undefined,
): string | undefined {
  const path = platform === 'win32' ? win32 : posix
  const absolute = (folder: string | undefined): string | undefined =>
    folder !== undefined && path.isAbsolute(folder) ? folder : undefined
  const given = absolute(env.XDG_STATE_HOME) ?? (platform === 'win32' ? absolute(env.LOCALAPPDATA) : undefined)
  if (given !== undefined) return given
  const home = absolute(platform === 'win32' ? env.USERPROFILE : env.HOME) ?? absolute(knownHome())
  return home === undefined ? undefined : path.join(home, ...(STATE_FOLDERS[platform] ?? ['.local', 'state']))
}

/** Below the home of a user. */
const STATE_FOLDERS: { readonly [Name in NodeJS.Platform]?: readonly string[] } = {
  darwin: ['Library', 'Application Support'],
  win32: ['AppData', 'Local'],
}

/**
 * The path of the file, out of what is between the scheme of a URL and its query. On Windows, slashes before the letter
 * of a drive belong to the URL and not to the path: `sqlite:///C:/locks.db`.
 */
export function pathOfUrl(path: string, platform: NodeJS.Platform): string {
  const file = withoutHost(path)
  return platform === 'win32' ? file.replace(/^[\\/]+(?=[a-z]:[\\/])/i, '') : file
}

/** Two slashes announce a host, which a file does not have: `sqlite://name` is refused, as it is surely a mistake. */
function withoutHost(path: string): string {
  const match = /^\/\/(?<host>[^/]*)(?<rest>.*)$/s.exec(path)
  if (match === null) return decode(path)
  const { host, rest = '' } = match.groups ?? {}
  if (host === '' || host === 'localhost') return decode(rest)
  throw new TypeError(
    `'sqlite:${path}' names a host; write sqlite:${host}${rest} for a relative path, or sqlite:/path for an absolute one`,
  )
}

function decode(path: string): string {
  try {
    return decodeURIComponent(path)
  } catch {
    // A file name with a per cent sign in it.
    return path
  }
}

/**
 * Whether a path of Windows names another host: `\\host\share`, also behind `\\?\UNC\`. The letter of a drive that is a
 * share does not tell.
 */
export function isShare(path: string): boolean {
  return /^[\\/]{2}(?:[?.][\\/]UNC[\\/]|[^?.\\/])/i.test(path)
}
