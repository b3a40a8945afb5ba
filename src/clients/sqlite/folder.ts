/**
 * Where the file is, and whether locks can live there. Whatever is wrong with the place is said before SQLite gets to
 * see it, in words about the file and not about result codes.
 *
 * Nothing here may ever open the database file itself: closing any descriptor of it would drop the POSIX locks that
 * SQLite holds in this process.
 */
import { accessSync, constants, mkdirSync, realpathSync, type Stats, statSync } from 'node:fs'
import { homedir } from 'node:os'
import { dirname, isAbsolute, join } from 'node:path'
import { refusal } from './errors.ts'
import { readProc } from './host.ts'

/**
 * The embedded default, one for each user: `$XDG_STATE_HOME/holdfast/locks.db`, or `~/.local/state/holdfast/locks.db`.
 */
export function defaultFile(env: NodeJS.ProcessEnv = process.env): string {
  const state = stateFolder(env)
  if (state !== undefined) return join(state, 'holdfast', 'locks.db')
  throw refusal(
    'no place for the lock file: neither XDG_STATE_HOME nor HOME names a folder. Set one of them, or name a file (sqlite:/path/to/locks.db)',
  )
}

function stateFolder(env: NodeJS.ProcessEnv): string | undefined {
  const { XDG_STATE_HOME: xdg, HOME: home } = env
  if (xdg !== undefined && isAbsolute(xdg)) return xdg
  if (home !== undefined && isAbsolute(home)) return join(home, '.local', 'state')
  try {
    // Without HOME, the user database still knows; a cron job and a shell then agree on the place.
    const known = homedir()
    return isAbsolute(known) ? join(known, '.local', 'state') : undefined
  } catch {
    return undefined
  }
}

/** Which file this is: a file that was deleted and made anew has the same path and is another one. */
export interface FileIdentity {
  readonly device: number
  readonly inode: number
}

export function identityOf(file: string): FileIdentity | undefined {
  const stats = statSync(file, { throwIfNoEntry: false })
  return stats === undefined ? undefined : { device: stats.dev, inode: stats.ino }
}

/** Make the folder if need be, and refuse a place where locks cannot work. */
export function preparePlace(file: string, allowNetworkFs: boolean): void {
  const folder = dirname(file)
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 })
  } catch (error) {
    throw refusal(
      `cannot make the folder of '${file}' (${reason(error)}): make it yourself, or name another file`,
      error,
    )
  }
  const stats = statsOf(file)
  if (stats?.isDirectory())
    throw refusal(`'${file}' is a directory: name a file in it, such as '${join(file, 'locks.db')}'`)
  if (stats !== undefined && !stats.isFile()) throw refusal(`'${file}' is not a regular file: name another file`)
  demandAccess(folder, constants.W_OK | constants.X_OK, `'${file}'`, `its folder '${folder}'`)
  if (stats !== undefined) demandAccess(file, constants.R_OK | constants.W_OK, `'${file}'`, 'it')
  const type = allowNetworkFs ? undefined : networkTypeOf(realpathSync(folder), readProc('/proc/self/mountinfo') ?? '')
  if (type === undefined) return
  throw refusal(
    `'${file}' is on a network or shared file system (${type}), where file locks and clocks of several machines do not agree. ` +
      'Name a file on a local disk; for locks across machines use another engine. If only this machine ever uses it: allowNetworkFs',
  )
}

function statsOf(file: string): Stats | undefined {
  try {
    return statSync(file, { throwIfNoEntry: false })
  } catch (error) {
    throw refusal(`cannot look at '${file}' (${reason(error)}): check the permissions of its folder`, error)
  }
}

function demandAccess(path: string, mode: number, file: string, what: string): void {
  try {
    accessSync(path, mode)
  } catch (error) {
    throw refusal(
      `${file} cannot be used (${reason(error)}): give this user read and write permission to ${what}, or name another file`,
      error,
    )
  }
}

function reason(error: unknown): string {
  const { code, message } = error as NodeJS.ErrnoException
  return code ?? message
}

/**
 * File systems that several machines can mount at once, or that a virtual machine shares with its host. Other FUSE
 * types are local as far as we know.
 */
const NETWORK_TYPES = new Set(
  (
    'nfs nfs4 cifs smb3 smbfs 9p virtiofs afs ceph lustre gpfs beegfs gfs2 ocfs2 ncpfs coda orangefs acfs vboxsf prl_fs vmhgfs fakeowner ' +
    'fuse.sshfs fuse.glusterfs fuse.ceph fuse.s3fs fuse.rclone fuse.gcsfuse fuse.goofys fuse.juicefs fuse.davfs2 fuse.curlftpfs ' +
    'fuse.vmhgfs-fuse fuse.grpcfuse fuse.osxfs fuse.moosefs fuse.seaweedfs'
  ).split(' '),
)

/**
 * The type of the file system that `folder` is on, if it is a network one, out of the kernel's list of mounts (proc(5),
 * mountinfo).
 */
export function networkTypeOf(folder: string, mountinfo: string): string | undefined {
  let best = ''
  let found: string | undefined
  for (const line of mountinfo.split('\n')) {
    const [left, right] = line.split(' - ')
    const encoded = left?.split(' ')[4]
    const type = right?.split(' ')[0]
    if (encoded === undefined || type === undefined) continue
    const point = encoded.replace(/\\([0-7]{3})/g, (_, octal: string) => String.fromCharCode(Number.parseInt(octal, 8)))
    const within = point === '/' || folder === point || folder.startsWith(`${point}/`)
    // The longest one wins, and of two mounts on one point the later, which covers the other.
    if (!within || point.length < best.length) continue
    best = point
    found = type
  }
  return found !== undefined && NETWORK_TYPES.has(found) ? found : undefined
}
