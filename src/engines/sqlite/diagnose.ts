/**
 * What about the file could break the engine's promises: who may write it, where it lies, which SQLite, and whether
 * others who should share it have a file of their own. For `holdfast doctor`.
 */
import { realpathSync, statSync } from 'node:fs'
import { homedir, userInfo } from 'node:os'
import { dirname, join } from 'node:path'
import { loadDriver, versionOf } from '../../clients/sqlite/driver.ts'
import { defaultFile, networkTypeOf } from '../../clients/sqlite/folder.ts'
import { readProc } from '../../clients/sqlite/host.ts'
import { stateFolder } from '../../clients/sqlite/places.ts'
import type { NamedFinding } from '../../core/finding-names.ts'

const OTHERS_WRITE = 0o022
const LARGE_WAL_BYTES = 64 * 1024 * 1024

/** `isDefaultFile`: the user has named no file, so that other users have others. */
export async function diagnose(file: string, isDefaultFile: boolean): Promise<readonly NamedFinding[]> {
  return [
    permissions(file),
    fileSystem(file),
    await version(),
    log(file),
    { name: 'clock skew', status: 'ok', finding: 'none possible: all processes of this host read one monotonic clock' },
    ...(isDefaultFile ? [stateFolders(file)] : []),
  ]
}

function permissions(file: string): NamedFinding {
  const name = 'file'
  // Windows has neither such modes nor such numbers.
  if (process.getuid === undefined)
    return { name, status: 'ok', finding: `${file}; who may write it is not known on this system` }
  const loose = [file, dirname(file)].filter((path) => (statSync(path).mode & OTHERS_WRITE) !== 0)
  const { uid } = statSync(file)
  if (loose.length > 0) {
    const todo = `a user who can write there can take or break your locks; if that is not wanted: chmod go-w ${loose.join(' ')}`
    return { name, status: 'warn', finding: `${file}; writable by others: ${loose.join(', ')}`, todo }
  }
  if (uid !== process.getuid())
    return {
      name,
      status: 'warn',
      finding: `${file} belongs to user ${uid}`,
      todo: 'new files beside it may not be writable for its owner',
    }
  return { name, status: 'ok', finding: file }
}

function fileSystem(file: string): NamedFinding {
  const name = 'file system'
  const mounts = readProc('/proc/self/mountinfo')
  if (mounts === undefined) return { name, status: 'ok', finding: 'not known on this system' }
  const type = networkTypeOf(realpathSync(dirname(file)), mounts)
  if (type === undefined) return { name, status: 'ok', finding: 'local' }
  return {
    name,
    status: 'fail',
    finding: `${type}: a network or shared file system`,
    todo: 'locks of other machines do not count here: use a local file or another engine',
  }
}

async function version(): Promise<NamedFinding> {
  const driver = await loadDriver()
  const database = driver.open(':memory:')
  try {
    return { name: 'version', status: 'ok', finding: `SQLite ${versionOf(database)} from ${driver.name}` }
  } finally {
    database.close()
  }
}

function log(file: string): NamedFinding {
  const size = statSync(`${file}-wal`, { throwIfNoEntry: false })?.size ?? 0
  const found = { name: 'write-ahead log', finding: `${Math.ceil(size / 1024)} KiB` } as const
  if (size < LARGE_WAL_BYTES) return { ...found, status: 'ok' }
  return {
    ...found,
    status: 'warn',
    todo: 'a process keeps an old read open, so the log cannot be reset: find it with lsof',
  }
}

/**
 * Every user has a default file of their own, and locks in two files do not exclude each other: the classic surprise
 * with sudo and cron.
 */
function stateFolders(file: string): NamedFinding {
  const name = 'state folders'
  const others = [...ownOthers(file), ...othersFiles(file)]
  if (others.length === 0) return { name, status: 'ok', finding: `${file} is the only one found` }
  const todo =
    'locks in different files do not exclude each other: name one file for all, with --url or HOLDFAST_URL (sqlite:/var/lib/holdfast/locks.db)'
  return { name, status: 'warn', finding: `others have a file of their own: ${others.join(', ')}`, todo }
}

/** A shell may have XDG_STATE_HOME where a cron job of the same user has not. */
function ownOthers(file: string): string[] {
  const plain = defaultFile({ HOME: homedir() })
  return plain !== file && exists(plain) ? [`${plain} (you, without XDG_STATE_HOME)`] : []
}

/** Undefined in a container whose user has no name. */
function ownName(): string | undefined {
  try {
    return userInfo().username
  } catch {
    return undefined
  }
}

function othersFiles(file: string): string[] {
  const self = ownName()
  const users = (readProc('/etc/passwd') ?? '').split('\n').map((line) => line.split(':'))
  return users.flatMap(([user, , , , , home]) => {
    if (user === undefined || home === undefined || user === self || home === '') return []
    const state = stateFolder({ HOME: home }, process.platform, () => undefined)
    if (state === undefined) return []
    const theirs = join(state, 'holdfast', 'locks.db')
    return theirs !== file && exists(theirs) ? [`${theirs} (${user})`] : []
  })
}

function exists(file: string): boolean {
  try {
    return statSync(file, { throwIfNoEntry: false }) !== undefined
  } catch {
    // Not ours to look at.
    return false
  }
}
