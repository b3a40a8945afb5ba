/**
 * Where the file is, and whether locks can live there. Whatever is wrong with the place is said before SQLite gets to
 * see it, in words about the file and not about result codes.
 *
 * Nothing here may ever open the database file itself: closing any descriptor of it would drop the POSIX locks that
 * SQLite holds in this process.
 */
import { accessSync, constants, lstatSync, mkdirSync, readlinkSync, realpathSync, type Stats, statSync } from 'node:fs'
import { homedir } from 'node:os'
import { basename, dirname, join, resolve } from 'node:path'
import { refusal } from './errors.ts'
import { readProc } from './host.ts'
import { isShare, stateFolder } from './places.ts'

/**
 * The embedded default, one for each user: `holdfast/locks.db` in the folder that `stateFolder` says, such as
 * `~/.local/state`.
 */
export function defaultFile(env: NodeJS.ProcessEnv = process.env): string {
  const state = stateFolder(env, process.platform, knownHome)
  if (state !== undefined) return join(state, 'holdfast', 'locks.db')
  const variables = process.platform === 'win32' ? 'LOCALAPPDATA nor USERPROFILE' : 'XDG_STATE_HOME nor HOME'
  throw refusal(
    `no place for the lock file: neither ${variables} names a folder. ` +
      'Set one of them, or name a file (sqlite:/path/to/locks.db)',
  )
}

function knownHome(): string | undefined {
  try {
    return homedir()
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

/**
 * Where the locks of this path are kept: the path itself, or what it leads to as a symbolic link. Two names of one file
 * then share everything that lies beside it. Only links of this user and of root are followed; `preparePlace` refuses
 * one that another user may have planted.
 */
export function withoutLinks(file: string): string {
  let found = file
  try {
    for (let steps = 0; steps < MOST_LINKS; steps += 1) {
      const stats = lookAt(found)
      if (stats === undefined || !stats.isSymbolicLink() || !isTrusted(stats)) return found
      found = resolve(dirname(found), readlinkSync(found))
    }
  } catch {
    // Not to be looked at. `preparePlace` says so, when the file is needed.
  }
  return file
}

/** As many as Linux follows. */
const MOST_LINKS = 40

export interface PlaceOptions {
  /** The user has named no file. Then its folder is made if need be. */
  readonly isDefaultFile?: boolean
  readonly allowNetworkFs?: boolean
}

/** Refuse a place where locks cannot work, or where another user has laid something out. */
export function preparePlace(file: string, { isDefaultFile = false, allowNetworkFs = false }: PlaceOptions = {}): void {
  const folder = dirname(file)
  if (isDefaultFile) makeStateFolder(folder, file)
  else demandFolder(folder, file)
  demandPlainFile(file)
  demandAccess(folder, constants.W_OK | constants.X_OK, `'${file}'`, `its folder '${folder}'`)
  if (lookAt(file) !== undefined) demandAccess(file, constants.R_OK | constants.W_OK, `'${file}'`, 'it')
  const type = allowNetworkFs ? undefined : networkType(realpathSync(folder))
  if (type === undefined) return
  throw refusal(
    `'${file}' is on a network or shared file system (${type}), where file locks and clocks of several machines ` +
      'do not agree. Name a file on a local disk; for locks across machines use another engine. ' +
      'If only this machine ever uses it: allowNetworkFs',
  )
}

/** Only the default one is made. A missing folder of a file that the user has named is rather a typing error. */
function demandFolder(folder: string, file: string): void {
  const stats = statsOf(folder)
  if (stats === undefined)
    throw refusal(`the folder of '${file}' does not exist: if the path is right, make it (mkdir -p '${folder}')`)
  if (!stats.isDirectory()) throw refusal(`'${folder}', in the path of '${file}', is not a folder: name another file`)
}

function makeStateFolder(folder: string, file: string): void {
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 })
  } catch (error) {
    throw refusal(
      `cannot make the folder of '${file}' (${reason(error)}): make it yourself, or name another file`,
      error,
    )
  }
  const [stats, above] = [statsOf(folder), statsOf(dirname(folder))]
  // Root may work in the folder of the user whose HOME it has.
  if (stats === undefined || isTrusted(stats) || stats.uid === above?.uid) return
  throw refusal(
    `'${folder}' belongs to user ${stats.uid}, who could replace your locks: ` +
      'remove it, or name another file (sqlite:/path/to/locks.db)',
  )
}

/** What SQLite keeps beside its file. */
const COMPANIONS = ['-wal', '-shm', '-journal']

/**
 * Refuse to give SQLite anything but plain files with one name each, made by a user of the database: it would follow a
 * link, wait for ever for the other end of a FIFO, and believe a log that another user wrote.
 */
export function demandPlainFile(file: string): void {
  const database = lookAt(file)
  if (database?.isDirectory())
    throw refusal(`'${file}' is a directory: name a file in it, such as '${join(file, 'locks.db')}'`)
  if (database?.isSymbolicLink())
    throw refusal(`'${file}' is a symbolic link of user ${database.uid}, which is not followed: name the file itself`)
  if (database !== undefined && !database.isFile()) throw refusal(`'${file}' is not a regular file: name another file`)
  if (database !== undefined) demandOneName(file, database)
  const folder = statsOf(dirname(file))
  for (const companion of COMPANIONS.map((end) => file + end)) {
    const stats = lookAt(companion)
    if (stats === undefined) continue
    if (!stats.isFile())
      throw refusal(`'${companion}' is not a regular file, so that SQLite cannot have made it: remove it`)
    if (stats.nlink > 1)
      throw refusal(`'${companion}' has ${stats.nlink} names (hard links): remove the others, and leave this one`)
    if (!mayComeFromUserOf(database, stats, folder))
      throw refusal(
        `'${companion}' belongs to user ${stats.uid}, who may not write '${file}': ` +
          'remove it while no process uses the file, or give that user write permission to the file',
      )
  }
}

/**
 * A file with two names has two logs, each beside one of the names: processes that use different names would not
 * exclude each other.
 */
function demandOneName(file: string, stats: Stats): void {
  if (stats.nlink > 1)
    throw refusal(
      `'${file}' has ${stats.nlink} names (hard links), and locks under one name do not exclude locks under another: ` +
        `use one name, and make it a file of its own, while no process uses it ` +
        `(cp '${file}' '${file}.new' && mv '${file}.new' '${file}')`,
    )
  if (isMountPoint(realPlaceOf(file), readProc('/proc/self/mountinfo') ?? ''))
    throw refusal(
      `'${file}' is mounted here as a single file, without the log beside it, so that locks here would not exclude ` +
        `those outside: mount the folder that it is in (docker run -v /var/lib/locks:/locks), and name the file in it`,
    )
}

function realPlaceOf(file: string): string {
  return join(realpathSync(dirname(file)), basename(file))
}

/** Owner, group and mode of a file. */
export type Ownership = Pick<Stats, 'uid' | 'gid' | 'mode'>

/**
 * Whether a file in `folder`, beside the database, was made by a user who may write the database, too. That user could
 * do with the locks what it likes in any case; another user must not.
 */
export function mayComeFromUserOf(
  database: Ownership | undefined,
  stats: Ownership,
  folder: Ownership | undefined,
): boolean {
  if (isTrusted(stats)) return true
  if (database === undefined || folder === undefined) return false
  const { uid, gid, mode } = database
  if (stats.uid === uid || (mode & 0o002) !== 0) return true
  return (mode & 0o020) !== 0 && stats.gid === gid && !givesItsGroup(folder)
}

/**
 * Whether a file that any user makes there has the group of the folder, so that the group says nothing about the user.
 * Outside Linux folders pass on their group without the bit, too.
 */
function givesItsGroup({ mode }: Ownership): boolean {
  return (mode & 0o002) !== 0 && ((mode & 0o2000) !== 0 || process.platform !== 'linux')
}

/** Of this user, or of root. Where a system has no such numbers, all are trusted. */
function isTrusted({ uid }: Ownership): boolean {
  const own = process.geteuid?.()
  return own === undefined || uid === own || uid === 0
}

/** The thing itself, and not what it leads to. */
function lookAt(path: string): Stats | undefined {
  return looking(path, lstatSync)
}

function statsOf(path: string): Stats | undefined {
  return looking(path, statSync)
}

function looking(path: string, look: (path: string, options: { throwIfNoEntry: false }) => Stats | undefined) {
  try {
    return look(path, { throwIfNoEntry: false })
  } catch (error) {
    // A file where a folder should be: there is nothing at this path.
    if ((error as NodeJS.ErrnoException).code === 'ENOTDIR') return undefined
    throw refusal(`cannot look at '${path}' (${reason(error)}): check the permissions of its folder`, error)
  }
}

function demandAccess(path: string, mode: number, file: string, what: string): void {
  try {
    accessSync(path, mode)
  } catch (error) {
    throw refusal(
      `${file} cannot be used (${reason(error)}): ` +
        `give this user read and write permission to ${what}, or name another file`,
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
    'nfs nfs4 cifs smb3 smbfs 9p virtiofs afs ceph lustre gpfs beegfs gfs2 ocfs2 ncpfs coda orangefs acfs vboxsf ' +
    'prl_fs vmhgfs fakeowner fuse.sshfs fuse.glusterfs fuse.ceph fuse.s3fs fuse.rclone fuse.gcsfuse fuse.goofys ' +
    'fuse.juicefs fuse.davfs2 fuse.curlftpfs fuse.vmhgfs-fuse fuse.grpcfuse fuse.osxfs fuse.moosefs fuse.seaweedfs'
  ).split(' '),
)

function networkType(folder: string): string | undefined {
  if (process.platform === 'win32') return isShare(folder) ? 'a share of another host' : undefined
  return networkTypeOf(folder, readProc('/proc/self/mountinfo') ?? '')
}

/**
 * The type of the file system that `folder` is on, if it is a network one, out of the kernel's list of mounts (proc(5),
 * mountinfo).
 */
export function networkTypeOf(folder: string, mountinfo: string): string | undefined {
  let best = ''
  let found: string | undefined
  for (const { point, type } of mountsOf(mountinfo)) {
    const within = point === '/' || folder === point || folder.startsWith(`${point}/`)
    // The longest one wins, and of two mounts on one point the later, which covers the other.
    if (!within || point.length < best.length) continue
    best = point
    found = type
  }
  return found !== undefined && NETWORK_TYPES.has(found) ? found : undefined
}

/** Whether exactly this path is mounted. */
export function isMountPoint(path: string, mountinfo: string): boolean {
  return mountsOf(mountinfo).some(({ point }) => point === path)
}

function mountsOf(mountinfo: string): { readonly point: string; readonly type: string }[] {
  return mountinfo.split('\n').flatMap((line) => {
    const [left, right] = line.split(' - ')
    const encoded = left?.split(' ')[4]
    const type = right?.split(' ')[0]
    if (encoded === undefined || type === undefined) return []
    const point = encoded.replace(/\\([0-7]{3})/g, (_, octal: string) => String.fromCharCode(Number.parseInt(octal, 8)))
    return [{ point, type }]
  })
}
